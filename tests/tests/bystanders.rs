//! Processes that inherit the preload and never use CUDA: shells, tools, compilers. They run as without it.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails, and says where")]

mod lab;

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use lab::Lab;

#[test]
fn a_process_that_never_uses_cuda_has_nothing_of_ours() {
    let lab = Lab::new();
    let program = lab.program("idle", "idle.c", &[]);
    assert_eq!(lab.run(&program).said(), lab.bare(&program).said());
}

#[test]
fn everyday_programs_run_as_without_it_and_say_nothing_more() {
    let lab = Lab::new();
    let commands: &[&[&str]] = &[
        &["/bin/true"],
        &["bash", "-c", "echo $((6 * 7)); for i in 1 2 3; do /bin/true; done; echo done | cat"],
        &["bash", "-c", "echo $LD_PRELOAD | tr -d '\\n' | wc -w; env | grep -c ^LD_PRELOAD || true"],
        &["git", "--version"],
        &["python3", "-c", "import ctypes, sys; print(ctypes.CDLL(None).strlen(b'four'))"],
        &["cc", "--version"],
        &["ls", "/proc/self/fd"],
    ];
    for command in commands {
        let (program, args) = command.split_first().unwrap();
        let without = lab.bare(program).args(args).output();
        let with = lab.run(program).args(args).output();
        if args.iter().any(|arg| arg.contains("LD_PRELOAD")) {
            assert_eq!(
                String::from_utf8_lossy(&with.stdout),
                "1\n1\n",
                "a child inherits the preload, unedited"
            );
        } else {
            assert_eq!(with.stdout, without.stdout, "{command:?}");
        }
        assert_eq!(with.status, without.status, "{command:?}");
        assert_eq!(
            String::from_utf8_lossy(&with.stderr),
            String::from_utf8_lossy(&without.stderr),
            "{command:?}"
        );
    }
}

#[test]
fn with_standard_error_closed_nothing_goes_wrong() {
    let lab = Lab::new();
    let driver = lab.driver("driver", &[]);
    lab.program("ask", "ask.c", &[]);
    let script = format!("exec 2>&-; exec {} open libcuda.so.1 sym cuInit init", lab.path("ask").display());
    let run = lab.run("bash").driver(&driver).env("NVSNAP_GPUSHARE_LOG", "stderr").args(&["-c", &script]);
    assert!(run.said().ends_with("init 0\n"));
}

#[test]
fn static_and_privileged_programs_are_not_touched() {
    let lab = Lab::new();
    let program = lab.path("static");
    lab::check(
        Command::new("cc")
            .args(["-static", "-x", "c", "-o"])
            .arg(&program)
            .arg(lab::sources().join("true.c")),
    );
    assert_eq!(lab.run(&program).said(), "");

    let id = lab.path("id");
    std::fs::copy("/usr/bin/id", &id).unwrap();
    std::fs::set_permissions(&id, std::fs::Permissions::from_mode(0o4755)).unwrap();
    std::fs::set_permissions(lab.path(""), std::fs::Permissions::from_mode(0o755)).unwrap();
    // As another user the copy is really privileged.
    let nobody = 65534;
    let as_nobody = |preload: Option<&Path>| {
        let mut command = Command::new(&id);
        command.stdin(Stdio::null()).arg("-u");
        preload.map(|shim| command.env("LD_PRELOAD", shim));
        // SAFETY: no preconditions.
        if unsafe { libc::geteuid() } == 0 {
            command.uid(nobody);
        }
        command.output().unwrap()
    };
    let (without, with) = (as_nobody(None), as_nobody(Some(&lab.shim())));
    assert_eq!(with.status, without.status);
    assert_eq!(with.stdout, without.stdout);
    assert_eq!(String::from_utf8_lossy(&with.stderr), String::from_utf8_lossy(&without.stderr));
}

