//! Made-up processes, each a row of calls that wait for others or do not, cut at any place.

use super::*;

/// A call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Call {
    /// Work that ends by itself.
    Plain,
    /// The next collective of a group.
    All(usize),
    /// Work that ends when the process itself has made the next call.
    Fed,
}

use Call::{All, Fed, Plain};

/// What each process calls again and again, each collective once in a row, and how many calls it has been let make.
struct World {
    programs: Vec<Vec<Call>>,
    made: Vec<usize>,
    /// Calls that are known to have ended.
    ended: Vec<usize>,
    members: Vec<Vec<usize>>,
}

impl World {
    fn new(programs: Vec<Vec<Call>>, made: Vec<usize>) -> Self {
        let group = |call: &Call| if let All(group) = call { *group + 1 } else { 0 };
        let groups = programs.iter().flatten().map(group).max().unwrap_or(0);
        let has = |process: &usize, group| programs[*process].contains(&All(group));
        let members = (0..groups)
            .map(|group| (0..programs.len()).filter(|process| has(process, group)).collect())
            .collect();
        Self { programs, ended: vec![0; made.len()], made, members }
    }

    /// Where in its row a process calls the collective of a group.
    fn offset(&self, process: usize, group: usize) -> usize {
        self.programs[process].iter().position(|call| *call == All(group)).unwrap()
    }

    /// How many calls of each process have come to their end: those before the first that waits for somebody.
    fn done(&self) -> Vec<usize> {
        let mut done = self.ended.clone();
        loop {
            let before = done.clone();
            for process in 0..done.len() {
                while done[process] < self.made[process] && self.may_end(process, done[process], &done) {
                    done[process] += 1;
                }
            }
            if done == before {
                return done;
            }
        }
    }

    /// Whether everybody of its group has come to the same collective.
    fn may_end(&self, process: usize, call: usize, done: &[usize]) -> bool {
        let program = &self.programs[process];
        let group = match program[call % program.len()] {
            Plain => return true,
            Fed => return self.made[process] > call + 1,
            All(group) => group,
        };
        let row = call / program.len();
        self.members[group].iter().all(|other| {
            let same = row * self.programs[*other].len() + self.offset(*other, group);
            // It has made the call, and all its calls before that have ended.
            self.made[*other] > same && done[*other] >= same
        })
    }

    fn busy(&mut self) -> BTreeSet<Pid> {
        let done = self.done();
        self.ended.clone_from(&done);
        (0..done.len()).filter(|process| done[*process] < self.made[*process]).map(pid).collect()
    }
}

fn pid(process: usize) -> Pid {
    crate::topology::made_up::pid(i32::try_from(process).unwrap() + 1)
}

/// How many turns it takes until all are at rest.
fn turns(world: &mut World) -> usize {
    let held: Vec<Pid> = (0..world.made.len()).map(pid).collect();
    let mut chase = Chase::default();
    for turn in 0..10_000 {
        let busy = world.busy();
        if busy.is_empty() {
            return turn;
        }
        let next = chase.next(&held, busy).expect("somebody has a held call");
        if let Turn::Busy(pid) = next {
            chase.went(pid);
        }
        let (Turn::Idle(next) | Turn::Busy(next)) = next;
        world.made[held.iter().position(|pid| *pid == next).unwrap()] += 1;
    }
    panic!("no end: {:?} of {:?}", world.made, world.programs);
}

/// A program with one collective of each group somewhere among its calls.
fn program(groups: &[usize], length: usize) -> Vec<Call> {
    let mut program = vec![Plain; length];
    for (number, group) in groups.iter().enumerate() {
        program[(number + 1) * length / (groups.len() + 1)] = All(*group);
    }
    program
}

/// Numbers that look like chance and are the same each time.
fn numbers(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed * 2 + 1;
    move |below| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % below
    }
}

/// All places at which these programs can be cut within `lead` calls, many of them.
fn worst(programs: &[Vec<Call>], lead: usize) -> usize {
    let cuts = (0..100).map(|seed| {
        let mut number = numbers(seed);
        let made = programs.iter().map(|_| 20 + number(lead)).collect();
        turns(&mut World::new(programs.to_vec(), made))
    });
    cuts.max().unwrap()
}

#[test]
fn a_collective_of_all_ends_after_what_the_last_has_to_catch_up() {
    for count in [2, 4, 8] {
        let programs = vec![program(&[0], 4); count];
        let worst = worst(&programs, 40);
        assert!(worst <= 44 * count, "{count} processes: {worst} turns");
    }
}

#[test]
fn groups_that_have_nothing_to_do_with_each_other_come_to_rest_together() {
    let programs: Vec<_> = [0, 0, 1, 1, 2, 2].into_iter().map(|group| program(&[group], 5)).collect();
    let worst = worst(&programs, 12);
    assert!(worst <= 300, "{worst} turns");
}

#[test]
fn groups_across_each_other_come_to_rest() {
    // Two by two in rows, two by two in columns.
    let programs = [[0, 2], [0, 3], [1, 2], [1, 3]].map(|groups| program(&groups, 9));
    let worst = worst(&programs, 20);
    assert!(worst <= 400, "{worst} turns");
}

#[test]
fn processes_that_wait_for_themselves_come_to_rest_together() {
    for count in [1, 2, 4] {
        let programs = vec![vec![Fed, Plain]; count];
        let worst = worst(&programs, 8);
        assert!(worst <= 60 * count, "{count} processes: {worst} turns");
    }
}

#[test]
fn processes_that_wait_for_themselves_and_for_each_other_come_to_rest() {
    let programs = vec![vec![Plain, Fed, Plain, All(0), Plain]; 3];
    let worst = worst(&programs, 20);
    assert!(worst <= 400, "{worst} turns");
}

#[test]
fn a_process_that_waits_for_itself_goes_on_although_another_is_always_idle() {
    let held = [pid(0), pid(1)];
    let mut chase = Chase::default();
    let mut own = 0;
    for _ in 0..200 {
        if chase.next(&held, BTreeSet::from([pid(0)])) == Some(Turn::Busy(pid(0))) {
            chase.went(pid(0));
            own += 1;
        }
    }
    assert!((3..=10).contains(&own), "{own} turns of its own");
}

#[test]
fn who_has_waited_longest_is_let_go_on_first() {
    let held = [pid(0), pid(1), pid(2), pid(3)];
    let mut chase = Chase::default();
    // 2 waits for 3; 0 and 1 come to need each other by being let go on.
    assert_eq!(chase.next(&held, BTreeSet::from([pid(2)])), Some(Turn::Idle(pid(0))));
    assert_eq!(chase.next(&held, BTreeSet::from([pid(0), pid(2)])), Some(Turn::Idle(pid(1))));
    assert_eq!(chase.next(&held, BTreeSet::from([pid(2)])), Some(Turn::Idle(pid(3))));
}
