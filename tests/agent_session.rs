//! Agent sessions of the binary: a script that builds, checks, measures, submits and finishes; turns that are used up; and a
//! session that goes on after its process was killed.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test stops at the first thing that is not as it should be"
)]

#[path = "support/binary.rs"]
mod binary;
#[path = "support/gaussian.rs"]
mod gaussian;
#[path = "support/processes.rs"]
mod processes;

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use binary::{expect_exit, json_lines, nightshift};
use serde_json::Value;

/// The exit code of `run` where a run found no correct program.
const NO_RESULT: i32 = 7;

/// By so much each life of a killed process is longer than the one before.
const LIFE_STEP_MS: u64 = 150;

fn call(tool: &str, note: &str) -> String {
    format!("```json\n{{\"tool\": \"{tool}\", \"note\": \"{note}\"}}\n```\n")
}

fn with_program(tool: &str, program: &str) -> String {
    format!("{}\n```cpp\n{program}```\n", call(tool, "the next program"))
}

fn right(passes: u32) -> String {
    gaussian::program("", &passes.to_string(), "value")
}

fn broken() -> String {
    right(8).replace("return 0;", "return moonlight;")
}

fn wrong() -> String {
    gaussian::program("", "8", "value + 1")
}

/// A task whose script is a session: the replies by the name of their step.
fn task(parent: &Path, name: &str, replies: &[(&str, String)]) -> PathBuf {
    let task = gaussian::write_task(parent, name, 4096, 3);
    let folder = task.join("replies");
    std::fs::create_dir_all(&folder).unwrap();
    let plan = r#"{"summary": "Evaluate the exponential fewer times.",
 "subtasks": [{"title": "gaussian", "scope": ["gaussian"], "fusion_boundary": "the whole program"}]}"#;
    std::fs::write(folder.join("plan.md"), format!("```json\n{plan}\n```\n")).unwrap();
    for (step, reply) in replies {
        std::fs::write(folder.join(format!("subtask1.{step}.md")), reply).unwrap();
    }
    task
}

fn whole_session(parent: &Path) -> PathBuf {
    let edit = "<<<<<<< SEARCH\n        for (int pass = 0; pass < 16; ++pass) value = std::exp(-x * x);\n=======\n        for (int pass = 0; pass < 2; ++pass) value = std::exp(-x * x);\n>>>>>>> REPLACE\n";
    task(
        parent,
        "gaussian",
        &[
            ("attempt1.turn1.write_code", with_program("build", &broken())),
            ("attempt1.turn2.write_code", with_program("check", &wrong())),
            ("attempt1.turn3.write_code", "I would rather talk.".to_owned()),
            ("attempt1.turn3.write_code.2", with_program("measure", &right(16))),
            ("attempt1.turn4.write_code", call("submit", "as it is")),
            ("attempt2.turn5.write_code", format!("{}{edit}", call("submit", "fewer passes"))),
            ("attempt3.turn6.write_code", call("finish", "two passes are enough")),
        ],
    )
}

fn command(data_dir: &Path, task: &Path, further: &[&str]) -> std::process::Command {
    let mut command = nightshift(data_dir);
    command.arg("run").arg(task).args(["--strategy", "agent", "--model", "scripted", "--exit"]).args(further);
    command
}

fn run(data_dir: &Path, task: &Path, further: &[&str], exit_code: i32) -> Value {
    json_lines(&expect_exit(command(data_dir, task, further).arg("--json"), exit_code)).remove(0)["runs"][0].clone()
}

/// Keys of the completed steps, in order.
fn completed(data_dir: &Path, run: &str) -> Vec<String> {
    let events = json_lines(&expect_exit(nightshift(data_dir).args(["logs", run, "--json"]), 0));
    let completed = events.iter().filter(|event| event["kind"] == "step_completed");
    completed.map(|event| event["step_key"].as_str().unwrap().to_owned()).collect()
}

fn said(data_dir: &Path, args: &[&str]) -> String {
    String::from_utf8_lossy(&expect_exit(nightshift(data_dir).args(args), 0).stdout).into_owned()
}

fn stopped(run: &Value) -> &str {
    run["view"]["stop_reason"]["kind"].as_str().unwrap()
}

