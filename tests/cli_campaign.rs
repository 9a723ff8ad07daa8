//! A small campaign by every command: run, list, show, logs, watch, pause, resume, cancel, export, record.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test stops at the first thing that is not as it should be"
)]

#[path = "support/binary.rs"]
mod binary;
#[path = "support/tiny_task.rs"]
mod tiny_task;

use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use binary::{expect_exit, json_lines, nightshift};
use nightshift_protocol::artifact::ArtifactHash;
use serde_json::Value;

/// Maximum time that anything here is waited for.
const LIMIT: Duration = Duration::from_mins(2);

fn json(data_dir: &Path, args: &[&str], code: i32) -> Vec<Value> {
    json_lines(&expect_exit(nightshift(data_dir).args(args).arg("--json"), code))
}

#[test]
fn a_finished_campaign_can_be_read_by_every_command() {
    let folder = tempfile::tempdir().unwrap();
    let data_dir = folder.path().join("data");
    let task = tiny_task::write(folder.path(), "gaussian", &[16, 2]);
    let recorded = folder.path().join("recorded");
    let output = expect_exit(
        nightshift(&data_dir)
            .arg("run")
            .arg(&task)
            .args(["--model", "scripted", "--name", "small", "--exit", "--json", "--record"])
            .arg(&recorded),
        0,
    );
    let progress = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(progress.contains("gaussian") && progress.contains("attempt"), "plain lines in a pipe: {progress}");
    let result = json_lines(&output).remove(0);
    assert_eq!(result["succeeded"], true);
    let detail = &result["runs"][0];
    let run = detail["summary"]["id"].as_str().unwrap();
    let campaign = detail["summary"]["campaign"].as_str().unwrap();
    let ending = &run[run.len() - 8..];

    assert_eq!(json(&data_dir, &["list"], 0)[0]["items"][0]["name"], "small");
    assert_eq!(json(&data_dir, &["list", "runs", "--campaign", campaign], 0)[0]["items"][0]["id"], run);
    assert_eq!(json(&data_dir, &["list", "runs", "--status", "failed"], 0)[0]["items"], serde_json::json!([]));
    // The server that decided for it has ended meanwhile.
    let without_owner = |detail: &Value| {
        let mut detail = detail.clone();
        detail["summary"].as_object_mut().unwrap().remove("owner");
        detail
    };
    let shown = json(&data_dir, &["show", ending], 0).remove(0);
    assert!(without_owner(&shown) == without_owner(detail), "the short ending is enough");
    assert_eq!(json(&data_dir, &["show", campaign], 0)[0]["summary"]["id"], campaign);
    assert_eq!(json(&data_dir, &["show", &format!("{ending}/2")], 0)[0]["number"], 2);
    assert_eq!(json(&data_dir, &["show", &format!("{ending}/9")], 3)[0]["error"]["code"], "attempt.not_found");
    assert_eq!(json(&data_dir, &["show", "run_"], 0)[0]["summary"]["id"], run, "a unique beginning is enough");

    let events = json(&data_dir, &["logs", ending], 0);
    assert_eq!(events[0]["kind"], "run_created");
    assert_eq!(events.last().unwrap()["kind"], "run_completed");
    assert_eq!(json(&data_dir, &["watch", ending], 0), events, "there is nothing more to watch");
    assert_eq!(json(&data_dir, &["watch", campaign], 0)[0]["id"], run);

    let plan = &json(&data_dir, &["logs", ending, "--step", "plan"], 0)[0];
    let texts = plan["texts"].as_array().unwrap();
    let reply = texts.iter().find(|text| text["name"].as_str().unwrap().starts_with("reply")).expect("the reply");
    assert!(reply["text"].as_str().unwrap().contains("Evaluate the exponential fewer times"));
    assert!(texts.iter().any(|text| text["name"].as_str().unwrap().starts_with("prompt")), "the prompt");
    let build = &json(&data_dir, &["logs", ending, "--step", "subtask1/attempt1/build"], 0)[0];
    assert_eq!(build["texts"][0]["name"], "compiler output");
    assert_eq!(json(&data_dir, &["logs", ending, "--step", "nosuch"], 3)[0]["error"]["code"], "step.not_found");

    assert_eq!(json(&data_dir, &["pause", campaign], 0)[0]["runs"], serde_json::json!([]), "it is over");
    assert_eq!(json(&data_dir, &["retry", run], 4)[0]["error"]["code"], "request.illegal_transition");

    let text =
        String::from_utf8_lossy(&expect_exit(nightshift(&data_dir).args(["show", ending]), 0).stdout).into_owned();
    assert!(text.contains("correct_faster") && text.contains("written beforehand"), "{text}");

    archive(&data_dir, folder.path(), campaign, run);
    play_back(folder.path(), &recorded);
}

