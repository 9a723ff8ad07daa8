//! A child for the tests: the part of the binary that jails and runs programs, and nothing else.

use std::ffi::OsString;

fn main() {
    let args: Vec<OsString> = std::env::args_os().collect();
    std::process::exit(nightshift_worker::process::child_main(&args).unwrap_or(2));
}
