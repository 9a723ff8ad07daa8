//! A child for the tests: the part of the binary that jails and runs programs. Beside that it can be a parent that
//! jails a shell and waits for it, so that a test can see what is left when such a parent is killed.

use std::ffi::OsString;
use std::path::PathBuf;

use nightshift_sandbox::process::{CancelFlag, JailHost, JailedCommand, Limits, SandboxChoice, run_jailed};
use nightshift_worker::child_main;

fn main() {
    let args: Vec<OsString> = std::env::args_os().collect();
    std::process::exit(child_main(&args).unwrap_or_else(|| parent_main(&args)));
}

/// `parent MEANS SCRATCH SCRIPT`
fn parent_main(args: &[OsString]) -> i32 {
    let [executable, _, means, scratch, script] = args else { return 2 };
    let means = match means.to_str() {
        Some("best") => SandboxChoice::Best,
        Some("landlock") => SandboxChoice::Landlock,
        Some("namespaces") => SandboxChoice::Namespaces,
        Some("none") => SandboxChoice::None,
        _ => return 2,
    };
    let host = JailHost::new(PathBuf::from(executable), means);
    let command = JailedCommand {
        program: PathBuf::from("/bin/sh"),
        args: vec!["-c".into(), script.clone()],
        read_only: Vec::new(),
        scratch: PathBuf::from(scratch),
        env: Vec::new(),
        limits: Limits {
            wall_ms: 120_000,
            cpu_s: 60,
            memory_bytes: 1 << 30,
            file_bytes: 1 << 20,
            processes: 32,
            output_bytes: 4096,
        },
    };
    i32::from(run_jailed(&host, &command, &CancelFlag::default()).is_err())
}
