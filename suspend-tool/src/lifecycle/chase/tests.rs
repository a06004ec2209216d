//! Made-up threads, each a row of calls that wait for others or do not, cut at any place.

use super::*;

/// A call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Call {
    /// Work that ends by itself.
    Plain,
    /// The next collective of a group.
    All(usize),
    /// Work that ends when the thread itself has made the next call.
    Fed,
}

use Call::{All, Fed, Plain};

/// What each thread calls again and again, each collective once in a row, and how many calls it has been let make.
struct World {
    programs: Vec<Vec<Call>>,
    /// The process of each thread.
    of: Vec<usize>,
    made: Vec<usize>,
    /// Calls that are known to have ended.
    ended: Vec<usize>,
    members: Vec<Vec<usize>>,
    /// Calls that a thread can make before the first of them has ended.
    queue: usize,
}

impl World {
    fn new(programs: Vec<Vec<Call>>, of: Vec<usize>, made: Vec<usize>, queue: usize) -> Self {
        let group = |call: &Call| if let All(group) = call { *group + 1 } else { 0 };
        let groups = programs.iter().flatten().map(group).max().unwrap_or(0);
        let has = |thread: &usize, group| programs[*thread].contains(&All(group));
        let members = (0..groups)
            .map(|group| (0..programs.len()).filter(|thread| has(thread, group)).collect())
            .collect();
        Self { programs, of, ended: vec![0; made.len()], made, members, queue }
    }

    /// Where in its row a thread calls the collective of a group.
    fn offset(&self, thread: usize, group: usize) -> usize {
        self.programs[thread].iter().position(|call| *call == All(group)).unwrap()
    }

    /// How many calls of each thread have come to their end: those before the first that waits for somebody.
    fn done(&self) -> Vec<usize> {
        let mut done = self.ended.clone();
        loop {
            let before = done.clone();
            for thread in 0..done.len() {
                while done[thread] < self.made[thread] && self.may_end(thread, done[thread], &done) {
                    done[thread] += 1;
                }
            }
            if done == before {
                return done;
            }
        }
    }

    /// Whether everybody of its group has come to the same collective.
    fn may_end(&self, thread: usize, call: usize, done: &[usize]) -> bool {
        let program = &self.programs[thread];
        let group = match program[call % program.len()] {
            Plain => return true,
            Fed => return self.made[thread] > call + 1,
            All(group) => group,
        };
        let row = call / program.len();
        self.members[group].iter().all(|other| {
            let same = row * self.programs[*other].len() + self.offset(*other, group);
            // It has made the call, and all its calls before that have ended.
            self.made[*other] > same && done[*other] >= same
        })
    }

    /// Whose calls wait for somebody.
    fn ahead(&mut self) -> Vec<usize> {
        self.ended = self.done();
        (0..self.made.len()).filter(|thread| self.ended[*thread] < self.made[*thread]).collect()
    }

    fn caller(&self, thread: usize) -> Caller {
        Caller { pid: pid(self.of[thread]), tid: i32::try_from(thread).unwrap() }
    }

    /// Who waits at the gate, and which processes are busy.
    fn look(&mut self) -> (Waiting, BTreeSet<Pid>) {
        let ahead = self.ahead();
        let mut waiting = Waiting::default();
        for thread in 0..self.made.len() {
            let caller = self.caller(thread);
            if !ahead.contains(&thread) {
                waiting.free.insert(caller);
            } else if self.made[thread] - self.ended[thread] < self.queue {
                waiting.ahead.insert(caller);
            }
        }
        (waiting, ahead.into_iter().map(|thread| pid(self.of[thread])).collect())
    }
}

fn pid(process: usize) -> Pid {
    crate::topology::made_up::pid(i32::try_from(process).unwrap() + 1)
}

