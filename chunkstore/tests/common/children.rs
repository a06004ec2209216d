//! Processes that a test starts, listens to and kills.

use std::io::{BufRead, BufReader, Lines};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

/// The test that is the child's whole program. Each test program that uses children has one of this name.
const PROGRAM: &str = "a_child_plays_its_role";

/// What a child shall do.
#[derive(Clone, Copy, Debug)]
pub struct Role<'a> {
    pub name: &'a str,
    pub dir: &'a Path,
    pub seed: u64,
    /// Faults in the child's file system.
    pub faults: &'a str,
    pub setting: Setting<'a>,
}

/// Where a child lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Setting<'a> {
    /// Where the test does.
    Plain,
    /// In a pid namespace of its own, where that is allowed: then all children have equal pids. The first process of a
    /// namespace, which the child then is, cannot kill itself.
    EqualPids,
    /// With something mounted over its directory that only it sees, by `mount` with these arguments.
    Mounted(&'a str),
}

#[derive(Debug)]
pub struct Process {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    /// What it has said that it did.
    pub told: Told,
}

/// How often somebody did something, and with how many things.
#[derive(Clone, Copy, Default, Debug)]
pub struct Told {
    pub steps: u64,
    pub things: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    Good,
    Killed,
}

impl Role<'_> {
    /// Starts a child.
    pub fn start(&self) -> Process {
        let program = std::env::current_exe().unwrap();
        let mut command = match self.setting {
            Setting::EqualPids if may_unshare("--pid") => {
                let mut command = Command::new("unshare");
                command.args(["--pid", "--fork", "--kill-child"]).arg(program);
                command
            }
            Setting::Mounted(what) => {
                let mut command = Command::new("unshare");
                let script =
                    format!("cd \"$CHUNKS_DIR/..\" && mount {what} \"$CHUNKS_DIR\" && exec \"$0\" \"$@\"");
                command.args(["--mount", "sh", "-c", &script]).arg(program);
                command
            }
            _ => Command::new(program),
        };
        command.args([PROGRAM, "--exact", "--nocapture", "--test-threads=1"]);
        command.env("CHUNKS_ROLE", self.name).env("CHUNKS_DIR", self.dir);
        command.env("CHUNKS_SEED", self.seed.to_string()).env("CHUNKS_FAULTS", self.faults);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Process { child, lines, told: Told::default() }
    }
}

/// Whether this user may have namespaces of this kind.
pub fn may_unshare(kind: &str) -> bool {
    let tried = Command::new("unshare").args([kind, "--fork", "true"]).stderr(Stdio::null()).status();
    tried.is_ok_and(|status| status.success())
}

impl Process {
    /// Waits until the child has said `count` times more that it did something. False where it ended before.
    pub fn wait_for_steps(&mut self, count: u64) -> bool {
        let wanted = self.told.steps + count;
        while self.told.steps < wanted {
            let Some(line) = self.lines.next() else { return false };
            self.hear(&line.unwrap());
        }
        true
    }

    fn hear(&mut self, line: &str) {
        if let Some(things) = line.strip_prefix("step ") {
            self.told.steps += 1;
            self.told.things += things.parse::<u64>().unwrap();
        }
    }

    /// All that it still says, until its output is gone.
    fn hear_out(&mut self) -> Vec<String> {
        let rest: Vec<_> = self.lines.by_ref().map_while(Result::ok).collect();
        rest.iter().for_each(|line| self.hear(line));
        rest
    }

    /// Kills the child, if it is still there.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        // With a namespace in between, the child itself is gone only when its output is.
        self.hear_out();
    }

    /// Waits for the end, which must be a good one or a kill.
    pub fn end(&mut self) -> End {
        let output = self.hear_out();
        let status = self.child.wait().unwrap();
        if status.success() {
            return End::Good;
        }
        // `unshare` gives a signal on as a shell does, or kills itself with it.
        let killed = status.signal() == Some(9) || status.code() == Some(128 + 9);
        assert!(killed, "a child failed ({status}):\n{}", output.join("\n"));
        End::Killed
    }
}

/// In a child: its role, directory, seed and faults.
pub fn role() -> Option<(String, std::path::PathBuf, u64, String)> {
    let name = std::env::var("CHUNKS_ROLE").ok()?;
    let dir = std::env::var_os("CHUNKS_DIR").unwrap().into();
    let seed = std::env::var("CHUNKS_SEED").unwrap().parse().unwrap();
    Some((name, dir, seed, std::env::var("CHUNKS_FAULTS").unwrap()))
}

/// In a child: says that it did something, with so many things.
pub fn step(things: u64) {
    println!("step {things}");
}

/// Numbers by lot, the same for each seed.
#[derive(Debug)]
pub struct Lot(u64);

impl Lot {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) % bound
    }
}
