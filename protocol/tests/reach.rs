//! Names of sockets, and why a process is not reached.

use protocol::{
    Credentials, Facts, Reason, SUFFIXES, Unreachable, listening_pids, parse_socket_name, pid_depth,
    socket_name, socket_names,
};

#[test]
fn names_and_pids_belong_to_each_other() {
    assert_eq!(socket_name(123, 0), "nvsnap-gpushare.123");
    assert_eq!(socket_name(123, 2), "nvsnap-gpushare.123.2");
    let names: Vec<String> = socket_names(9).collect();
    assert_eq!(names.len(), SUFFIXES as usize);
    for (suffix, name) in (0..).zip(&names) {
        assert_eq!(parse_socket_name(name), Some((9, suffix)));
    }
}

#[test]
fn what_is_not_quite_a_name_is_somebody_elses() {
    for name in [
        "",
        "nvsnap-gpushare",
        "nvsnap-gpushare.",
        "nvsnap-gpushare.0",
        "nvsnap-gpushare.-4",
        "nvsnap-gpushare.+4",
        "nvsnap-gpushare.04",
        "nvsnap-gpushare.4.0",
        "nvsnap-gpushare.4.x",
        "nvsnap-gpushare.4.1.1",
        "nvsnap-gpushare.99999999999",
        "xnvsnap-gpushare.4",
    ] {
        assert_eq!(parse_socket_name(name), None, "{name:?}");
    }
}

#[test]
fn only_listening_sockets_of_ours_are_listed_each_pid_once() {
    let text = "\
Num       RefCount Protocol Flags    Type St Inode Path
0000000000000000: 00000002 00000000 00010000 0001 01 11 @nvsnap-gpushare.30
0000000000000000: 00000003 00000000 00000000 0001 03 12 @nvsnap-gpushare.40
0000000000000000: 00000002 00000000 00010000 0001 01 13 @nvsnap-gpushare.30.1
0000000000000000: 00000002 00000000 00010000 0001 01 14 /run/nvsnap-gpushare.50
0000000000000000: 00000003 00000000 00000000 0001 03 15
0000000000000000: 00000002 00000000 00010000 0001 01 16 @nvsnap-gpushare.7
cut short";
    assert_eq!(listening_pids(text), [7, 30]);
    assert_eq!(listening_pids(""), []);
}

#[test]
fn credentials_prove_a_process_only_with_its_very_pid() {
    let owner = Credentials { pid: 5, uid: 1000 };
    assert!(owner.proves(5));
    assert!(!owner.proves(6));
    assert!(!Credentials { pid: 0, uid: 0 }.proves(0), "pid 0 is never anybody");
    assert!(owner.is_trusted_by(1000) && owner.is_trusted_by(0));
    assert!(!owner.is_trusted_by(1001));
    assert!(Credentials { pid: 5, uid: 0 }.is_trusted_by(1001));
}

#[test]
fn the_number_of_namespaces_is_read_from_status() {
    assert_eq!(pid_depth("Name:\tx\nNSpid:\t12\nNSpgid:\t1 2 3\n"), Some(1));
    assert_eq!(pid_depth("NSpid:\t120\t12\t1\n"), Some(3));
    assert_eq!(pid_depth("NSpid:\n"), None);
    assert_eq!(pid_depth(""), None);
}

#[test]
fn each_reason_is_told_apart_and_names_the_pid() {
    let other = Credentials { pid: 77, uid: 33 };
    let alive = Facts { alive: true, ..Facts::default() };
    let cases = [
        (Facts::default(), Reason::NoProcess, "no such process"),
        (
            Facts { same_pid_namespace: Some(false), same_network: Some(false), ..alive },
            Reason::OtherPidNamespace,
            "another pid namespace",
        ),
        (
            Facts { same_network: Some(false), preloaded: Some(true), ..alive },
            Reason::OtherNetwork,
            "another network namespace",
        ),
        (Facts { preloaded: Some(false), taken_by: Some(other), ..alive }, Reason::NoShim, "LD_PRELOAD"),
        (
            Facts { preloaded: Some(true), taken_by: Some(other), ..alive },
            Reason::NameTaken(other),
            "taken by process 77 of user 33",
        ),
        (Facts { preloaded: Some(true), ..alive }, Reason::NotListening, "cuInit"),
        (alive, Reason::Silent, "as its user or as root"),
    ];
    for (facts, reason, words) in cases {
        let unreachable = Unreachable::from_facts(4711, facts);
        assert_eq!(unreachable, Unreachable { pid: 4711, reason });
        let text = unreachable.to_string();
        assert!(text.contains("process 4711") && text.contains(words), "{text}");
    }
    let hidden = Unreachable { pid: 1, reason: Reason::NameTaken(Credentials { pid: 0, uid: 0 }) };
    assert!(hidden.to_string().contains("another pid namespace"));
}
