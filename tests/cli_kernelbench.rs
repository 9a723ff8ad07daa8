//! `import kernelbench-results` and `export kernelbench --beside`: what others found out, and what is found here.
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
use std::process::Command;

use binary::{expect_exit, json_lines, nightshift};
use nightshift_optimizer::reply::extract_program;
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::task::CandidateForm;
use serde_json::{Value, json};

/// Runs in the public layout, and times of references.
fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/kernelbench-results")
}

fn import(data: &Path, path: &Path) -> Command {
    let mut command = nightshift(data);
    command.args(["import", "kernelbench-results"]).arg(path);
    command
}

fn baseline() -> PathBuf {
    fixtures().join("results/timing/Example_GPU/baseline_time_torch.json")
}

/// The only line of the output.
fn one(command: &mut Command, code: i32) -> Value {
    let mut lines = json_lines(&expect_exit(command.arg("--json"), code));
    assert_eq!(lines.len(), 1, "{lines:?}");
    lines.remove(0)
}

#[test]
fn results_of_others_come_to_the_published_figures() {
    let folder = tempfile::tempdir().unwrap();
    let found = one(import(folder.path(), &fixtures()).arg("--baseline").arg(baseline()), 0);
    let (lists, older) = (&found["runs"][0], &found["runs"][1]);
    assert_eq!((&lists["run"], &lists["level"]), (&json!("lists_level1"), &json!(1)));
    // One of four tasks has no result at all.
    assert_eq!((&lists["tasks"], &lists["evaluated"], &lists["programs"]), (&json!(4), &json!(3), &json!(3)));
    assert_eq!((&lists["compiled"], &lists["correct"]), (&json!(2), &json!(2)));
    let curve = json!({"0": 0.5, "0.5": 0.25, "0.8": 0.25, "1": 0.25, "1.5": 0.25, "2": 0.0});
    assert_eq!(lists["fast"], curve, "twice as fast is not more than twice as fast");
    assert_eq!((&older["level"], &older["fast"]["1"], &older["fast"]["1.5"]), (&json!(2), &json!(1.0), &json!(0.0)));
    let left_out: Vec<&Value> =
        found["left_out"].as_array().unwrap().iter().map(|left_out| &left_out["what"]).collect();
    assert_eq!(left_out, ["task 21, sample 0"], "it has no program");
    assert_eq!(found["baseline"]["hardware"], json!(["Example GPU"]));
    assert_eq!(found["tasks"], Value::Null);

    let text = expect_exit(&mut import(folder.path(), &fixtures().join("runs/lists_level1")), 0);
    let (said, noted) = (String::from_utf8(text.stdout).unwrap(), String::from_utf8(text.stderr).unwrap());
    assert!(said.contains("lists_level1: level 1, 3 tasks") && said.contains("no fast_p without times"), "{said}");
    assert!(noted.contains("left out (1):\n  lists_level1: task 21, sample 0: results.no_program"), "{noted}");
}

