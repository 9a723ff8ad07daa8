//! A campaign whose models are an outside agent: it answers by the command line and by a folder of files, the server is
//! killed in between, and nothing is lost or done twice.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test stops at the first thing that is not as it should be"
)]

#[path = "support/binary.rs"]
mod binary;
#[path = "support/outside_agent.rs"]
mod outside_agent;
#[path = "support/serving.rs"]
#[expect(dead_code, reason = "other tests look for a browser")]
mod serving;
#[path = "support/tiny_task.rs"]
mod tiny_task;

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use binary::{expect_exit, json_lines, nightshift};
use outside_agent::answer_of;
use serde_json::Value;
use serving::Serving;

/// Maximum time that anything here is waited for.
const LIMIT: Duration = Duration::from_mins(2);

fn json(data_dir: &Path, args: &[&str], code: i32) -> Value {
    let mut lines = json_lines(&expect_exit(nightshift(data_dir).args(args).arg("--json"), code));
    assert_eq!(lines.len(), 1, "{lines:?}");
    lines.remove(0)
}

/// Begins the campaign on the running server, and gives its run once it waits for an agent.
fn begin(data_dir: &Path, task: &Path) -> String {
    let mut command = nightshift(data_dir);
    command.arg("run").arg(task).args(["--model", "external", "--max-attempts", "1", "--allow-unsandboxed", "--exit"]);
    let mut following = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the binary starts");
    let began = Instant::now();
    let run = loop {
        assert!(began.elapsed() < LIMIT, "no request was opened");
        let listed = json(data_dir, &["requests", "list"], 0);
        if let Some(run) = listed[0]["run"].as_str() {
            break run.to_owned();
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    following.kill().unwrap();
    following.wait().unwrap();
    run
}

fn until_completed(data_dir: &Path, run: &str) -> Value {
    let began = Instant::now();
    loop {
        let detail = json(data_dir, &["show", run], 0);
        match detail["summary"]["status"].as_str() {
            Some("completed") => return detail,
            Some("running") => {}
            other => panic!("{other:?}: {}", detail["summary"]),
        }
        assert!(began.elapsed() < LIMIT, "the run does not end: {}", detail["summary"]);
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn write(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path
}

/// Answers by the command line until the run is over; how many requests it answered.
fn answer_all(data_dir: &Path, folder: &Path, task: &Path, run: &str) -> usize {
    let began = Instant::now();
    let mut answered = 0;
    loop {
        assert!(began.elapsed() < LIMIT, "the run does not end");
        let output =
            nightshift(data_dir).args(["requests", "next", "--of", run, "--wait", "1", "--json"]).output().unwrap();
        let taken: Value = serde_json::from_slice(&output.stdout).unwrap();
        if taken["error"]["code"] == "request.none" {
            let status = json(data_dir, &["show", run], 0)["summary"]["status"].clone();
            if status == "completed" {
                return answered;
            }
            continue;
        }
        let (id, lease) = (taken["request"]["id"].as_str().unwrap(), taken["lease"].as_str().unwrap());
        let file = write(folder, "answer.txt", &answer_of(task, &taken));
        // The last digits, as tables show them.
        let short = &id[id.len() - 12..];
        let args = ["requests", "answer", short, "--lease", lease, "--file", file.to_str().unwrap()];
        json(data_dir, &args, 0);
        answered += 1;
    }
}

#[test]
fn an_outside_agent_answers_a_campaign_and_a_killed_server_loses_and_doubles_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let data_dir = folder.path().join("data");
    let task = tiny_task::write(folder.path(), "gaussian", &[2]);
    let served = Serving::on(&data_dir, &[]);
    let run = begin(&data_dir, &task);

    let taken = json(&data_dir, &["requests", "next", "--of", &run, "--holder", "agent one"], 0);
    assert_eq!(taken["request"]["role"], "planner");
    assert!(taken["question"]["user"].as_str().unwrap().contains("gaussian"));
    assert_eq!(json(&data_dir, &["requests", "next", "--of", &run], 4)["error"]["code"], "request.none");
    // Kills it (SIGKILL) between the request and its answer.
    drop(served);
    let served = Serving::on(&data_dir, &[]);
    let listed = json(&data_dir, &["requests", "list"], 0);
    assert_eq!((listed[0]["state"].as_str(), listed[0]["holder"].as_str()), (Some("leased"), Some("agent one")));
    let (id, lease) = (taken["request"]["id"].as_str().unwrap(), taken["lease"].as_str().unwrap());
    let wrong = json(&data_dir, &["requests", "release", "zz", "--lease", lease], 3);
    assert_eq!(wrong["error"]["code"], "request.not_found");
    let answer = |text: &str, code: i32| {
        let file = write(folder.path(), "answer.txt", text);
        json(&data_dir, &["requests", "answer", id, "--lease", lease, "--file", file.to_str().unwrap()], code)
    };
    assert_eq!(answer("I would rather not.", 4)["error"]["code"], "answer.not_json");
    assert_eq!(answer(&"x".repeat(10 * 1024 * 1024), 4)["error"]["code"], "answer.too_large");
    let plan = answer_of(&task, &taken);
    assert_eq!(answer(&plan, 0)["repeated"], false);
    assert_eq!(answer(&plan, 0)["repeated"], true);
    assert_eq!(answer("{\"summary\": \"another\"}", 4)["error"]["code"], "request.answered");

    assert!(answer_all(&data_dir, folder.path(), &task, &run) >= 1);
    let detail = until_completed(&data_dir, &run);
    assert_eq!(detail["view"]["attempts"][0]["calls"][0]["model"], "external/agent");
    assert_eq!(detail["view"]["best_attempt"], 1);
    let events = json_lines(&expect_exit(nightshift(&data_dir).args(["logs", &run, "--json"]), 0));
    let mut completed: Vec<&str> = events
        .iter()
        .filter(|event| event["kind"] == "step_completed")
        .map(|event| event["step_key"].as_str().unwrap())
        .collect();
    let all = completed.len();
    completed.sort_unstable();
    completed.dedup();
    assert_eq!(completed.len(), all, "every step is committed once");
    let asked = json(&data_dir, &["requests", "list", "--all"], 0);
    assert!(asked.as_array().unwrap().iter().all(|request| request["state"] == "answered"), "{asked}");
    drop(served);
}

#[test]
fn a_folder_of_files_is_enough_for_an_agent() {
    let folder = tempfile::tempdir().unwrap();
    let data_dir = folder.path().join("data");
    let task = tiny_task::write(folder.path(), "gaussian", &[2]);
    let asked = folder.path().join("asked");
    let early = json(&data_dir, &["requests", "serve", asked.to_str().unwrap()], 6);
    assert_eq!(early["error"]["code"], "server.does_not_drive", "it keeps the database from no other server");
    let mut served = Serving::on(&data_dir, &[]);
    let run = begin(&data_dir, &task);
    let mut serving = nightshift(&data_dir)
        .args(["requests", "serve"])
        .arg(&asked)
        .args(["--of", &run])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary starts");
    let began = Instant::now();
    let (mut refusals, mut is_elsewhere) = (0, false);
    loop {
        assert!(began.elapsed() < LIMIT, "the run does not end");
        let folders = std::fs::read_dir(&asked).into_iter().flatten().flatten().map(|entry| entry.path());
        for request in folders.filter(|path| path.join("request.json").is_file()) {
            let text = std::fs::read_to_string(request.join("request.json")).unwrap_or_default();
            let Ok(taken) = serde_json::from_str::<Value>(&text) else { continue };
            if request.join("answer.md").exists() {
                continue;
            }
            refusals += u32::from(std::fs::remove_file(request.join("refused.md")).is_ok());
            match refusals {
                // Nothing that can be read.
                0 => drop(std::fs::create_dir(request.join("answer.md"))),
                1 => {
                    if !std::mem::replace(&mut is_elsewhere, true) {
                        drop(served);
                        served = Serving::on(&data_dir, &[]);
                    }
                    put(&request, "no answer");
                }
                _ => put(&request, &answer_of(&task, &taken)),
            }
        }
        match json(&data_dir, &["show", &run], 0)["summary"]["status"].as_str() {
            Some("running") => {}
            status => {
                assert_eq!(status, Some("completed"));
                break;
            }
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    serving.kill().unwrap();
    serving.wait().unwrap();
    assert!(refusals >= 2, "the reason of a refusal is a file");
    drop(served);
}

/// Writes an answer under another name first, as the documentation asks for. The folder may be gone by then.
fn put(request: &Path, text: &str) {
    let draft = request.join("draft.md");
    if std::fs::write(&draft, text).is_ok() {
        let _gone = std::fs::rename(&draft, request.join("answer.md"));
    }
}
