//! Options that stand before the verb, and which verb takes which.

use super::{Before, FreezeArgs, MapArgs, OutputArgs, PidArgs, SaveArgs, Verb, WaitArgs, unfit};

impl Verb {
    pub(super) fn output(&mut self) -> Option<&mut OutputArgs> {
        match self {
            Self::Check { output, .. }
            | Self::Status { output, .. }
            | Self::List { output }
            | Self::Suspend { output, .. }
            | Self::Resume { output, .. }
            | Self::Stop { output, .. }
            | Self::Kill { output, .. }
            | Self::Gpus { output, .. }
            | Self::Quiesce { output, .. }
            | Self::Release { output, .. }
            | Self::Checkpoint { output, .. }
            | Self::Restore { output, .. }
            | Self::Stage { output, .. }
            | Self::Load { output, .. }
            | Self::Remap { output, .. }
            | Self::Reopen { output, .. } => Some(output),
            Self::CachePrefetch(args) => Some(&mut args.output),
            Self::CacheGc(args) => Some(&mut args.output),
            Self::StoreGc(args) => Some(&mut args.output),
            Self::StoreVerify(args) => Some(&mut args.output),
            Self::Run { .. } | Self::Hold { .. } | Self::Completions { .. } | Self::Man { .. } => None,
        }
    }

    fn wait(&mut self) -> Option<&mut WaitArgs> {
        match self {
            Self::Suspend { wait, .. }
            | Self::Kill { wait, .. }
            | Self::Quiesce { wait, .. }
            | Self::Checkpoint { wait, .. } => Some(wait),
            _ => None,
        }
    }

    fn freeze(&mut self) -> Option<&mut FreezeArgs> {
        match self {
            Self::Check { freeze, .. } | Self::Suspend { freeze, .. } => Some(freeze),
            _ => None,
        }
    }

    fn map(&mut self) -> Option<&mut MapArgs> {
        match self {
            Self::Resume { map, .. } | Self::Restore { map, .. } => Some(map),
            _ => None,
        }
    }

    fn processes(&mut self) -> Option<&mut PidArgs> {
        match self {
            Self::Check { processes, .. }
            | Self::Status { processes, .. }
            | Self::Suspend { processes, .. }
            | Self::Resume { processes, .. }
            | Self::Stop { processes, .. }
            | Self::Kill { processes, .. }
            | Self::Quiesce { processes, .. }
            | Self::Release { processes, .. }
            | Self::Checkpoint { processes, .. }
            | Self::Restore { processes, .. }
            | Self::Stage { processes, .. }
            | Self::Load { processes, .. }
            | Self::Remap { processes, .. }
            | Self::Reopen { processes, .. } => Some(processes),
            _ => None,
        }
    }
}

impl Verb {
    /// Takes the options that stood before the verb. One that the verb does not have is an error, as it is behind it.
    pub(super) fn take(&mut self, before: Before) -> Result<(), clap::Error> {
        let name = self.name();
        let Before { output, wait, map, freeze, tree, criu, save } = before;
        self.take_places(save)?;
        if output.json {
            self.output().ok_or_else(|| unfit("--json", name))?.json = true;
        }
        if let Some(timeout) = wait.timeout {
            self.wait().ok_or_else(|| unfit("--timeout", name))?.timeout.get_or_insert(timeout);
        }
        if let Some(file) = map.gpu_map {
            self.map().ok_or_else(|| unfit("--gpu-map", name))?.gpu_map.get_or_insert(file);
        }
        if freeze.no_freeze {
            self.freeze().ok_or_else(|| unfit("--no-freeze", name))?.no_freeze = true;
        }
        if tree.tree {
            self.processes().ok_or_else(|| unfit("--tree", name))?.tree.tree = true;
        }
        if criu.criu {
            match self {
                Self::Check { criu, .. } => criu.criu = true,
                _ => return Err(unfit("--criu", name)),
            }
        }
        Ok(())
    }
}

impl Verb {
    fn take_places(&mut self, mut before: SaveArgs) -> Result<(), clap::Error> {
        match self {
            Self::Check { save, .. } | Self::Suspend { save, .. } | Self::Release { save, .. } => {
                save.take(std::mem::take(&mut before));
            }
            Self::Resume { places, .. } | Self::Stage { places, .. } | Self::Load { places, .. } => {
                places.take(std::mem::take(&mut before.places));
            }
            Self::CachePrefetch(args) => args.verify_existing |= std::mem::take(&mut before.verify_existing),
            _ => {}
        }
        // What nobody has taken.
        before.given().map_or(Ok(()), |option| Err(unfit(option, self.name())))
    }
}