#[test]
fn a_folder_that_cannot_take_a_recording_is_refused_before_anything_begins() {
    let folder = tempfile::tempdir().unwrap();
    let data_dir = folder.path().join("data");
    let task = tiny_task::write(folder.path(), "gaussian", &[16, 2]);
    for record in ["/dev/null", "/dev/null/below"] {
        let mut command = nightshift(&data_dir);
        command.arg("run").arg(&task).args(["--model", "scripted", "--exit", "--json", "--record", record]);
        let refused = json_lines(&expect_exit(&mut command, 1)).remove(0);
        assert_eq!(refused["error"]["code"], "output.failed", "{refused}");
        assert!(!data_dir.join("nightshift.db").exists());
    }
}

#[test]
fn a_result_is_shown_although_its_recording_cannot_be_written() {
    let folder = tempfile::tempdir().unwrap();
    let task = tiny_task::write(folder.path(), "gaussian", &[16, 2]);
    let recorded = folder.path().join("recorded");
    std::fs::create_dir(&recorded).unwrap();
    std::fs::write(recorded.join("gaussian"), "a file where the task's folder belongs").unwrap();
    let mut command = nightshift(&folder.path().join("data"));
    command.arg("run").arg(&task).args(["--model", "scripted", "--exit", "--json", "--record"]).arg(&recorded);
    let lines = json_lines(&expect_exit(&mut command, 1));
    assert_eq!(lines[0]["succeeded"], true);
    assert_eq!(lines[1]["error"]["code"], "output.failed");
}

/// The export holds every artifact it names, under its own hash.
fn archive(data_dir: &Path, folder: &Path, campaign: &str, run: &str) {
    let out = folder.join("archive.json");
    let args = ["export", campaign, "--format", "json", "--out", out.to_str().unwrap()];
    let said = json(data_dir, &args, 0).remove(0);
    assert_eq!(said["missing"], serde_json::json!([]));
    assert_eq!(json(data_dir, &args, 2)[0]["error"]["code"], "usage.file_exists");
    let archive: Value = serde_json::from_slice(&std::fs::read(&out).unwrap()).unwrap();
    assert_eq!(archive["format"], "nightshift-archive");
    assert_eq!(archive["version"], 1);
    assert_eq!(archive["runs"][0]["detail"]["summary"]["id"], run);
    assert!(archive["runs"][0]["events"].as_array().unwrap().len() > 5);
    let artifacts = archive["artifacts"].as_object().unwrap();
    assert_eq!(said["artifacts"], artifacts.len());
    for (hash, text) in artifacts {
        let bytes = base64::Engine::decode(&base64::prelude::BASE64_STANDARD, text.as_str().unwrap()).unwrap();
        assert_eq!(ArtifactHash::of(&bytes).as_str(), hash);
    }
    for attempt in archive["runs"][0]["detail"]["view"]["attempts"].as_array().unwrap() {
        assert!(artifacts.contains_key(attempt["source"].as_str().unwrap()), "the source of {}", attempt["number"]);
    }
}

/// What was recorded can be run as it is.
fn play_back(folder: &Path, recorded: &Path) {
    let task = recorded.join("gaussian");
    assert!(task.join("replies/plan.md").is_file());
    assert!(task.join("replies/subtask1.attempt2.write_code.md").is_file());
    let data_dir = folder.join("playback");
    let output =
        expect_exit(nightshift(&data_dir).arg("run").arg(&task).args(["--model", "scripted", "--exit", "--json"]), 0);
    assert_eq!(json_lines(&output)[0]["succeeded"], true);
}

