//! What the gate asks of each call, and the bits it is written in.
//!
//! The **word** is one for the process: which kinds of call are held, and how a thread has to look at it. The
//! **count** is one per thread: how many calls of each kind it is inside of.

use crate::calls::CallId;
use cuda_sys::Class;

/// Word: launches, and the begin of a capture, are held.
pub(super) const LAUNCHES_HELD: u32 = 1;
/// Word: what touches memory or objects is held.
pub(super) const OBJECTS_HELD: u32 = 1 << 1;
/// Word: questions about work and objects are held.
pub(super) const ANSWERS_HELD: u32 = 1 << 2;
/// Word: a thread orders its count before its look at the word by itself, since no one can do it from outside.
pub(super) const FENCED: u32 = 1 << 3;
/// Word: the machine was asked whether threads can be ordered from outside.
pub(super) const PROBED: u32 = 1 << 4;
/// Word: who waits with a question may be answered without the driver.
pub(super) const ANSWERED: u32 = 1 << 5;
/// Word: everything is held.
pub(super) const ALL_HELD: u32 = LAUNCHES_HELD | OBJECTS_HELD | ANSWERS_HELD;

/// Count: one call that launches.
pub(super) const LAUNCH: u32 = 1;
/// Count: one call that touches memory or objects.
pub(super) const OBJECT: u32 = 1 << 10;
/// Count: one call that asks.
pub(super) const ANSWER: u32 = 1 << 20;
const FIELD: u32 = (1 << 10) - 1;

/// How many calls that launch a count stands for.
pub(super) const fn launches(count: u32) -> u32 {
    count & FIELD
}

/// How many calls that touch memory or objects a count stands for.
pub(super) const fn objects(count: u32) -> u32 {
    (count / OBJECT) & FIELD
}

/// How many calls that ask a count stands for.
pub(super) const fn answers(count: u32) -> u32 {
    (count / ANSWER) & FIELD
}

/// What the gate asks of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Rule {
    /// The call waits while the word has one of these bits.
    pub(super) held_by: u32,
    /// What a thread inside the call adds to its count.
    pub(super) counts: u32,
}

impl Rule {
    const fn new(call: CallId) -> Self {
        match call.class() {
            Class::Launch => Self { held_by: LAUNCHES_HELD, counts: LAUNCH },
            // Held with the launches, and counted with them: once no launch is under way and no capture is
            // recorded, none begins.
            _ if call.begins_capture() => Self { held_by: LAUNCHES_HELD | OBJECTS_HELD, counts: LAUNCH },
            Class::Memory | Class::Object => Self { held_by: OBJECTS_HELD, counts: OBJECT },
            Class::Completion | Class::Information => Self { held_by: ANSWERS_HELD, counts: ANSWER },
            Class::Pass => Self { held_by: 0, counts: ANSWER },
        }
    }

    /// The rule for `call`; a constant where `call` is one.
    #[inline(always)]
    pub(super) const fn of(call: CallId) -> Self {
        #[allow(clippy::indexing_slicing, reason = "the table has an entry for every value of the type")]
        RULES[call.index()]
    }

    /// Whether a word holds the call.
    #[inline(always)]
    pub(super) const fn is_held(self, word: u32) -> bool {
        word & self.held_by != 0
    }
}

static RULES: [Rule; CallId::COUNT] = {
    let mut rules = [Rule { held_by: 0, counts: 0 }; CallId::COUNT];
    let mut at = 0;
    while at < CallId::COUNT {
        #[allow(clippy::indexing_slicing, reason = "the loop ends at the length, and a slip fails the build")]
        {
            rules[at] = Rule::new(CallId::ALL[at]);
        }
        at += 1;
    }
    rules
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_class_is_held_by_its_own_bit_and_counted_in_its_own_field() {
        let launch = Rule::of(CallId::cuGraphLaunch);
        let copy = Rule::of(CallId::cuMemcpyHtoDAsync_v2);
        let object = Rule::of(CallId::cuMemMap);
        let query = Rule::of(CallId::cuEventQuery);
        let question = Rule::of(CallId::cuMemGetInfo_v2);
        assert_eq!(launch, Rule { held_by: LAUNCHES_HELD, counts: LAUNCH });
        assert_eq!(copy, Rule { held_by: OBJECTS_HELD, counts: OBJECT });
        assert_eq!(object, copy);
        assert_eq!(query, Rule { held_by: ANSWERS_HELD, counts: ANSWER });
        assert_eq!(question, query);
        assert_eq!(Rule::of(CallId::cuGetProcAddress), Rule { held_by: 0, counts: ANSWER });
    }

    #[test]
    fn the_begin_of_a_capture_waits_with_the_launches_and_counts_as_one() {
        for call in CallId::ALL.iter().filter(|call| call.begins_capture()) {
            let rule = Rule::of(*call);
            assert!(rule.is_held(LAUNCHES_HELD) && rule.is_held(OBJECTS_HELD), "{call}");
            assert_eq!(rule.counts, LAUNCH, "{call}");
        }
    }

    #[test]
    fn counts_of_different_kinds_do_not_run_into_each_other() {
        let count = 3 * LAUNCH + 1023 * OBJECT + 7 * ANSWER;
        assert_eq!((launches(count), objects(count), answers(count)), (3, 1023, 7));
    }
}