#[test]
fn it_loads_where_nothing_is_installed_but_the_c_library() {
    let lab = Lab::new();
    let root = lab.path("root");
    let put = |from: &Path, to: &Path| {
        let to = root.join(to.strip_prefix("/").unwrap());
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::copy(from, to).unwrap();
    };
    let program = lab.program("true", "true.c", &[]);
    put(&program, Path::new("/true"));
    put(&lab.shim(), Path::new("/shim.so"));
    for library in mapped(&["libc.so", "ld-linux"]) {
        put(&library, &library);
    }
    // The loader's path is written into every program.
    let loader = PathBuf::from(if cfg!(target_arch = "x86_64") {
        "/lib64/ld-linux-x86-64.so.2"
    } else {
        "/lib/ld-linux-aarch64.so.1"
    });
    put(&loader, &loader);
    let mut command = Command::new("/true");
    command.env_clear().env("LD_PRELOAD", "/shim.so").stdin(Stdio::null());
    let new_root = CString::new(root.as_os_str().as_bytes()).unwrap();
    let enter = move || {
        // Without privileges a user namespace of one's own allows it, where the system allows those.
        // SAFETY: a system call with plain arguments, in a child that has one thread.
        if unsafe { libc::geteuid() } != 0 && unsafe { libc::unshare(libc::CLONE_NEWUSER) } != 0 {
            return Err(std::io::Error::last_os_error());
        }
        // SAFETY: a C string.
        if unsafe { libc::chroot(new_root.as_ptr()) } != 0 {
            return Err(std::io::Error::last_os_error());
        }
        // SAFETY: a C string.
        if unsafe { libc::chdir(c"/".as_ptr()) } != 0 {
            return Err(std::io::Error::last_os_error());
        }
        Ok(())
    };
    // SAFETY: only system calls.
    unsafe { command.pre_exec(enter) };
    let output = match command.output() {
        Ok(output) => output,
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
            println!("not run: this system lets nobody but root change the root ({error})");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    assert!(output.status.success(), "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
}

/// The files of these names that this process has mapped.
fn mapped(names: &[&str]) -> Vec<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let mut files: Vec<PathBuf> = maps
        .lines()
        .filter_map(|line| line.find('/').map(|at| PathBuf::from(&line[at..])))
        .filter(|file| {
            file.file_name()
                .is_some_and(|name| names.iter().any(|wanted| name.to_string_lossy().starts_with(wanted)))
        })
        .collect();
    files.dedup();
    files
}

#[test]
fn starting_a_program_costs_less_than_a_millisecond_more() {
    const RUNS: usize = 300;
    let shim = lab::shim();
    let once = |preload: bool| {
        let mut command = Command::new("/bin/true");
        command.env_remove("LD_PRELOAD");
        if preload {
            command.env("LD_PRELOAD", shim);
        }
        let begin = Instant::now();
        assert!(command.status().unwrap().success());
        begin.elapsed()
    };
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        without.push(once(false));
        with.push(once(true));
    }
    // The quicker half: what else runs on the machine is in the other.
    let quick = |times: &mut Vec<Duration>| {
        times.sort_unstable();
        times[..RUNS / 2].iter().sum::<Duration>() / u32::try_from(RUNS / 2).expect("a few runs")
    };
    let (without, with) = (quick(&mut without), quick(&mut with));
    println!("a program that does nothing: {without:?} without, {with:?} with the library");
    assert!(with.saturating_sub(without) < Duration::from_millis(1), "{without:?} without, {with:?} with");
}

#[test]
fn loading_it_makes_no_thread_no_socket_and_no_file() {
    if Command::new("strace").arg("-V").output().is_err() {
        println!("not run: strace is not installed");
        return;
    }
    let lab = Lab::new();
    let trace = |preload: Option<&Path>| {
        let file = lab.path("trace");
        let mut command = Command::new("strace");
        command.args(["-f", "-qq", "-o"]).arg(&file);
        preload.map(|shim| command.arg("-E").arg(format!("LD_PRELOAD={}", shim.display())));
        lab::check(command.arg("/bin/true"));
        let text = std::fs::read_to_string(file).unwrap();
        // "PID call(arguments) = result"
        text.lines()
            .filter_map(|line| line.split_once(' ').map(|(_, call)| call.trim_start().to_owned()))
            .filter(|call| call.contains('('))
            .collect::<Vec<String>>()
    };
    let with = trace(Some(lab::shim()));
    let name = |call: &String| call.split('(').next().unwrap_or_default().to_owned();
    let forbidden =
        ["socket", "connect", "bind", "clone", "clone3", "fork", "vfork", "write", "ioctl", "memfd_create"];
    let found: Vec<_> = with.iter().filter(|call| forbidden.contains(&name(call).as_str())).collect();
    assert!(found.is_empty(), "{found:?}");
    let opened = |calls: &[String]| {
        calls.iter().filter(|call| name(call) == "openat" && !call.contains("ENOENT")).count()
    };
    assert_eq!(opened(&with), opened(&trace(None)) + 1, "it opens itself: {with:#?}");
}