#[test]
fn the_same_command_begins_a_new_campaign_only_after_the_last_one_ended() {
    let folder = tempfile::tempdir().unwrap();
    let data_dir = folder.path().join("data");
    let task = tiny_task::write(folder.path(), "gaussian", &[16, 2]);
    // Without a compiler the campaign is created, at most, and stays unfinished.
    let run = |broken: bool, code: i32| {
        let mut command = nightshift(&data_dir);
        command.arg("run").arg(&task).args(["--model", "scripted", "--exit"]);
        if broken {
            command.env("NIGHTSHIFT_WORKER__CPP_COMPILER", "/nonexistent/c++");
        }
        expect_exit(&mut command, code);
    };
    run(true, 6);
    run(true, 6);
    run(false, 0);
    assert_eq!(json(&data_dir, &["list"], 0)[0]["items"].as_array().unwrap().len(), 1);
    run(false, 0);
    assert_eq!(json(&data_dir, &["list"], 0)[0]["items"].as_array().unwrap().len(), 2);
}

#[test]
fn an_ambiguous_id_lists_what_it_fits() {
    let folder = tempfile::tempdir().unwrap();
    let data_dir = folder.path().join("data");
    let tasks: Vec<_> =
        ["gaussian_a", "gaussian_b"].iter().map(|name| tiny_task::write(folder.path(), name, &[16, 2, 8])).collect();
    expect_exit(nightshift(&data_dir).arg("run").args(&tasks).args(["--model", "scripted", "--exit"]), 0);
    let error = json(&data_dir, &["show", "run_"], 3).remove(0)["error"].clone();
    assert_eq!(error["code"], "run.ambiguous");
    assert_eq!(error["details"]["matches"].as_array().unwrap().len(), 2);
}

/// Returns the run of a command that is still running. It waits until the command's server can be found. An earlier
/// query would start a second server, and both would compete for the database.
fn its_run(child: &mut Child, data_dir: &Path) -> String {
    let began = Instant::now();
    loop {
        assert!(child.try_wait().unwrap().is_none(), "it lasts long enough to be told something");
        assert!(began.elapsed() < LIMIT, "it takes too long");
        if !data_dir.join("server.json").is_file() {
            std::thread::park_timeout(Duration::from_millis(5));
            continue;
        }
        let listed = nightshift(data_dir).args(["list", "runs", "--json"]).output().unwrap();
        let page = json_lines(&listed).pop().unwrap_or_default();
        if let Some(id) = page["items"][0]["id"].as_str() {
            return id.to_owned();
        }
    }
}

/// Begins a campaign, kills its command, and returns its run.
fn left_behind(task: &Path, data_dir: &Path) -> String {
    let mut started = nightshift(data_dir);
    started.arg("run").arg(task).args(["--model", "scripted", "--exit"]);
    started.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    let mut child = started.spawn().unwrap();
    let run = its_run(&mut child, data_dir);
    child.kill().unwrap();
    child.wait().unwrap();
    run
}

#[test]
fn a_command_that_is_refused_pauses_nothing_or_says_what_it_paused() {
    let folder = tempfile::tempdir().unwrap();
    let data_dir = folder.path().join("data");
    let task = tiny_task::write(folder.path(), "gaussian", &[16, 2]);
    let left = left_behind(&task, &data_dir);
    let status = || json(&data_dir, &["show", &left], 0)[0]["summary"]["status"].clone();
    let unknown = format!("cmp_{}", "0".repeat(32));
    for (args, code) in [
        (["resume", "cmp_typo"], "id.not_found"),
        (["resume", &unknown], "campaign.not_found"),
        (["resume", "--campaign=cmp_typo"], "campaign.not_found"),
    ] {
        assert_eq!(json(&data_dir, &args, 3)[0]["error"]["code"], code, "{args:?}");
        assert_eq!(status(), "running", "{args:?}");
    }
    let mut run = nightshift(&data_dir);
    expect_exit(run.arg("run").arg(&task).args(["--model", "scripted", "--max-attempts", "201"]), 2);
    assert_eq!(status(), "running");

    // The server refuses the name after the command's start has paused the other campaign.
    let mut run = nightshift(&data_dir);
    let refused = expect_exit(run.arg("run").arg(&task).args(["--model", "scripted", "--name", " ", "--exit"]), 4);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(
        said.contains("campaign.invalid_name") && said.matches("paused an unfinished campaign").count() == 1,
        "{said}"
    );
    assert_eq!(status(), "paused");
}

