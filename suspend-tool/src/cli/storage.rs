//! Options and arguments about chunk stores and caches.

use std::path::PathBuf;

use clap::Args;
use clap::error::ErrorKind;

use super::{OutputArgs, wrong};

/// Where chunks are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub struct PlaceArgs {
    /// The chunk store: where memory is saved to, or where what was saved is now.
    #[arg(long, value_name = "DIR")]
    pub store: Option<PathBuf>,
    /// A chunk cache on this node: it is filled, in the background, when the processes are suspended, and read before the
    /// store.
    #[arg(long, value_name = "DIR")]
    pub cache: Option<PathBuf>,
}

/// Where memory is saved to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub struct SaveArgs {
    #[command(flatten)]
    pub(crate) places: PlaceArgs,
    /// The directory of the checkpoint, which gets a list of the chunks of each process.
    #[arg(long, value_name = "DIR")]
    pub ckpt_dir: Option<PathBuf>,
    /// Read the chunks that the store has already, and put right those that are bad.
    #[arg(long)]
    pub verify_existing: bool,
    /// Keep the host memory for the next suspend in place: what has not changed by then is not moved again.
    #[arg(long)]
    pub keep_arena: bool,
}

/// What options cannot be without.
impl SaveArgs {
    pub(super) fn hold_together(&self) -> Result<(), clap::Error> {
        let SaveArgs { places: PlaceArgs { store, cache }, ckpt_dir, verify_existing, keep_arena } = self;
        let needs_store = [
            ("--ckpt-dir", ckpt_dir.is_some()),
            ("--cache", cache.is_some()),
            ("--verify-existing", *verify_existing),
        ];
        match (store, needs_store.iter().find(|(_, given)| *given)) {
            (None, Some((option, _))) => {
                Err(wrong(ErrorKind::MissingRequiredArgument, format!("{option} needs --store")))
            }
            (Some(_), _) if ckpt_dir.is_none() => {
                Err(wrong(ErrorKind::MissingRequiredArgument, "--store needs --ckpt-dir".to_owned()))
            }
            (Some(_), _) if *keep_arena => {
                let text = "--keep-arena is for suspends in place: with --store no byte stays in the process";
                Err(wrong(ErrorKind::ArgumentConflict, text.to_owned()))
            }
            _ => Ok(()),
        }
    }

    /// Takes what stood before the verb.
    pub(super) fn take(&mut self, before: SaveArgs) {
        self.places.take(before.places);
        self.ckpt_dir = self.ckpt_dir.take().or(before.ckpt_dir);
        self.verify_existing |= before.verify_existing;
        self.keep_arena |= before.keep_arena;
    }

    /// The option that was given, if one was.
    pub(super) fn given(&self) -> Option<&'static str> {
        let flags = [("--verify-existing", self.verify_existing), ("--keep-arena", self.keep_arena)];
        let flag = flags.into_iter().find_map(|(option, given)| given.then_some(option));
        self.places.given().or(self.ckpt_dir.as_ref().map(|_| "--ckpt-dir")).or(flag)
    }
}

impl PlaceArgs {
    /// Takes what stood before the verb.
    pub(super) fn take(&mut self, before: PlaceArgs) {
        self.store = self.store.take().or(before.store);
        self.cache = self.cache.take().or(before.cache);
    }

    /// The option that was given, if one was.
    pub(super) fn given(&self) -> Option<&'static str> {
        self.store.as_ref().map(|_| "--store").or(self.cache.as_ref().map(|_| "--cache"))
    }
}

/// How many threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Args)]
pub struct ThreadArgs {
    /// How many threads read and write [default: one per processor, at most 16].
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub threads: Option<u16>,
}

impl ThreadArgs {
    /// The number that was given, or the usual one.
    pub fn or_usual(self) -> usize {
        const MOST: usize = 16;
        let processors = || std::thread::available_parallelism().map_or(1, |count| count.get().min(MOST));
        self.threads.map_or_else(processors, usize::from)
    }
}

