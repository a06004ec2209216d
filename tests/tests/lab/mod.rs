//! A place to compile small C programs and to run them with the library in front.
//!
//! The sources are in `tests/roads`. A program says what it saw in lines on standard output.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags, Signal};
use tempfile::TempDir;

/// A folder of built programs and libraries, removed on drop.
pub(crate) struct Lab {
    folder: TempDir,
    compiler: &'static str,
}

impl Lab {
    pub(crate) fn new() -> Self {
        Self::with_compiler("cc")
    }

    /// One that makes programs for aarch64.
    pub(crate) fn aarch64() -> Self {
        Self::with_compiler("aarch64-linux-gnu-gcc")
    }

    fn with_compiler(compiler: &'static str) -> Self {
        let folder = tempfile::Builder::new().prefix("road").tempdir().expect("a temporary folder");
        Self { folder, compiler }
    }

    /// A file of this name in the folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The library, under its own name.
    pub(crate) fn shim(&self) -> PathBuf {
        shim().to_path_buf()
    }

    /// Compiles `source` of `tests/roads` to the executable `name`. `flags` come last: libraries among them are linked.
    pub(crate) fn program(&self, name: &str, source: &str, flags: &[&str]) -> PathBuf {
        self.compile(name, &sources().join(source), flags)
    }

    /// Compiles `source` of `tests/roads` to the shared library `name`, which is also its SONAME.
    pub(crate) fn library(&self, name: &str, source: &str, flags: &[&str]) -> PathBuf {
        let soname = format!("-Wl,-soname,{name}");
        let mut all = vec!["-shared", "-fPIC", soname.as_str()];
        all.extend(flags);
        self.compile(name, &sources().join(source), &all)
    }

    /// The stand-in of the road tests in `folder/libcuda.so.1`, and `libcuda.so` beside it.
    pub(crate) fn driver(&self, folder: &str, flags: &[&str]) -> PathBuf {
        let folder = self.path(folder);
        std::fs::create_dir_all(&folder).expect("a folder");
        let file = folder.join("libcuda.so.1");
        let mut all = vec!["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-Wl,-Bsymbolic"];
        all.extend(flags);
        self.compile(file.to_str().expect("UTF-8"), &sources().join("driver.c"), &all);
        let link = folder.join("libcuda.so");
        if !link.exists() {
            std::os::unix::fs::symlink("libcuda.so.1", link).expect("a link");
        }
        folder
    }

    fn compile(&self, name: &str, source: &Path, flags: &[&str]) -> PathBuf {
        let output = self.path(name);
        let mut compiler = Command::new(self.compiler);
        compiler.current_dir(self.folder.path());
        compiler.args(["-std=gnu11", "-O1", "-g", "-Wall", "-Werror", "-pthread", "-I"]).arg(sources());
        compiler.arg("-o").arg(&output).arg(source).args(flags).args(["-ldl", "-Wl,-rpath,$ORIGIN"]);
        check(&mut compiler);
        output
    }

    /// A run of `program` with the library in front.
    pub(crate) fn run(&self, program: impl AsRef<OsStr>) -> Run {
        Run::new(program).preload(&[&self.shim()])
    }

    /// A run of `program` without the library.
    pub(crate) fn bare(&self, program: impl AsRef<OsStr>) -> Run {
        Run::new(program)
    }
}

/// One run of a program.
pub(crate) struct Run {
    command: Command,
}

