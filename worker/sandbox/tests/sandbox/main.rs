//! The sandbox, tried by programs that attack it. This binary is the worker, the sandboxed process and the attacker.
//!
//! A test that needs a means which this machine lacks is reported as ignored, with the reason.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(unsafe_code, reason = "attackers make system calls by their numbers")]
#![expect(clippy::print_stdout, reason = "attackers report to the test, and skipped tests to the reader")]

mod cgroups;
mod cleanup;
mod devices;
mod freezing;
mod jails;
mod kernel_files;
mod machine;
mod probing;
mod programs;
mod signals;
mod system_calls;
mod users;

use std::ffi::OsString;
use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};
use nightshift_sandbox::process::child_main;

/// A test with its name, and the reason why this machine cannot run it.
pub(crate) struct Test {
    pub(crate) name: &'static str,
    pub(crate) lacks: fn() -> Option<String>,
    pub(crate) run: fn(),
}

/// Lists tests as `[NAME, what the machine lacks, ...]` with the names of their functions.
macro_rules! tests {
    ($($lacks:expr => $name:ident),* $(,)?) => {
        vec![$(crate::Test { name: stringify!($name), lacks: $lacks, run: $name }),*]
    };
}
pub(crate) use tests;

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().collect();
    if let Some(status) = child_main(&args, &programs::HOSTED) {
        std::process::exit(status);
    }
    if let Some(status) = machine::helper_main(&args) {
        return status;
    }
    let arguments = Arguments::from_args();
    let tests = all();
    let trials = tests.into_iter().map(|test| {
        let lacks = (test.lacks)();
        if let Some(reason) = &lacks {
            println!("skipped: {}: {reason}", test.name);
        }
        let run = test.run;
        Trial::test(test.name, move || {
            run();
            Ok(())
        })
        .with_ignored_flag(lacks.is_some())
    });
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}

fn all() -> Vec<Test> {
    [
        cgroups::tests(),
        cleanup::tests(),
        devices::tests(),
        freezing::tests(),
        kernel_files::tests(),
        probing::tests(),
        signals::tests(),
        system_calls::tests(),
        users::tests(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
