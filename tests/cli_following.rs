//! Commands that follow a campaign go on when its server is started again, and others say what a run lacks.
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

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use binary::{expect_exit, json_lines, nightshift};
use serde_json::Value;
use server::Served;

/// Maximum time that anything here is waited for.
const LIMIT: Duration = Duration::from_mins(1);

fn json(data_dir: &Path, args: &[&str], code: i32) -> Value {
    json_lines(&expect_exit(nightshift(data_dir).args(args).arg("--json"), code)).pop().unwrap()
}

/// A command that follows, and what it prints. It is killed when it is dropped.
struct Following {
    child: Child,
    printed: Receiver<String>,
    said: Receiver<String>,
}

/// Reads lines in a thread of their own, so that a test waits for them for a limited time.
fn lines_of(stream: impl Read + Send + 'static) -> Receiver<String> {
    let (tell, told) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            if tell.send(line).is_err() {
                return;
            }
        }
    });
    told
}

impl Following {
    fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary starts");
        let (printed, said) = (lines_of(child.stdout.take().unwrap()), lines_of(child.stderr.take().unwrap()));
        Self { child, printed, said }
    }

    /// Reads until the command says this.
    fn until(&self, text: &str) {
        let mut before = Vec::new();
        while let Ok(line) = self.said.recv_timeout(LIMIT) {
            if line.contains(text) {
                return;
            }
            before.push(line);
        }
        panic!("it did not say `{text}`: {before:?}");
    }

    /// Reads until the command ends, and returns its exit code.
    fn end(mut self) -> Option<i32> {
        let ended = loop {
            match self.said.recv_timeout(LIMIT) {
                Ok(_) => {}
                Err(reason) => break reason == RecvTimeoutError::Disconnected,
            }
        };
        assert!(ended, "it goes on");
        self.child.wait().unwrap().code()
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a run that has no worker, and returns the command that follows it with the ids of run and campaign.
fn follow_a_run(folder: &Path, data_dir: &Path) -> (Following, String, String) {
    let task = tiny_task::write(folder, "gaussian", &[1]);
    let mut run = nightshift(data_dir);
    run.arg("run").arg(&task).args(["--model", "scripted", "--allow-unsandboxed", "--exit"]);
    let running = Following::start(&mut run);
    let began = Instant::now();
    loop {
        assert!(began.elapsed() < LIMIT, "no run was created");
        let listed = json(data_dir, &["list", "runs"], 0);
        if let (Some(run), Some(campaign)) =
            (listed["items"][0]["id"].as_str(), listed["items"][0]["campaign"].as_str())
        {
            return (running, run.to_owned(), campaign.to_owned());
        }
    }
}

#[test]
fn a_server_that_is_started_again_ends_no_command_that_follows() {
    let folder = tempfile::tempdir().unwrap();
    let data_dir = folder.path().join("data");
    // Without a worker, the run waits as long as the test needs.
    let served = Served::start(nightshift(&data_dir), &["--no-worker"]);
    let address = served.address.trim_start_matches("http://").to_owned();
    let (running, run, campaign) = follow_a_run(folder.path(), &data_dir);
    let watched = Following::start(nightshift(&data_dir).args(["watch", &campaign]));
    let read = Following::start(nightshift(&data_dir).args(["logs", &run, "--follow"]));
    let all = [running, watched, read];
    all[0].until("pages: ");
    for follower in &all[1..] {
        assert!(follower.printed.recv_timeout(LIMIT).is_ok(), "it has begun");
    }
    // Kills it (SIGKILL).
    drop(served);
    for follower in &all {
        follower.until("trying again");
    }
    // The tokens of the second server are other ones.
    let served = Served::start_at(nightshift(&data_dir), &address, &["--no-worker"]);
    for follower in &all {
        follower.until("the server answers again");
    }
    json(&data_dir, &["cancel", &campaign], 0);
    let codes = all.map(Following::end);
    assert_eq!(codes, [Some(7), Some(7), Some(0)]);
    drop(served);
}

#[test]
fn commands_report_that_a_run_has_no_attempts() {
    let folder = tempfile::tempdir().unwrap();
    let data_dir = folder.path().join("data");
    let served = Served::start(nightshift(&data_dir), &["--no-worker"]);
    let (running, run, campaign) = follow_a_run(folder.path(), &data_dir);
    json(&data_dir, &["cancel", &campaign], 0);
    assert_eq!(running.end(), Some(7));
    let scored = expect_exit(nightshift(&data_dir).args(["reward", "recompute", &campaign]), 0);
    assert_eq!(String::from_utf8_lossy(&scored.stdout), "no attempt has a score yet\n");
    let missing = format!("{run}/1");
    let out = folder.path().join("out").display().to_string();
    let refused = json(&data_dir, &["export", &missing, "--as", "cmake", "--out", &out], 3);
    assert!(refused["error"]["message"].as_str().unwrap().contains("has no attempt 1"), "{refused}");
    let refused = json(&data_dir, &["list", "runs", "--before", "xyz"], 4);
    assert!(refused["error"]["message"].as_str().unwrap().contains("`before`"), "{refused}");
    let refused = json(&data_dir, &["retry", &run], 4);
    assert!(refused["error"]["message"].as_str().unwrap().contains("begin a new one"), "{refused}");
    drop(served);
}
