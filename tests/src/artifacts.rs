//! Where the built files are: the library, the command, the stand-in driver and the programs under test.
//!
//! `NVSNAP_ARTIFACTS` names a folder laid out as `make dist` lays it out; a program that lies in such a folder needs
//! no variable. Otherwise one `cargo build` per test process makes sure that what is tested is what the sources say, and the
//! files are taken from cargo's own folder.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context, Result, bail};

/// The built files.
#[derive(Clone, Debug)]
pub struct Artifacts {
    /// `libnvsnap_gpushare.so`
    pub shim: PathBuf,
    /// `nvsnap-gpu-suspend`
    pub tool: PathBuf,
    /// The folder that holds the stand-in's `libcuda.so.1`.
    pub stand_in: PathBuf,
    /// The folder of the programs under test.
    pub programs: PathBuf,
}

impl Artifacts {
    /// Finds the files, building them if nobody says where they are. Done once per process.
    pub fn find() -> Result<&'static Self> {
        static FOUND: OnceLock<Result<Artifacts, String>> = OnceLock::new();
        let found = FOUND.get_or_init(|| {
            let named = std::env::var_os("NVSNAP_ARTIFACTS").map(PathBuf::from);
            match named.or_else(own_dist) {
                Some(dist) => Self::in_dist(&dist),
                None => Self::built(),
            }
            .map_err(|error| format!("{error:#}"))
        });
        found.as_ref().map_err(|error| anyhow::anyhow!("no artifacts: {error}"))
    }

    fn in_dist(dist: &Path) -> Result<Self> {
        let dist = dist.canonicalize().with_context(|| dist.display().to_string())?;
        Self {
            shim: dist.join("lib/libnvsnap_gpushare.so"),
            tool: dist.join("bin/nvsnap-gpu-suspend"),
            stand_in: dist.join("fakecuda"),
            programs: dist.join("tests"),
        }
        .checked()
    }

    fn built() -> Result<Self> {
        let folder = cargo_folder()?;
        let mut build = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        build.current_dir(env!("CARGO_MANIFEST_DIR")).args(["build", "--quiet"]);
        build.args([
            "-p",
            "shim",
            "-p",
            "suspend-tool",
            "-p",
            "fakecuda",
            "-p",
            "integration",
            "--lib",
            "--bins",
        ]);
        if folder.ends_with("release") {
            build.arg("--release");
        }
        let status = build.status().context("cannot run cargo")?;
        if !status.success() {
            bail!("cargo build: {status}");
        }
        let stand_in = folder.join("stand-in");
        std::fs::create_dir_all(&stand_in)?;
        link(&folder.join("libcuda.so"), &stand_in.join("libcuda.so.1"))?;
        Self {
            shim: folder.join("libnvsnap_gpushare.so"),
            tool: folder.join("nvsnap-gpu-suspend"),
            stand_in,
            programs: folder,
        }
        .checked()
    }

    fn checked(self) -> Result<Self> {
        for file in
            [&self.shim, &self.tool, &self.stand_in.join("libcuda.so.1"), &self.programs.join("worker")]
        {
            if !file.exists() {
                bail!("{} is missing", file.display());
            }
        }
        Ok(self)
    }
}

/// The folder of `make dist` that this program lies in, if it does.
fn own_dist() -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    let dist = own.parent()?.parent()?;
    dist.join("lib/libnvsnap_gpushare.so").exists().then(|| dist.to_path_buf())
}

/// The folder cargo puts this profile's files into: a test runs in `<folder>/deps`, a program in `<folder>`.
fn cargo_folder() -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    let mut folder = own.parent().context("no folder of my own")?;
    if folder.ends_with("deps") {
        folder = folder.parent().context("no folder above deps")?;
    }
    Ok(folder.to_path_buf())
}

/// Makes `at` a link to `file`, also when another test process does the same at this moment.
fn link(file: &Path, at: &Path) -> Result<()> {
    let fresh = at.with_extension(format!("new.{}", std::process::id()));
    std::os::unix::fs::symlink(file, &fresh)?;
    std::fs::rename(&fresh, at)?;
    Ok(())
}