impl Run {
    fn new(program: impl AsRef<OsStr>) -> Self {
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("NVSNAP_") || name == "LD_LIBRARY_PATH" {
                command.env_remove(name);
            }
        }
        Self { command }
    }

    /// What is loaded in front, in this order.
    pub(crate) fn preload(mut self, libraries: &[&Path]) -> Self {
        let list: Vec<&OsStr> = libraries.iter().map(|library| library.as_os_str()).collect();
        self.command.env("LD_PRELOAD", list.join(OsStr::new(":")));
        self
    }

    /// Where the driver is found by name.
    pub(crate) fn driver(mut self, folder: &Path) -> Self {
        self.command.env("LD_LIBRARY_PATH", folder);
        self
    }

    /// Sets a variable.
    pub(crate) fn env(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.command.env(name, value.into());
        self
    }

    /// Adds arguments.
    pub(crate) fn args(mut self, args: &[&str]) -> Self {
        self.command.args(args);
        self
    }

    /// Runs it to its end, whatever that is; a minute is the end of a run that hangs.
    pub(crate) fn output(self) -> Output {
        let mut command = self.command;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let pid = Pid::from_child(&child);
        let process =
            rustix::process::pidfd_open(pid, PidfdFlags::empty()).expect("a descriptor of the child");
        let reader = std::thread::spawn(|| child.wait_with_output());
        let mut poll = [PollFd::new(&process, PollFlags::IN)];
        let minute = Timespec { tv_sec: 60, tv_nsec: 0 };
        let ended = rustix::event::poll(&mut poll, Some(&minute)).expect("poll");
        if ended == 0 {
            let _ = rustix::process::pidfd_send_signal(&process, Signal::KILL);
            panic!("{command:?} hangs");
        }
        reader.join().expect("the reader").unwrap_or_else(|error| panic!("{command:?}: {error}"))
    }

    /// Runs it, expects success and nothing on standard error, and gives what it said.
    pub(crate) fn said(self) -> String {
        let command = format!("{:?}", self.command);
        let output = self.output();
        let stderr = String::from_utf8_lossy(&output.stderr);
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{command}: {}\n{stdout}{stderr}", output.status);
        assert_eq!(stderr, "", "{command}: standard error is the program's own");
        stdout
    }
}

/// Starts a program, and waits until it has said `last`; what it said before comes back too. It ends with its standard input.
pub(crate) fn start(command: &mut Command, last: &str) -> (Child, String) {
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let mut said = String::new();
    let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines().map_while(Result::ok);
    let found = lines.inspect(|line| said += &format!("{line}\n")).any(|line| line == last);
    assert!(found, "{command:?} never said {last}:\n{said}");
    (child, said)
}

/// The sources of the programs.
pub(crate) fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("roads")
}

/// The built library: of the artifacts that `NVSNAP_ARTIFACTS` names, or built now.
pub(crate) fn shim() -> &'static Path {
    static SHIM: OnceLock<PathBuf> = OnceLock::new();
    SHIM.get_or_init(|| {
        if let Some(dist) = std::env::var_os("NVSNAP_ARTIFACTS") {
            let file = Path::new(&dist).join("lib/libnvsnap_gpushare.so");
            return file.canonicalize().unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        }
        let deps = std::env::current_exe().expect("the test's own path");
        let folder = deps.ancestors().nth(2).expect("target/<profile>/deps/<test>");
        let mut build = Command::new(env!("CARGO"));
        build.current_dir(env!("CARGO_MANIFEST_DIR")).args(["build", "--quiet", "--locked", "-p", "shim"]);
        if folder.ends_with("release") {
            build.arg("--release");
        }
        check(&mut build);
        folder.join("libnvsnap_gpushare.so")
    })
}

/// The library for aarch64, built now, or `None` where Rust cannot: then that is said.
pub(crate) fn shim_for_aarch64() -> Option<&'static Path> {
    const TARGET: &str = "aarch64-unknown-linux-gnu";
    static SHIM: OnceLock<Option<PathBuf>> = OnceLock::new();
    let build = || {
        let libraries = check(Command::new("rustc").args(["--print", "target-libdir", "--target", TARGET]));
        if !Path::new(libraries.trim()).exists() {
            eprintln!("not run for aarch64: the Rust target {TARGET} is not installed (scripts/setup test)");
            return None;
        }
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
        let mut build = Command::new(env!("CARGO"));
        build.current_dir(&root).args(["build", "--quiet", "--locked", "--profile", "library"]);
        build.args(["-p", "shim", "--target", TARGET]);
        check(build.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", "aarch64-linux-gnu-gcc"));
        let built = target.join(TARGET).join("library/libnvsnap_gpushare.so");
        Some(built.canonicalize().unwrap_or_else(|error| panic!("{}: {error}", built.display())))
    };
    SHIM.get_or_init(build).as_deref()
}

/// Runs a command that has to succeed, and gives its standard output.
pub(crate) fn check(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{stderr}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}
