//! Every function of the list, whatever its family: the driver decides what null and zero are worth, and a driver that
//! lacks a function looks like one that lacks it.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails, and says where")]

mod lab;

use lab::Lab;

macro_rules! names {
    ($($class:ident $family:ident fn $name:ident($($arg:ident: $ty:ty),*) $(on $stream:ident $(.$field:ident)?)?;)+) => {
        /// Name and family of every call.
        const LISTED: &[(&str, &str)] = &[$((stringify!($name), stringify!($family))),+];
    };
}

cuda_sys::for_each_call!(names);

/// Runs `every` against a driver that has all functions, or none.
fn run(mode: &str, with_functions: bool) -> String {
    let lab = Lab::new();
    let quoted: Vec<String> = LISTED.iter().map(|(name, _)| format!("\"{name}\"")).collect();
    let each: Vec<String> = LISTED.iter().map(|(name, _)| format!("X({name})")).collect();
    let header = format!(
        "__attribute__((unused)) static const char *const names[] = {{{}}};\n#define NAMES(X) {}\n",
        quoted.join(", "),
        each.join(" ")
    );
    std::fs::write(lab.path("names.h"), header).unwrap();
    let include = format!("-I{}", lab.path("").display());
    let program = lab.program("every", "every.c", &[&include]);
    let folder = lab.path("driver");
    std::fs::create_dir_all(&folder).unwrap();
    let source = if with_functions { "refusing.c" } else { "nothing.c" };
    let driver = lab.library("libcuda.so.1", source, &[&include, "-Wl,-Bsymbolic"]);
    std::fs::rename(driver, folder.join("libcuda.so.1")).unwrap();
    lab.run(&program).driver(&folder).args(&[mode, lab.shim().to_str().unwrap()]).said()
}

/// Reads "wrong N" and "reached N".
fn outcome(said: &str) -> (u32, u32) {
    let number =
        |word| said.lines().find_map(|line| line.strip_prefix(word)).map(|number| number.parse().unwrap());
    (number("wrong ").expect("wrong N"), number("reached ").expect("reached N"))
}

/// The calls that go to the driver whatever their arguments are.
fn always_reaching() -> u32 {
    let reaching =
        LISTED.iter().filter(|(_, family)| ["gate", "sync", "context", "capture", "entry"].contains(family));
    u32::try_from(reaching.count()).unwrap()
}

#[test]
fn all_arguments_zero_is_the_drivers_to_judge() {
    let said = run("zero", true);
    let (wrong, reached) = outcome(&said);
    assert_eq!(wrong, 0, "{said}");
    assert!(reached >= always_reaching(), "{said}");
}

#[test]
fn any_single_argument_zero_is_the_drivers_to_judge() {
    let said = run("one", true);
    let (wrong, reached) = outcome(&said);
    assert_eq!(wrong, 0, "{said}");
    assert!(reached >= 16 * always_reaching(), "{said}");
}

#[test]
fn a_function_the_driver_lacks_is_missing_and_answers_so_when_called_all_the_same() {
    let said = run("lacking", false);
    assert_eq!(outcome(&said).0, 0, "{said}");
}
