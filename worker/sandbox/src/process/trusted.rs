//! Programs that the operator named, outside of any jail: installers, which need the network and write where the operator may.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Output, Stdio};

/// Runs a program to its end with the environment of this process. Returns its status and output.
pub fn run_trusted<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(program: &Path, args: I) -> std::io::Result<Output> {
    #[expect(clippy::disallowed_methods, reason = "this crate starts the worker's processes")]
    std::process::Command::new(program).args(args).stdin(Stdio::null()).output()
}