#[test]
fn a_session_builds_checks_measures_submits_and_finishes_and_is_played_back() {
    let folder = tempfile::tempdir().unwrap();
    let (data_dir, recorded) = (folder.path().join("data"), folder.path().join("recorded"));
    let run_of = run(&data_dir, &whole_session(folder.path()), &["--record", recorded.to_str().unwrap()], 0);
    let id = run_of["summary"]["id"].as_str().unwrap();
    let attempts = run_of["view"]["attempts"].as_array().unwrap();
    if stopped(&run_of) != "near_roofline" {
        assert_eq!(stopped(&run_of), "agent_finished");
        assert_eq!(attempts[2]["outcome"], "no_code");
    }
    let first = &attempts[0];
    let versions = first["earlier_versions"].as_array().unwrap();
    let outcomes: Vec<&str> = versions.iter().map(|version| version["outcome"].as_str().unwrap()).collect();
    assert_eq!(outcomes[..2], ["compile_failed", "incorrect"]);
    assert!(outcomes[2].starts_with("correct") && versions[2]["measurement"].is_object());
    assert_eq!(versions[2]["source"], first["source"], "what was measured is what was submitted");
    assert!(first["confirmation"].is_object() && first["profile"].is_object());
    assert_eq!(first["turns"].as_array().unwrap().len(), 4);
    let keys = completed(&data_dir, id);
    for key in ["turn1/build", "turn2/check", "turn3/measure", "turn4/confirm", "turn4/profile"] {
        assert!(keys.contains(&format!("subtask1/attempt1/{key}")), "{key} in {keys:?}");
    }
    for key in ["turn1/check", "turn2/measure", "turn3/confirm"] {
        assert!(!keys.contains(&format!("subtask1/attempt1/{key}")), "{key} in {keys:?}");
    }

    let asked = said(&data_dir, &["logs", id, "--step", "subtask1/attempt1/turn3/write_code"]);
    for part in ["Turn 1, `build`: it failed, compile_failed", "moonlight", "Turn 2, `check`: it failed, incorrect"] {
        assert!(asked.contains(part), "{part} in {asked}");
    }
    assert!(asked.contains("elements wrong") && asked.contains("Your reply could not be used"), "{asked}");
    let asked = said(&data_dir, &["logs", id, "--step", "subtask1/attempt2/turn5/write_code"]);
    assert!(asked.contains("Turn 4, `submit` of attempt 1: it is right and timed"), "{asked}");
    assert!(asked.contains("Milestone reached: ") && asked.contains("2 submissions."), "{asked}");
    let shown = said(&data_dir, &["show", &format!("{id}/1")]);
    for part in ["turn 1, build: compile_failed", "turn 3, measure: correct", "turn 4, submit"] {
        assert!(shown.contains(part), "{part} in {shown}");
    }

    let again = folder.path().join("again");
    let played = run(&again, &recorded.join("gaussian"), &[], 0);
    let sources = |run: &Value| {
        let attempts = run["view"]["attempts"].as_array().unwrap();
        attempts.iter().map(|attempt| attempt["source"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(sources(&played), sources(&run_of));
}

#[test]
fn a_session_that_is_killed_goes_on_with_its_transcript() {
    let folder = tempfile::tempdir().unwrap();
    let task = whole_session(folder.path());
    let expected_dir = folder.path().join("undisturbed");
    let expected = run(&expected_dir, &task, &[], 0);
    let data_dir = folder.path().join("killed");
    for life_ms in (1..=16).map(|life| life * LIFE_STEP_MS) {
        let mut child =
            command(&data_dir, &task, &[]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(life_ms) && child.try_wait().unwrap().is_none() {
            std::thread::park_timeout(Duration::from_millis(2));
        }
        if child.try_wait().unwrap().is_some() {
            break;
        }
        let tree = processes::descendants(child.id());
        processes::kill_tree(child.id());
        child.wait().unwrap();
        while tree.iter().any(processes::Process::is_alive) {
            std::thread::park_timeout(Duration::from_millis(2));
        }
    }
    expect_exit(&mut command(&data_dir, &task, &[]), 0);
    expect_exit(nightshift(&data_dir).args(["resume", "--exit"]), 0);
    let listed = json_lines(&expect_exit(nightshift(&data_dir).args(["list", "runs", "--json"]), 0));
    let runs: Vec<&Value> = listed.iter().filter_map(|page| page["items"].as_array()).flatten().collect();
    let expected = completed(&expected_dir, expected["summary"]["id"].as_str().unwrap());
    assert!(!runs.is_empty());
    for run in runs {
        let id = run["id"].as_str().unwrap();
        assert_eq!(completed(&data_dir, id), expected, "the same steps, each committed exactly once");
        let detail = &json_lines(&expect_exit(nightshift(&data_dir).args(["show", id, "--json"]), 0))[0];
        let calls = detail["view"]["attempts"].as_array().unwrap().iter().map(|a| a["calls"].as_array().unwrap());
        let mut prompts: Vec<&Value> = calls.flatten().map(|call| &call["prompt"]).collect();
        let count = prompts.len();
        prompts.sort_by_key(|prompt| prompt.as_str());
        prompts.dedup();
        assert_eq!(prompts.len(), count, "no call was made twice");
    }
}

#[test]
fn a_flood_of_turns_ends_with_the_limit_and_submits_what_was_measured() {
    let folder = tempfile::tempdir().unwrap();
    let mut replies = vec![("attempt1.turn1.write_code".to_owned(), with_program("measure", &right(4)))];
    replies.extend((2..=5).map(|turn| (format!("attempt1.turn{turn}.write_code"), call("read", "again and again"))));
    for (_, reply) in replies.iter_mut().skip(1) {
        *reply = reply.replace("\"note\"", "\"turn\": 1, \"note\"");
    }
    let replies: Vec<(&str, String)> = replies.iter().map(|(name, reply)| (name.as_str(), reply.clone())).collect();
    let data_dir = folder.path().join("data");
    let run_of = run(&data_dir, &task(folder.path(), "gaussian", &replies), &["--max-turns", "4"], 0);
    assert!(["turn_budget", "near_roofline"].contains(&stopped(&run_of)), "{}", stopped(&run_of));
    let [attempt] = &run_of["view"]["attempts"].as_array().unwrap()[..] else { panic!("one attempt") };
    assert_eq!(attempt["turns"].as_array().unwrap().len(), 5, "four turns, and the one of the rules");
    assert!(attempt["outcome"].as_str().unwrap().starts_with("correct") && attempt["confirmation"].is_object());
    assert_eq!(run_of["view"]["best_attempt"], 1);

    let unusable: Vec<(&str, String)> = vec![
        ("attempt1.turn1.write_code", "Hello.".to_owned()),
        ("attempt1.turn1.write_code.2", "Hello again.".to_owned()),
    ];
    let data_dir = folder.path().join("unusable");
    let run_of = run(&data_dir, &task(folder.path(), "gaussian_b", &unusable), &["--max-turns", "1"], NO_RESULT);
    assert_eq!(stopped(&run_of), "turn_budget");
    let attempt = &run_of["view"]["attempts"][0];
    assert_eq!(attempt["outcome"], "no_code");
    assert!(attempt["turns"][0]["problem"].as_str().unwrap().contains("no JSON object"), "{attempt:#}");
}
