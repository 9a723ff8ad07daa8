//! The process of a program, for the tests of this crate.

use std::ffi::OsString;

use nightshift_evaluator::runner::{become_python, serve};
use nightshift_sandbox::HostedMain;

fn main() {
    let args: Vec<OsString> = std::env::args_os().collect();
    let hosted = HostedMain { native: serve, python: become_python };
    std::process::exit(nightshift_sandbox::process::child_main(&args, &hosted).unwrap_or(2));
}
