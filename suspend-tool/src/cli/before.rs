//! Options that stand before the verb, and how the verb takes them.

use clap::Args;

use super::{CriuArgs, FreezeArgs, MapArgs, OutputArgs, SaveArgs, TreeArgs, Verb, WaitArgs, wrong};

/// Options before the verb.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "Options, also behind the verbs that take them")]
pub struct Before {
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    #[command(flatten)]
    pub(crate) wait: WaitArgs,
    #[command(flatten)]
    pub(crate) map: MapArgs,
    #[command(flatten)]
    pub(crate) freeze: FreezeArgs,
    #[command(flatten)]
    pub(crate) tree: TreeArgs,
    #[command(flatten)]
    pub(crate) criu: CriuArgs,
    #[command(flatten)]
    pub(crate) save: SaveArgs,
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

fn unfit(option: &str, verb: &str) -> clap::Error {
    wrong(clap::error::ErrorKind::UnknownArgument, format!("`{verb}` has no option {option}"))
}
