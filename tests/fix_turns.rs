//! Fix turns by every command: run, show, logs, export, record, and playing back what was recorded.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test stops at the first thing that is not as it should be"
)]

#[path = "support/binary.rs"]
mod binary;
#[path = "support/tiny_task.rs"]
mod tiny_task;

use std::path::{Path, PathBuf};

use binary::{expect_exit, json_lines, nightshift};
use serde_json::Value;

/// A program that no compiler takes, with a word of its own in the compiler's message.
fn broken(word: &str) -> String {
    format!("```cpp\n#include \"nightshift.h\"\nNS_EXPORT int ns_run() {{ return {word}; }}\n```\n")
}

fn reply(task: &Path, name: &str) -> PathBuf {
    task.join("replies").join(format!("{name}.md"))
}

/// A task whose script needs two fix turns for the first attempt.
fn task(parent: &Path) -> PathBuf {
    let task = tiny_task::write(parent, "gaussian", &[8, 2]);
    let first = reply(&task, "subtask1.attempt1.write_code");
    std::fs::rename(&first, reply(&task, "subtask1.attempt1.fix2.write_code")).unwrap();
    std::fs::write(first, broken("moonlight")).unwrap();
    std::fs::write(reply(&task, "subtask1.attempt1.fix1.write_code"), broken("starlight")).unwrap();
    task
}

/// Runs the task's script. Returns the only run in full.
fn run(data_dir: &Path, task: &Path, further: &[&str]) -> Value {
    let mut command = nightshift(data_dir);
    command.arg("run").arg(task).args(["--model", "scripted", "--exit", "--json"]).args(further);
    json_lines(&expect_exit(&mut command, 0)).remove(0)["runs"][0].clone()
}

fn said(data_dir: &Path, args: &[&str]) -> String {
    String::from_utf8_lossy(&expect_exit(nightshift(data_dir).args(args), 0).stdout).into_owned()
}

fn attempts(run: &Value) -> &Vec<Value> {
    run["view"]["attempts"].as_array().unwrap()
}

/// Keys of the completed steps of attempt 1 that write and build, in order.
fn written_and_built(data_dir: &Path, run: &Value) -> Vec<String> {
    let id = run["summary"]["id"].as_str().unwrap();
    let events = json_lines(&expect_exit(nightshift(data_dir).args(["logs", id, "--json"]), 0));
    let completed = events.iter().filter(|event| event["kind"] == "step_completed");
    let keys = completed.filter_map(|event| event["step_key"].as_str()?.strip_prefix("subtask1/attempt1/"));
    keys.filter(|key| key.ends_with("write_code") || key.ends_with("build")).map(str::to_owned).collect()
}

const TWO_TURNS: [&str; 6] = ["write_code", "build", "fix1/write_code", "fix1/build", "fix2/write_code", "fix2/build"];

#[test]
fn a_script_with_fix_turns_is_shown_exported_recorded_and_played_back() {
    let folder = tempfile::tempdir().unwrap();
    let (data_dir, recorded) = (folder.path().join("data"), folder.path().join("recorded"));
    let run_of = run(&data_dir, &task(folder.path()), &["--record", recorded.to_str().unwrap()]);
    let id = run_of["summary"]["id"].as_str().unwrap();
    assert_eq!(written_and_built(&data_dir, &run_of), TWO_TURNS);
    let first = &attempts(&run_of)[0];
    assert!(first["outcome"].as_str().unwrap().starts_with("correct"), "{:#}", first["outcome"]);
    assert_eq!(first["stage"], "draft");
    let versions = first["earlier_versions"].as_array().unwrap();
    assert_eq!(versions.len(), 2);
    assert!(
        versions.iter().all(|version| version["outcome"] == "compile_failed" && version["source"] != first["source"])
    );

    let shown = said(&data_dir, &["show", &format!("{id}/1")]);
    for part in ["version 1, fixed since: compile_failed", "moonlight", "version 2, fixed since", "starlight"] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
    let logs = said(&data_dir, &["logs", id, "--step", "subtask1/attempt1/fix1/build"]);
    assert!(logs.contains("starlight") && !logs.contains("moonlight"), "{logs}");
    let asked = said(&data_dir, &["logs", id, "--step", "subtask1/attempt1/fix1/write_code"]);
    assert!(asked.contains("It does not compile") && asked.contains("moonlight"), "{asked}");

    let (out, campaign) = (folder.path().join("archive.json"), run_of["summary"]["campaign"].as_str().unwrap());
    said(&data_dir, &["export", campaign, "--format", "json", "--out", out.to_str().unwrap()]);
    let archive: Value = serde_json::from_slice(&std::fs::read(&out).unwrap()).unwrap();
    for version in versions {
        for hash in [&version["source"], &version["build"]["log"]] {
            assert!(archive["artifacts"].get(hash.as_str().unwrap()).is_some(), "{hash} is in the export");
        }
    }

    let task = recorded.join("gaussian");
    for name in ["write_code", "fix1.write_code", "fix2.write_code"] {
        assert!(reply(&task, &format!("subtask1.attempt1.{name}")).is_file(), "{name}");
    }
    let again = folder.path().join("again");
    let played = run(&again, &task, &[]);
    assert_eq!(written_and_built(&again, &played), TWO_TURNS);
    let sources = |run: &Value| attempts(run).iter().map(|attempt| attempt["source"].clone()).collect::<Vec<_>>();
    assert_eq!(sources(&played), sources(&run_of));
}

#[test]
fn without_turns_or_replies_for_them_a_script_goes_on_with_the_repair() {
    let folder = tempfile::tempdir().unwrap();
    let (task, off, short) = (task(folder.path()), folder.path().join("off"), folder.path().join("short"));
    let ended = |run: &Value| {
        assert_eq!(run["summary"]["status"], "completed");
        let of = |attempt: &Value| (attempt["stage"].clone(), attempt["outcome"].clone());
        let [first, second] = &attempts(run)[..] else { panic!("two attempts") };
        assert_eq!(of(first), ("draft".into(), "compile_failed".into()));
        assert_eq!(second["stage"], "repair_compile");
        assert!(second["outcome"].as_str().unwrap().starts_with("correct"), "{:#}", second["outcome"]);
        assert_eq!(first["findings"], serde_json::json!([]), "a script that ended says nothing about the program");
    };
    let run_of = run(&off, &task, &["--max-fix-turns", "0"]);
    ended(&run_of);
    assert_eq!(written_and_built(&off, &run_of), TWO_TURNS[..2]);
    assert!(attempts(&run_of)[0]["earlier_versions"].is_null());

    std::fs::remove_file(reply(&task, "subtask1.attempt1.fix2.write_code")).unwrap();
    let run_of = run(&short, &task, &[]);
    ended(&run_of);
    assert_eq!(written_and_built(&short, &run_of), TWO_TURNS[..5], "the turn has no reply, and builds nothing");
    assert_eq!(attempts(&run_of)[0]["earlier_versions"].as_array().unwrap().len(), 1);
}
