//! What `show` tells of a run and of an attempt: plans as differences, expected beside measured gains, evidence, scores
//! with their reasons, and what a reward came from.
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

/// A task whose second program is asked for as a change, and whose third one follows another plan.
fn task_with_a_change_and_a_new_plan(parent: &Path) -> PathBuf {
    let task = tiny_task::write(parent, "gaussian", &[16, 8, 2]);
    let reply = |name: &str, text: &str| std::fs::write(task.join("replies").join(name), text).unwrap();
    let diagnosis = |modification: &str, route: &str| {
        format!(
            r#"{{"bound": "compute", "critical_issue": "Too many passes.", "modification": "{modification}",
                "metrics": ["speedup"], "expected_gain": 1.5, "route": "{route}"}}"#
        )
    };
    reply("subtask1.attempt1.diagnose.md", &diagnosis("Halve the passes.", "optimize"));
    reply("subtask1.attempt2.diagnose.md", &diagnosis("Nothing more.", "replan"));
    reply(
        "subtask1.attempt2.judge.md",
        r#"{"anti_hacking": 5, "cuda_engineering": 4, "operator_coverage": 4, "skill_compliance": 3,
            "major_hacking": false, "reasons": ["The loop is shorter."]}"#,
    );
    reply(
        "replan2.md",
        r#"{"summary": "Evaluate it once.", "subtasks": [
            {"title": "gaussian", "scope": ["gaussian"], "fusion_boundary": "the whole program",
             "time_share": 0.9, "expected_gain": 4.0}]}"#,
    );
    let file = task.join("task.toml");
    let spec = std::fs::read_to_string(&file).unwrap();
    std::fs::write(file, spec + "max_replans = 1\n").unwrap();
    task
}

#[test]
fn a_run_and_an_attempt_tell_what_was_expected_and_what_came() {
    let folder = tempfile::tempdir().unwrap();
    let data_dir = folder.path().join("data");
    let task = task_with_a_change_and_a_new_plan(folder.path());
    let mut running = nightshift(&data_dir);
    running.arg("run").arg(&task).args(["--model", "scripted", "--exit", "--json"]);
    let result = json_lines(&expect_exit(&mut running, 0)).remove(0);
    let run = result["runs"][0]["summary"]["id"].as_str().expect("a run").to_owned();
    let said = |id: &str| {
        let output = expect_exit(nightshift(&data_dir).args(["show", id]), 0);
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let read = |id: &str| -> Value {
        json_lines(&expect_exit(nightshift(&data_dir).args(["show", id, "--json"]), 0)).remove(0)
    };

    let text = said(&run);
    for part in [
        "against plan 1:",
        "~ plan, summary: \"Evaluate it once.\" instead of \"Evaluate the exponential fewer times.\"",
        "attempt 2: gain over attempt 1: expected 1.50x, measured ",
        ": Halve the passes.",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let detail = read(&run);
    let difference = &detail["plan_differences"][0];
    assert_eq!((&difference["from"], &difference["to"]), (&Value::from(1), &Value::from(2)), "{difference}");
    assert_eq!(difference["changes"][0]["field"], "summary");
    assert_eq!(detail["cost"][0]["role"], "planner");
    let gain = &detail["view"]["attempts"][1]["gain"];
    assert_eq!((&gain["over"], &gain["expected"]), (&Value::from(1), &Value::from(1.5)));

    let attempt = format!("{run}/2");
    let text = said(&attempt);
    for part in [
        "asked for: Halve the passes. (advised on attempt 1)",
        "gain over attempt 1: expected 1.50x, measured ",
        "critical issue: Too many passes. (bound by compute)",
        "  evidence: speedup = ",
        "judge 16 of 20",
        "  judge: The loop is shorter.",
        "  from: correct yes, grave cheat no, speedup ",
        "rubric 16 of 20 with a weight of ",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let shown = read(&attempt);
    assert_eq!((&shown["number"], &shown["later_scores"]), (&Value::from(2), &Value::Array(Vec::new())));
    let roles: Vec<&str> = shown["cost"].as_array().unwrap().iter().map(|c| c["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["coder", "verifier", "judge"]);
    assert!(shown["rubric"]["rule_reasons"].is_array() && shown["reward"]["base"].is_number(), "{shown}");
}

/// The first program of a task prints why it gives up, and steers the terminal while at it.
fn task_with_a_program_that_gives_up(parent: &Path) -> PathBuf {
    let task = tiny_task::write(parent, "gaussian", &[16]);
    let file = task.join("replies/subtask1.attempt1.write_code.md");
    let reply = std::fs::read_to_string(&file).unwrap();
    let gives_up = "    std::printf(\"begun\\nno room\\x1b[2J for it\\n\");\n    std::fflush(stdout);\n    return 3;";
    let reply =
        reply.replace("#include <cmath>", "#include <cmath>\n#include <cstdio>").replace("    return 0;", gives_up);
    std::fs::write(file, reply).unwrap();
    task
}

#[test]
fn why_a_program_broke_down_is_told_in_its_own_words() {
    let folder = tempfile::tempdir().unwrap();
    let data_dir = folder.path().join("data");
    let task = task_with_a_program_that_gives_up(folder.path());
    let mut running = nightshift(&data_dir);
    running.arg("run").arg(&task).args(["--model", "scripted", "--exit", "--json"]);
    let result = json_lines(&running.output().unwrap()).remove(0);
    let run = result["runs"][0]["summary"]["id"].as_str().expect("a run").to_owned();
    let said =
        |args: &[&str]| String::from_utf8_lossy(&expect_exit(nightshift(&data_dir).args(args), 0).stdout).into_owned();

    let text = said(&["show", &format!("{run}/1")]);
    assert!(text.contains("check: `ns_run` returned the error status 3"), "{text}");
    assert!(text.contains("  it printed: no room\u{fffd}[2J for it (`--json` has all of it"), "{text}");
    let log = said(&["logs", &run]);
    assert!(log.contains("the error status 3: no room\u{fffd}[2J for it; 0 of 0 cases wrong"), "{log}");
}
