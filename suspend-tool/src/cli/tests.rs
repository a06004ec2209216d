//! Which options go with which verb, before it and behind it.

use std::time::Duration;

use super::*;

fn parse(line: &str) -> Result<Verb, clap::Error> {
    Cli::from_args(line.split_whitespace().map(OsString::from))
}

#[test]
fn the_definition_holds_together() {
    Cli::command().debug_assert();
}

#[test]
fn options_may_stand_before_or_behind_the_verb() {
    let before = parse("x --json --timeout 2.5 suspend 5 6 --tree").unwrap();
    assert_eq!(before, parse("x suspend --tree 5 --timeout 2.5 6 --json").unwrap());
    match before {
        Verb::Suspend { processes, wait, output, .. } => {
            assert_eq!(processes.pids.iter().map(|pid| pid.number()).collect::<Vec<_>>(), [5, 6]);
            assert!(processes.tree.tree && output.json);
            assert_eq!(wait.or_usual(), Duration::from_millis(2500));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(parse("x --tree --criu check 5").unwrap(), parse("x check --criu 5 --tree").unwrap());
    assert_eq!(parse("x --gpu-map f resume 5").unwrap(), parse("x resume 5 --gpu-map f").unwrap());
}

#[test]
fn an_option_that_the_verb_does_not_have_is_wrong_usage_on_either_side() {
    for line in [
        "x --gpu-map f suspend 5",
        "x suspend 5 --gpu-map f",
        "x --timeout 3 list",
        "x list --timeout 3",
        "x --json run true",
        "x check 5 --timeout 3",
        "x --criu suspend 5",
        "x --tree list",
    ] {
        assert_eq!(parse(line).unwrap_err().exit_code(), 2, "{line}");
    }
}

#[test]
fn what_is_no_pid_and_what_is_no_time_is_wrong_usage() {
    for line in [
        "x suspend",
        "x suspend 0",
        "x suspend -- -5",
        "x suspend five",
        "x suspend 99999999999",
        "x suspend 5 --timeout 0",
        "x suspend 5 --timeout -1",
        "x suspend 5 --timeout nan",
        "x nonsense",
        "x",
    ] {
        assert_eq!(parse(line).unwrap_err().exit_code(), 2, "{line}");
    }
}

#[test]
fn what_is_run_keeps_its_own_options() {
    let expected = Verb::Run { command: ["python", "-c", "--json"].map(OsString::from).to_vec() };
    assert_eq!(parse("x run -- python -c --json").unwrap(), expected);
    assert_eq!(parse("x run python -c --json").unwrap(), expected);
}
