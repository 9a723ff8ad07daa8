//! Tasks that cannot be used: each is refused with what is wrong and where, before anything is created.
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

/// A task that works, for the test to break.
fn task(folder: &Path) -> PathBuf {
    tiny_task::write(folder, "gaussian", &[16, 2, 8])
}

fn edit(task: &Path, from: &str, to: &str) {
    let path = task.join("task.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains(from), "{from} is in the task");
    std::fs::write(path, text.replace(from, to)).unwrap();
}

/// The error of running this task.
fn refused(folder: &Path, task: &Path, code: i32) -> Value {
    let output = expect_exit(
        nightshift(&folder.join("data")).arg("run").arg(task).args(["--model", "scripted", "--exit", "--json"]),
        code,
    );
    json_lines(&output).pop().unwrap()["error"].clone()
}

#[test]
fn an_unknown_task_is_answered_with_the_one_that_was_meant() {
    let folder = tempfile::tempdir().unwrap();
    let output = expect_exit(nightshift(folder.path()).args(["run", "row_sofmax", "--model", "scripted"]), 3);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("task.not_found") && text.contains("did you mean `row_softmax`"), "{text}");
    expect_exit(nightshift(folder.path()).args(["demo", "--task", "nosuch", "--exit"]), 3);
    expect_exit(nightshift(folder.path()).args(["run", "./no/such/folder", "--model", "scripted"]), 3);
}

#[test]
fn the_demo_asks_for_a_target_that_there_is_or_for_tasks_by_name() {
    let folder = tempfile::tempdir().unwrap();
    for flags in [&["--target", "gpu"][..], &["--target", "cuda", "--task", "row_softmax"]] {
        let output = expect_exit(nightshift(folder.path()).arg("demo").args(flags).arg("--exit"), 2);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(text.contains("--target"), "{text}");
    }
}

#[test]
fn a_malformed_task_file_is_refused_with_line_and_column() {
    let folder = tempfile::tempdir().unwrap();
    let task = task(folder.path());
    edit(&task, "schema = 1", "schema = = 1");
    let error = refused(folder.path(), &task, 4);
    let message = error["message"].as_str().unwrap();
    assert!(error["code"].as_str().unwrap().starts_with("task."), "{error}");
    assert!(message.contains("task.toml:1:10: "), "{message}");
}

#[test]
fn an_unknown_key_of_a_task_is_refused_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let task = task(folder.path());
    edit(&task, "target = \"cpu\"", "target = \"cpu\"\ntollerance = 3");
    let message = refused(folder.path(), &task, 4)["message"].as_str().unwrap().to_owned();
    assert!(message.contains("tollerance") && message.contains("task.toml:6:1: "), "{message}");
}

#[test]
fn shapes_that_overflow_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let task = task(folder.path());
    for extent in ["9223372036854775807", "4294967296"] {
        edit(&task, "shape = [\"n\"]", &format!("shape = [\"n\", {extent}]"));
        let error = refused(folder.path(), &task, 4);
        assert!(error["message"].as_str().unwrap().contains("bytes"), "{error}");
        edit(&task, &format!("shape = [\"n\", {extent}]"), "shape = [\"n\"]");
    }
}

#[test]
fn a_missing_reference_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let task = task(folder.path());
    std::fs::remove_file(task.join("reference.cpp")).unwrap();
    let error = refused(folder.path(), &task, 4);
    assert!(error["message"].as_str().unwrap().contains("reference.cpp"), "{error}");
}

#[test]
fn a_task_without_replies_cannot_be_played_back() {
    let folder = tempfile::tempdir().unwrap();
    let task = task(folder.path());
    std::fs::remove_dir_all(task.join("replies")).unwrap();
    assert_eq!(refused(folder.path(), &task, 4)["code"], "task.no_replies");
}

#[test]
fn the_same_task_twice_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let task = task(folder.path());
    let mut command = nightshift(&folder.path().join("data"));
    command.arg("run").arg(&task).arg(&task).args(["--model", "scripted", "--exit", "--json"]);
    let error = json_lines(&expect_exit(&mut command, 4)).pop().unwrap()["error"].clone();
    assert_eq!(error["code"], "campaign.duplicate_task");
}

#[test]
fn a_reference_that_does_not_compile_ends_the_run_and_says_where() {
    let folder = tempfile::tempdir().unwrap();
    let task = task(folder.path());
    std::fs::write(task.join("reference.cpp"), "#include \"nightshift.h\"\nint ns_run( {\n").unwrap();
    let data_dir = folder.path().join("data");
    let output =
        expect_exit(nightshift(&data_dir).arg("run").arg(&task).args(["--model", "scripted", "--exit", "--json"]), 7);
    let result = json_lines(&output).pop().unwrap();
    assert_eq!(result["succeeded"], false);
    let reason = &result["runs"][0]["view"]["stop_reason"];
    assert_eq!(reason["kind"], "task_rejected", "{result}");
    assert_eq!(reason["code"], "task.reference_does_not_compile", "{reason}");

    let run = result["runs"][0]["summary"]["id"].as_str().unwrap();
    for verb in ["show", "watch"] {
        let output = nightshift(&data_dir).args([verb, run]).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(said.contains("task.reference_does_not_compile"), "{verb}: {said}");
    }
}

#[test]
fn the_table_says_why_a_task_was_rejected_and_fits_a_narrow_terminal() {
    const COLUMNS: usize = 80;
    let folder = tempfile::tempdir().unwrap();
    let task = task(folder.path());
    std::fs::write(task.join("reference.cpp"), "#include \"nightshift.h\"\nint ns_run( {\n").unwrap();
    let mut command = nightshift(&folder.path().join("data"));
    // The file of a task names the task as well as its folder does.
    command.arg("run").arg(task.join("task.toml")).args(["--model", "scripted", "--exit"]);
    let output = expect_exit(&mut command, 7);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("task.reference_does_not_compile"), "{text}");
    assert!(text.contains("--step prepare_task"), "what to do next is named:\n{text}");
    let table = text.lines().take_while(|line| !line.contains(": "));
    for line in table {
        assert!(line.chars().count() <= COLUMNS, "{line}");
    }
}

#[test]
fn an_attempt_is_named_by_its_number() {
    let folder = tempfile::tempdir().unwrap();
    let output = expect_exit(nightshift(&folder.path().join("data")).args(["show", "3f9c2a10/first"]), 2);
    assert!(String::from_utf8_lossy(&output.stderr).contains("error[usage.invalid]"));
}