#[test]
fn a_new_campaign_leaves_unfinished_ones_alone_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let data_dir = folder.path().join("data");
    let tasks = ["gaussian_a", "gaussian_b"].map(|name| tiny_task::write(folder.path(), name, &[16, 2]));
    let left = left_behind(&tasks[0], &data_dir);
    let steps_of = || {
        let log = json(&data_dir, &["logs", &left], 0);
        log.iter().filter(|event| event["kind"] == "step_completed").count()
    };
    let done = steps_of();

    let output =
        expect_exit(nightshift(&data_dir).arg("run").arg(&tasks[1]).args(["--model", "scripted", "--exit"]), 0);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        told.contains("paused an unfinished campaign") && told.contains("gaussian_a (") && told.contains("resume ID"),
        "{told}"
    );
    assert_eq!(steps_of(), done, "no step of the other campaign was carried out");
    assert_eq!(json(&data_dir, &["show", &left], 0)[0]["summary"]["status"], "paused");

    // The same command as before goes on with its campaign without a pause.
    let again = expect_exit(nightshift(&data_dir).arg("run").arg(&tasks[0]).args(["--model", "scripted", "--exit"]), 0);
    let told = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(told.contains("continuing the unfinished campaign") && !told.contains("paused an unfinished"), "{told}");
    assert_eq!(json(&data_dir, &["show", &left], 0)[0]["summary"]["status"], "completed");
}

#[test]
fn a_paused_run_stays_paused_until_it_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let data_dir = folder.path().join("data");
    let task = tiny_task::write(folder.path(), "gaussian", &[16, 2]);
    let mut started = nightshift(&data_dir);
    started.arg("run").arg(&task).args(["--model", "scripted", "--exit"]);
    started.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    let mut child = started.spawn().unwrap();
    let id = its_run(&mut child, &data_dir);
    let paused = json(&data_dir, &["pause", &id], 0).remove(0);
    assert_eq!(paused["runs"][0][1], "paused", "{paused}");
    assert_eq!(child.wait().unwrap().code(), Some(7), "what is left is paused");
    assert_eq!(json(&data_dir, &["resume", "--exit"], 0)[0]["runs"], serde_json::json!([]), "nothing was named");
    let result = json(&data_dir, &["resume", &id, "--exit"], 0).remove(0);
    assert_eq!(result["succeeded"], true);
}

#[test]
fn a_cancelled_run_is_over_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let data_dir = folder.path().join("data");
    let task = tiny_task::write(folder.path(), "gaussian", &[16, 2]);
    let mut broken = nightshift(&data_dir);
    broken.arg("run").arg(&task).args(["--model", "scripted", "--exit"]);
    broken.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    let mut child = broken.spawn().unwrap();
    let id = its_run(&mut child, &data_dir);
    json(&data_dir, &["cancel", &id], 0);
    assert_eq!(child.wait().unwrap().code(), Some(7));
    assert_eq!(json(&data_dir, &["show", &id], 0)[0]["summary"]["status"], "cancelled");
    assert_eq!(json(&data_dir, &["watch", &id], 7).last().unwrap()["kind"], "run_cancelled");
    let table = String::from_utf8_lossy(&expect_exit(nightshift(&data_dir).arg("list"), 0).stdout).into_owned();
    let cells = |line: &str| line.split(['│', '┆']).map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    let rows: Vec<Vec<String>> = table.lines().map(cells).filter(|cells| cells.len() > 2).collect();
    let row = rows.iter().find(|row| row.iter().any(|cell| cell == "gaussian")).expect("the campaign");
    let of = |name: &str| &row[rows[0].iter().position(|head| head == name).expect("the column")];
    assert_eq!((of("cancelled").as_str(), of("failed").as_str()), ("1", "0"), "who cancels does not fail: {table}");
}