#[test]
fn results_that_cannot_be_read_say_why() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    std::fs::create_dir(&run).unwrap();
    let data = folder.path().join("data");
    let code = |command: &mut Command, exit: i32| one(command, exit)["error"]["code"].as_str().unwrap().to_owned();
    assert_eq!(code(&mut import(&data, &folder.path().join("none")), 3), "results.not_found");
    assert_eq!(code(&mut import(&data, &run), 3), "results.not_found");
    std::fs::write(run.join("eval_results.json"), "{\"1\": [").unwrap();
    assert_eq!(code(import(&data, &run).args(["--level", "1"]), 4), "results.malformed");
    std::fs::write(run.join("eval_results.json"), "{\"1\": [{\"sample_id\": 0}]}").unwrap();
    assert_eq!(code(&mut import(&data, &run), 4), "results.no_level");
    assert_eq!(code(import(&data, &run).args(["--level", "1"]), 4), "results.empty");
    let lists = fixtures().join("runs/lists_level1");
    assert_eq!(code(import(&data, &lists).arg("--baseline").arg(run.join("none.json")), 3), "results.not_found");
    let results = lists.join("eval_results.json");
    assert_eq!(code(import(&data, &lists).arg("--baseline").arg(results), 4), "results.malformed");
    for flags in [&["--tasks", "tasks"][..], &["--out", "out"], &["--force"]] {
        expect_exit(import(&data, &lists).args(flags), 2);
    }
    // One run among others that cannot be read does not keep them back.
    let runs = folder.path().join("runs");
    std::fs::create_dir_all(runs.join("good")).unwrap();
    std::fs::create_dir_all(runs.join("bad")).unwrap();
    std::fs::copy(lists.join("eval_results.json"), runs.join("good/eval_results.json")).unwrap();
    std::fs::write(runs.join("bad/eval_results.json"), "[]").unwrap();
    let found = one(import(&data, &runs).args(["--level", "1"]), 0);
    assert_eq!(
        (found["runs"].as_array().unwrap().len(), &found["left_out"][0]["code"]),
        (1, &json!("results.malformed"))
    );
    std::fs::create_dir(runs.join("worse")).unwrap();
    std::fs::write(runs.join("worse/eval_results.json"), "{").unwrap();
    std::fs::remove_dir_all(runs.join("good")).unwrap();
    let nothing = json_lines(&expect_exit(import(&data, &runs).arg("--json"), 4));
    assert_eq!(
        (&nothing[0]["runs"], &nothing[1]["error"]["code"]),
        (&json!([]), &json!("results.malformed")),
        "{nothing:?}"
    );
    std::fs::remove_dir_all(runs.join("worse")).unwrap();
    assert_eq!(code(import(&data, &runs).args(["--level", "1"]), 4), "results.malformed");
}

const TASK: &str = include_str!("fixtures/kernelbench-results/task.toml");

#[test]
fn programs_of_others_become_tasks_with_what_was_said_of_them() {
    let folder = tempfile::tempdir().unwrap();
    let (data, tasks, out) = (folder.path().join("data"), folder.path().join("tasks"), folder.path().join("out"));
    std::fs::create_dir_all(tasks.join("relu")).unwrap();
    std::fs::write(tasks.join("relu/task.toml"), TASK).unwrap();
    std::fs::write(tasks.join("relu/reference.py"), "class Model: ...\n").unwrap();
    let write = |path: &Path| {
        let mut command = import(&data, path);
        command.arg("--baseline").arg(baseline()).arg("--tasks").arg(&tasks).arg("--out").arg(&out);
        command
    };
    let lists = fixtures().join("runs/lists_level1");
    let found = one(&mut write(&lists), 0);
    assert_eq!((&found["tasks"][0]["task"], &found["tasks"][0]["programs"]), (&json!("kb-l1-19-relu"), &json!(2)));
    let codes: Vec<&str> =
        found["left_out"].as_array().unwrap().iter().map(|left_out| left_out["code"].as_str().unwrap()).collect();
    assert_eq!(codes, ["results.no_program", "results.unknown_task"], "task 20 is not among the tasks");
    let written = out.join("kb-l1-19-relu");
    let claims: Value = serde_json::from_slice(&std::fs::read(written.join("claimed.json")).unwrap()).unwrap();
    assert_eq!((&claims["reference_ms"], &claims["programs"][1]["said"]["correctness"]), (&json!(1.0), &json!(false)));
    let reply = std::fs::read_to_string(written.join("replies/subtask1.attempt1.write_code.md")).unwrap();
    assert!(reply.contains("compiled yes, correct yes, 0.5 ms a call") && reply.contains("torch.relu(x)"), "{reply}");

    let refused = json_lines(&expect_exit(write(&lists).arg("--json"), 2));
    assert_eq!(refused[0]["left_out"][1]["code"], "usage.file_exists");
    assert_eq!(
        (refused.len(), &refused[1]["error"]["code"]),
        (2, &json!("usage.file_exists")),
        "the error is the last line"
    );
    one(write(&lists).arg("--force"), 0);
    // Several runs: a folder for each.
    let both = one(&mut write(&fixtures()), 0);
    assert!(out.join("lists_level1/kb-l1-19-relu/task.toml").exists(), "{both}");
}

