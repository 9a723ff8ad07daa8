//! Commands that follow a campaign go on when its server is started again, and say why nothing moves.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test stops at the first thing that is not as it should be"
)]

#[path = "support/binary.rs"]
mod binary;
#[path = "support/server.rs"]
mod server;
#[path = "support/tiny_task.rs"]
mod tiny_task;

use std::io::{BufRead, BufReader, Lines};
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use binary::{expect_exit, json_lines, nightshift};
use serde_json::Value;
use server::Served;

/// Maximum time that anything here is waited for.
const LIMIT: Duration = Duration::from_mins(1);

fn json(data_dir: &Path, args: &[&str], code: i32) -> Value {
    json_lines(&expect_exit(nightshift(data_dir).args(args).arg("--json"), code)).pop().unwrap()
}

/// A command that follows, and what it prints.
struct Following {
    child: Child,
    printed: Lines<BufReader<ChildStdout>>,
    said: Lines<BufReader<ChildStderr>>,
}

impl Following {
    fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary starts");
        let printed = BufReader::new(child.stdout.take().unwrap()).lines();
        let said = BufReader::new(child.stderr.take().unwrap()).lines();
        Self { child, printed, said }
    }

    /// Reads until the command says this. A command that loses its server ends by itself after a while.
    fn until(&mut self, text: &str) {
        let mut before = Vec::new();
        for line in self.said.by_ref().map_while(Result::ok) {
            if line.contains(text) {
                return;
            }
            before.push(line);
        }
        panic!("it ended without `{text}`: {before:?}");
    }

    fn end(mut self) -> Option<i32> {
        let _rest: Vec<_> = self.said.by_ref().map_while(Result::ok).collect();
        self.child.wait().unwrap().code()
    }
}

#[test]
fn a_server_that_is_started_again_ends_no_command_that_follows() {
    let folder = tempfile::tempdir().unwrap();
    let data_dir = folder.path().join("data");
    let task = tiny_task::write(folder.path(), "gaussian", &[1]);
    // Without a worker, the run waits as long as the test needs.
    let served = Served::start(nightshift(&data_dir), &["--no-worker"]);
    let address = served.address.trim_start_matches("http://").to_owned();
    let mut run = nightshift(&data_dir);
    run.arg("run").arg(&task).args(["--model", "scripted", "--allow-unsandboxed", "--exit"]);
    let running = Following::start(&mut run);
    let began = Instant::now();
    let summary = loop {
        assert!(began.elapsed() < LIMIT, "no run was created");
        let listed = json(&data_dir, &["list", "runs"], 0);
        if listed["items"][0].is_object() {
            break listed["items"][0].clone();
        }
    };
    let (run, campaign) = (summary["id"].as_str().unwrap(), summary["campaign"].as_str().unwrap());
    let watched = Following::start(nightshift(&data_dir).args(["watch", campaign]));
    let read = Following::start(nightshift(&data_dir).args(["logs", run, "--follow"]));
    let mut all = [running, watched, read];
    all[0].until("pages: ");
    for follower in &mut all[1..] {
        assert!(follower.printed.next().is_some(), "it has begun");
    }
    // Kills it (SIGKILL).
    drop(served);
    for follower in &mut all {
        follower.until("trying again");
    }
    // The tokens of the second server are other ones.
    let served = Served::start_at(nightshift(&data_dir), &address, &["--no-worker"]);
    for follower in &mut all {
        follower.until("the server answers again");
    }
    json(&data_dir, &["cancel", campaign], 0);
    let codes = all.map(Following::end);
    assert_eq!(codes, [Some(7), Some(7), Some(0)]);

    // What there is to say about a run that was cancelled before its first attempt.
    let scored = expect_exit(nightshift(&data_dir).args(["reward", "recompute", campaign]), 0);
    assert_eq!(String::from_utf8_lossy(&scored.stdout), "no attempt has a score yet\n");
    let missing = format!("{run}/1");
    let out = folder.path().join("out").display().to_string();
    let refused = json(&data_dir, &["export", &missing, "--as", "cmake", "--out", &out], 3);
    assert!(refused["error"]["message"].as_str().unwrap().contains("has no attempt 1"), "{refused}");
    let refused = json(&data_dir, &["list", "runs", "--before", "xyz"], 4);
    assert!(refused["error"]["message"].as_str().unwrap().contains("`before`"), "{refused}");
    let refused = json(&data_dir, &["retry", run], 4);
    assert!(refused["error"]["message"].as_str().unwrap().contains("begin a new one"), "{refused}");
    drop(served);
}