/// How many turns it takes until all are at rest.
fn turns(world: &mut World, seed: u64) -> usize {
    let mut chase = Chase::new(Rng::with_seed(seed));
    for turn in 0..10_000 {
        let (waiting, busy) = world.look();
        if busy.is_empty() {
            return turn;
        }
        let next = chase.next(&waiting, busy).expect("somebody has a held call");
        if let Turn::Ahead(caller) = next {
            chase.went(caller);
        }
        let (Turn::Free(next) | Turn::Ahead(next)) = next;
        world.made[usize::try_from(next.tid).unwrap()] += 1;
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

/// The turns of many cuts through these programs, each in its process, within `lead` calls; the most come last.
fn cuts(programs: &[Vec<Call>], of: &[usize], lead: usize, queue: usize) -> Vec<usize> {
    let mut turns: Vec<usize> = (0..300)
        .map(|seed| {
            let mut chance = Rng::with_seed(seed);
            let made = programs.iter().map(|_| 20 + chance.usize(0..lead.min(queue))).collect();
            turns(&mut World::new(programs.to_vec(), of.to_vec(), made, queue), seed)
        })
        .collect();
    turns.sort_unstable();
    turns
}

/// The most turns it takes where each thread has a process of its own.
fn worst(programs: &[Vec<Call>], lead: usize) -> usize {
    let of: Vec<usize> = (0..programs.len()).collect();
    cuts(programs, &of, lead, usize::MAX)[299]
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
        assert!(worst <= 100 * count, "{count} processes: {worst} turns");
    }
}

#[test]
fn processes_that_wait_for_themselves_and_for_each_other_come_to_rest() {
    let programs = vec![vec![Plain, Fed, Plain, All(0), Plain]; 3];
    let worst = worst(&programs, 20);
    assert!(worst <= 400, "{worst} turns");
}

/// Threads of several groups in each process, as a server has that runs two communicators, or a collective beside other work.
#[test]
fn groups_that_share_their_processes_come_to_rest_together() {
    // A message handed round in two steps, or one collective; and what the process does besides.
    let ring = |first: usize| vec![Plain, Plain, All(first), Plain, Plain, All(first + 1), Plain];
    let reduce = |group: usize| vec![Plain, All(group), Plain];
    let cases: [(&str, Vec<Call>, Vec<Call>); 3] = [
        ("two rings", ring(0), ring(2)),
        ("two collectives", reduce(0), reduce(1)),
        ("a ring and a collective", ring(0), reduce(2)),
    ];
    for (what, first, second) in cases {
        for count in [2, 3, 4] {
            for queue in [6, 1024] {
                let programs = [vec![first.clone(); count], vec![second.clone(); count]].concat();
                let of: Vec<usize> = (0..count).chain(0..count).collect();
                let turns = cuts(&programs, &of, 12, queue);
                assert!(turns[299] <= 150, "{what} of {count}, queue of {queue}: {turns:?}");
            }
        }
    }
    for queue in [6, 1024] {
        let programs = [vec![ring(0); 3], vec![vec![Fed, Plain]], vec![vec![Plain; 7]]].concat();
        let turns = cuts(&programs, &[0, 1, 2, 1, 2], 12, queue);
        assert!(turns[299] <= 150, "a ring and others, queue of {queue}: {turns:?}");
    }
}

fn caller(process: usize) -> Caller {
    Caller { pid: pid(process), tid: 1 }
}

fn waiting(free: &[usize], ahead: &[usize]) -> Waiting {
    let callers = |of: &[usize]| of.iter().map(|process| caller(*process)).collect();
    Waiting { free: callers(free), ahead: callers(ahead) }
}

#[test]
fn a_thread_that_waits_for_itself_goes_on_although_another_is_always_free() {
    let mut chase = Chase::new(Rng::with_seed(1));
    let mut own = 0;
    for _ in 0..500 {
        if chase.next(&waiting(&[1], &[0]), BTreeSet::from([pid(0)])) == Some(Turn::Ahead(caller(0))) {
            chase.went(caller(0));
            own += 1;
        }
    }
    assert!((3..=30).contains(&own), "{own} turns of its own");
}

#[test]
fn who_came_to_rest_by_its_own_call_comes_first_as_long_as_that_helps() {
    let mut chase = Chase::new(Rng::with_seed(1));
    let busy = || BTreeSet::from([pid(0)]);
    while chase.next(&waiting(&[1], &[0]), busy()) != Some(Turn::Ahead(caller(0))) {}
    chase.went(caller(0));
    // It came to rest.
    assert_ne!(chase.next(&waiting(&[0, 1], &[]), BTreeSet::new()), None);
    for _ in 0..20 {
        assert_eq!(chase.next(&waiting(&[1], &[0]), busy()), Some(Turn::Ahead(caller(0))));
    }
    chase.went(caller(0));
    let own = (0..40).filter(|_| chase.next(&waiting(&[1], &[0]), busy()) == Some(Turn::Ahead(caller(0))));
    assert!(own.count() < 10, "it comes first although it does not come to rest");
}

#[test]
fn who_has_waited_longest_is_let_go_on_first() {
    let mut chase = Chase::new(Rng::with_seed(2));
    let mut next = |free: &[usize], ahead: &[usize]| {
        let busy: BTreeSet<Pid> = ahead.iter().map(|process| pid(*process)).collect();
        // Who is ahead has a turn now and then.
        loop {
            if let Some(Turn::Free(caller)) = chase.next(&waiting(free, ahead), busy.clone()) {
                return caller;
            }
        }
    };
    // 2 waits for 3; 0 and 1 come to need each other by being let go on.
    assert_eq!(next(&[0, 1, 3], &[2]), caller(0));
    assert_eq!(next(&[1, 3], &[0, 2]), caller(1));
    assert_eq!(next(&[0, 1, 3], &[2]), caller(3));
}