#[test]
fn verdicts_are_laid_beside_those_of_the_other_evaluation() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let task = tiny_task::write(folder.path(), "gaussian", &[2, 16, 8]);
    let hash = |attempt: u32| {
        let reply =
            std::fs::read_to_string(task.join(format!("replies/subtask1.attempt{attempt}.write_code.md"))).unwrap();
        ArtifactHash::of(extract_program(&reply, None, CandidateForm::Native).unwrap().as_bytes())
    };
    let program = |attempt: u32, source: ArtifactHash, said: Value| json!({"attempt": attempt, "sample": attempt - 1, "file": "x.py", "source": source, "said": said});
    let said = |correct: bool, runtime: f64| json!({"compiled": true, "correctness": correct, "runtime": runtime});
    let claims = json!({"schema": 1, "task": "gaussian", "run": "night", "level": 1, "problem": 1, "reference_ms": 2.0, "programs": [
        program(1, hash(1), said(true, 4.0)), program(2, hash(2), said(false, -1.0)), program(3, hash(1), said(true, 1.0)),
        program(4, hash(1), Value::Null),
    ]});
    std::fs::write(task.join("claimed.json"), claims.to_string()).unwrap();
    let output =
        expect_exit(nightshift(&data).arg("run").arg(&task).args(["--model", "scripted", "--exit", "--json"]), 0);
    let result = json_lines(&output).remove(0);
    let campaign = result["runs"][0]["summary"]["campaign"].as_str().unwrap().to_owned();
    let shown = one(nightshift(&data).args(["show", &campaign]), 0);
    assert_eq!(shown["spec"]["untrusted_replies"], json!(true), "they are run as those of a live model: {shown}");

    let beside = |data: &Path, at: &Path| {
        let mut command = nightshift(data);
        command.args(["export", "kernelbench", &campaign, "--beside"]).arg(at);
        command
    };
    let found = one(&mut beside(&data, folder.path()), 0)["beside"].clone();
    assert_eq!(
        (&found["both"], &found["disagree_on_correctness"], &found["disagree_on_speed"]),
        (&json!(2), &json!(1), &json!(1))
    );
    let row = &found["rows"][0];
    assert_eq!(
        (&row["said"]["ratio"], &row["agree"], &row["found"]["outcome"]),
        (&json!(0.5), &json!(true), &json!("correct_faster"))
    );
    assert!(
        row["found"]["ratio"].as_f64().unwrap() > 2.0 && row["found"]["runtime_ms"].as_f64().unwrap() > 0.0,
        "{row}"
    );
    // The task has no baseline other than its reference.
    let (ratio, over_fastest) = (&row["found"]["ratio"], &row["found"]["over_fastest"]["estimate"]);
    assert!((ratio.as_f64().unwrap() - over_fastest.as_f64().unwrap()).abs() < 1e-9, "{row}");
    let (said, found_fast) = (&found["said_fast"][0], &found["found_fast"][0]);
    assert_eq!((&said["fast"]["1"], &said["over_fastest"]), (&json!(0.0), &Value::Null), "{said}");
    assert_eq!((&found_fast["fast"]["1"], &found_fast["over_fastest"]["fast"]["1"]), (&json!(1.0), &json!(1.0)));
    let codes: Vec<&str> =
        found["left_out"].as_array().unwrap().iter().map(|left_out| left_out["code"].as_str().unwrap()).collect();
    assert_eq!(codes, ["results.other_program", "results.not_judged"]);
    let text = String::from_utf8(expect_exit(&mut beside(&data, &task), 0).stdout).unwrap();
    assert!(text.contains("2 programs: 2 with a verdict of both, of which 1 disagree on correctness; 1 on"), "{text}");
    for line in [
        "said, level 1: fast_0 100 %",
        "found, level 1: fast_0 100 %",
        "found, level 1, over the fastest baseline: fast_0",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
    expect_exit(&mut beside(&data, &data), 3);
    expect_exit(nightshift(&data).args(["export", "kernelbench", &campaign]), 2);
}