/// What a cache is filled with.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct PrefetchArgs {
    /// The store that has the chunks.
    pub store: PathBuf,
    /// The directory of the checkpoint that is going to be loaded.
    pub ckpt_dir: PathBuf,
    /// The cache.
    pub cache: PathBuf,
    /// Read the chunks that the cache has already, and put right those that are bad.
    #[arg(long)]
    pub verify_existing: bool,
    #[command(flatten)]
    pub(crate) threads: ThreadArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// How large a cache may be.
#[derive(Clone, Debug, PartialEq, Args)]
pub struct CacheGcArgs {
    /// The cache.
    pub cache: PathBuf,
    /// How large it may be, in GiB.
    #[arg(value_parser = gib)]
    pub max_gib: Gib,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

impl Eq for CacheGcArgs {}

/// Bytes, given in GiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gib(pub u64);

/// What a store has to keep.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct StoreGcArgs {
    /// The store.
    pub store: PathBuf,
    /// ALL directories with checkpoints of this store: what their lists do not name goes.
    #[arg(required = true, value_name = "CKPT_DIR")]
    pub ckpt_dirs: Vec<PathBuf>,
    /// Remove; without it is only told what would be removed.
    #[arg(long)]
    pub delete: bool,
    /// Take a directory without any list as one whose checkpoints are given up, not as a mistake.
    #[arg(long)]
    pub allow_empty: bool,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// What is to be read.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct StoreVerifyArgs {
    /// The store, or a cache.
    pub store: PathBuf,
    #[command(flatten)]
    pub(crate) threads: ThreadArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

fn gib(text: &str) -> Result<Gib, String> {
    let gib: f64 = text.parse().map_err(|_| "a number of GiB is expected".to_owned())?;
    // 16 million GiB are all that 64 bits count.
    if !(0.0..=16e6).contains(&gib) {
        return Err("it has to be a size".to_owned());
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "inside of the range")]
    Ok(Gib((gib * f64::from(1 << 30)) as u64))
}

#[cfg(test)]
mod tests {
    use super::super::{Cli, Verb};
    use super::*;
    use std::ffi::OsString;

    fn parse(line: &str) -> Result<Verb, clap::Error> {
        Cli::from_args(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn places_may_stand_before_or_behind_the_verb() {
        let before = parse("x --store s --ckpt-dir c --cache n suspend 5 --verify-existing").unwrap();
        assert_eq!(before, parse("x suspend 5 --verify-existing --store s --ckpt-dir c --cache n").unwrap());
        assert_eq!(
            parse("x --store s --cache n resume 5").unwrap(),
            parse("x resume 5 --store s --cache n").unwrap()
        );
        match before {
            Verb::Suspend { save, .. } => {
                assert_eq!(save.places.store, Some("s".into()));
                assert_eq!(save.places.cache, Some("n".into()));
                assert_eq!(save.ckpt_dir, Some("c".into()));
                assert!(save.verify_existing);
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn options_that_need_others_are_wrong_usage_without() {
        for line in [
            "x suspend 5 --store s",
            "x suspend 5 --ckpt-dir c",
            "x suspend 5 --cache n",
            "x suspend 5 --verify-existing",
            "x release 5 --store s",
            "x suspend 5 --store s --ckpt-dir c --keep-arena",
            "x --keep-arena suspend 5 --store s --ckpt-dir c",
            "x resume 5 --keep-arena",
            "x --keep-arena resume 5",
            "x --keep-arena status 5",
            "x resume 5 --ckpt-dir c",
            "x --verify-existing resume 5",
            "x --store s status 5",
            "x store-gc s",
            "x cache-gc c",
            "x cache-gc c -1",
            "x cache-gc c much",
            "x cache-prefetch s c",
            "x store-verify s --threads 0",
        ] {
            assert_eq!(parse(line).unwrap_err().exit_code(), 2, "{line}");
        }
    }

    #[test]
    fn sizes_are_in_gib() {
        match parse("x cache-gc c 1.5").unwrap() {
            Verb::CacheGc(args) => assert_eq!(args.max_gib, Gib(3 << 29)),
            other => panic!("{other:?}"),
        }
    }
}
