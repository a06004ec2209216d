//! The transition table against the drawing above it, pair by pair.

use protocol::{Phase, VerbKind};

/// One row per phase, one column per verb, in the order of `Phase::ALL` and `VerbKind::ALL`; `-` is "not allowed",
/// else the first letters of the phase it leads to.
const TABLE: &str = "
            inspect quiesce step release stage load remap reopen export
  running   run     qd      -    -       -     -    -     run    run
  quiescing qg      qd      qg   -       -     -    -     run    qg
  quiesced  qd      qd      qg   rel     -     -    -     run    qd
  released  rel     -       -    rel     rel   load -     -      -
  loaded    load    -       -    -       -     load rem   -      load
  remapped  rem     -       -    -       -     -    rem   run    rem
";

fn phase_by_short_name(name: &str) -> Option<Phase> {
    Some(match name {
        "run" => Phase::Running,
        "qg" => Phase::Quiescing,
        "qd" => Phase::Quiesced,
        "rel" => Phase::Released,
        "load" => Phase::Loaded,
        "rem" => Phase::Remapped,
        "-" => return None,
        other => panic!("no phase is called {other}"),
    })
}

#[test]
fn every_pair_of_phase_and_verb_leads_where_the_table_says() {
    let mut lines = TABLE.lines().filter(|line| !line.trim().is_empty());
    let columns: Vec<&str> = lines.next().expect("a head line").split_whitespace().collect();
    assert_eq!(columns, VerbKind::ALL.map(VerbKind::name), "one column per verb");

    let mut pairs = 0;
    for (phase, line) in Phase::ALL.into_iter().zip(lines) {
        let mut cells = line.split_whitespace();
        assert_eq!(cells.next(), Some(phase.name()), "one row per phase");
        for verb in VerbKind::ALL {
            let expected = phase_by_short_name(cells.next().expect("a cell per verb"));
            assert_eq!(phase.after(verb), expected, "{} in {}", verb.name(), phase.name());
            pairs += 1;
        }
        assert_eq!(cells.next(), None);
    }
    assert_eq!(pairs, Phase::ALL.len() * VerbKind::ALL.len());
}

#[test]
fn a_verb_is_allowed_again_in_the_phase_it_leads_to() {
    for phase in Phase::ALL {
        for verb in VerbKind::ALL {
            if let Some(next) = phase.after(verb) {
                assert_eq!(next.after(verb), Some(next), "{} twice from {}", verb.name(), phase.name());
            }
        }
    }
}

#[test]
fn the_verbs_of_a_cycle_lead_from_running_to_running() {
    use VerbKind as V;
    let cycle = [V::Quiesce, V::Release, V::Stage, V::Load, V::Remap, V::Reopen];
    let end = cycle.into_iter().try_fold(Phase::Running, Phase::after);
    assert_eq!(end, Some(Phase::Running));
}

#[test]
fn only_verbs_that_change_something_change_the_phase() {
    for phase in Phase::ALL {
        for verb in VerbKind::ALL.into_iter().filter(|verb| !verb.changes()) {
            assert!(phase.after(verb).is_none_or(|next| next == phase));
        }
    }
}

#[test]
fn numbers_on_the_wire_are_the_verbs_own() {
    for verb in VerbKind::ALL {
        assert_eq!(VerbKind::from_wire(verb as u8), Some(verb));
    }
    let known: Vec<u8> = (0..=u8::MAX).filter(|number| VerbKind::from_wire(*number).is_some()).collect();
    assert_eq!(known, (1..=9).collect::<Vec<u8>>());
}
