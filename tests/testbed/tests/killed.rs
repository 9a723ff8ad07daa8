//! What is left of a cluster when its process is killed: nothing.
#![expect(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it should be")]

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longest wait for something that has to happen.
const PATIENCE: Duration = Duration::from_mins(1);

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(5);

/// A process that holds a cluster below `parent`.
#[expect(clippy::disallowed_methods, reason = "the test kills a process, so it starts one")]
fn holder(parent: &Path) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nightshift-testbed"));
    command.env("TMPDIR", parent).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
}

/// A folder that the account of the server may enter.
fn parent() -> tempfile::TempDir {
    let parent = tempfile::tempdir().unwrap();
    std::fs::set_permissions(parent.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    parent
}

fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "waited {PATIENCE:?} until {what}");
        std::thread::park_timeout(PAUSE);
    }
}

fn is_empty(folder: &Path) -> bool {
    std::fs::read_dir(folder).unwrap().next().is_none()
}

/// Returns whether any process names this folder in its command line.
fn is_named_by_a_process(folder: &Path) -> bool {
    let name = folder.to_str().unwrap();
    std::fs::read_dir("/proc").unwrap().flatten().any(|entry| {
        std::fs::read(entry.path().join("cmdline")).is_ok_and(|line| String::from_utf8_lossy(&line).contains(name))
    })
}

#[test]
fn a_cluster_is_gone_after_its_process_was_killed() {
    let parent = parent();
    let mut holder = holder(parent.path());
    let mut lines = BufReader::new(holder.stdout.take().unwrap()).lines();
    let url = lines.next().unwrap().unwrap();
    let folder = lines.next().unwrap().unwrap();
    assert!(Path::new(&folder).join("data/postmaster.pid").exists());
    let address = url.split(['@', '/']).nth(3).unwrap().to_owned();
    assert!(TcpStream::connect(&address).is_ok(), "{address} does not answer");

    holder.kill().unwrap();
    holder.wait().unwrap();
    wait_until("the folder is gone", || is_empty(parent.path()));
    wait_until("all processes are gone", || !is_named_by_a_process(parent.path()));
    assert!(TcpStream::connect(&address).is_err(), "{address} answers still");
}

#[test]
fn nothing_is_left_of_a_cluster_whose_process_was_killed_while_it_was_being_made() {
    // Moments on the way: the folder, the first file of initdb, its end, the start of the server.
    for moment in ["", "data/PG_VERSION", "data/postgresql.conf", "log", "data/postmaster.pid"] {
        let parent = parent();
        let mut holder = holder(parent.path());
        wait_until("the moment has come", || {
            std::fs::read_dir(parent.path()).unwrap().flatten().any(|entry| entry.path().join(moment).exists())
        });
        holder.kill().unwrap();
        holder.wait().unwrap();
        wait_until("the folder is gone", || is_empty(parent.path()));
        wait_until("all processes are gone", || !is_named_by_a_process(parent.path()));
    }
}

#[test]
fn a_cluster_is_gone_when_its_process_ends() {
    let parent = parent();
    let mut holder = holder(parent.path());
    let mut lines = BufReader::new(holder.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().starts_with("postgres://"));
    drop(holder.stdin.take());
    assert!(holder.wait().unwrap().success());
    assert!(is_empty(parent.path()), "the folder is removed before the process ends");
}
