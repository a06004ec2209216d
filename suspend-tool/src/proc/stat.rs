//! `/proc/<pid>/stat` and `status`.

/// What a process does at the moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RunState {
    /// It runs or waits.
    Alive,
    /// It is stopped by job control.
    Stopped,
    /// Its first thread is in the hands of a tracer.
    Traced,
    /// It has ended, and nobody has asked for its status yet.
    Zombie,
}

/// The parts of `/proc/<pid>/stat` that are used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stat {
    /// The name the kernel has for it.
    pub name: String,
    /// What it does.
    pub state: RunState,
    /// Its parent; 0 where that is outside of the namespace.
    pub parent: i32,
    /// When it was started, in clock ticks since boot.
    pub start: u64,
    /// Processor time it has used, in clock ticks.
    pub ticks: u64,
}

impl Stat {
    /// Parses the file. The name is in parentheses and may hold parentheses and spaces itself.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(bytes);
        let (head, tail) = text.rsplit_once(')')?;
        let (_, name) = head.split_once('(')?;
        let mut fields = tail.split_ascii_whitespace();
        // Fields count from 1 in proc(5); the first one after the name is the third.
        let state = match fields.next()? {
            "Z" | "X" | "x" => RunState::Zombie,
            "T" => RunState::Stopped,
            "t" => RunState::Traced,
            _ => RunState::Alive,
        };
        let parent = fields.next()?.parse().ok()?;
        let user: u64 = fields.nth(9)?.parse().ok()?;
        let system: u64 = fields.next()?.parse().ok()?;
        let start = fields.nth(6)?.parse().ok()?;
        Some(Self { name: name.to_owned(), state, parent, start, ticks: user.saturating_add(system) })
    }
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
}

/// A field of a `status` that is a number.
pub(super) fn number(status: &[u8], name: &str) -> Option<i32> {
    let text = String::from_utf8_lossy(status);
    field(&text, name)?.trim().parse().ok()
}

/// The effective user in `/proc/<pid>/status`.
pub(super) fn effective_uid(status: &[u8]) -> Option<u32> {
    let text = String::from_utf8_lossy(status);
    field(&text, "Uid")?.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "4242 (py (th) on) S 4200 4242 4200 34816 4242 4194304 100 0 0 0 700 50 0 0 20 0 12 0 \
                        987654 1000000 2000 18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0\n";

    #[test]
    fn a_name_with_parentheses_and_spaces_is_taken_whole() {
        let stat = Stat::parse(STAT.as_bytes()).unwrap();
        assert_eq!(
            stat,
            Stat {
                name: "py (th) on".into(),
                state: RunState::Alive,
                parent: 4200,
                start: 987_654,
                ticks: 750
            }
        );
    }

    #[test]
    fn zombies_and_stopped_processes_are_told_apart() {
        let zombie = STAT.replace(") S ", ") Z ");
        assert_eq!(Stat::parse(zombie.as_bytes()).unwrap().state, RunState::Zombie);
        let stopped = STAT.replace(") S ", ") T ");
        assert_eq!(Stat::parse(stopped.as_bytes()).unwrap().state, RunState::Stopped);
    }

    #[test]
    fn a_cut_line_is_no_state() {
        for end in 0..STAT.find("987654").unwrap() {
            assert_eq!(Stat::parse(&STAT.as_bytes()[..end]), None, "cut at {end}");
        }
    }

    #[test]
    fn the_effective_user_is_read() {
        let status = b"Name:\tx\nNSpid:\t4242\t7\nUid:\t1000\t1001\t1000\t1000\n";
        assert_eq!(effective_uid(status), Some(1001));
        assert_eq!(effective_uid(b"Name:\tx\n"), None);
    }
}
