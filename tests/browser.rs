//! The pages in a real browser, as people use them: `tests/browser` holds the tests, this starts what they look at.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "a test stops at the first thing that is not as it should be"
)]

#[path = "support/binary.rs"]
mod binary;
#[path = "support/serving.rs"]
mod serving;
#[path = "support/tiny_task.rs"]
mod tiny_task;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use binary::{expect_exit, json_lines, nightshift};
use serde_json::{Value, json};
use serving::{Serving, browser};

/// What a model could write into its plan.
const SMUGGLED: &str =
    "<script>document.title = 'taken over'</script><img src=x onerror=\"document.title='taken over'\">";

/// Longest wait for a run that waits for a person.
const MAX_WAIT: Duration = Duration::from_mins(1);

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/browser")
}

/// A campaign that ended, with a hostile plan: its ids.
fn campaign(folder: &Path, data_dir: &Path) -> (String, String) {
    let task = tiny_task::write(folder, "gaussian", &[16, 2]);
    let plan = json!({
        "summary": SMUGGLED,
        "subtasks": [{ "title": "all", "scope": ["gaussian"], "fusion_boundary": SMUGGLED }],
    });
    std::fs::write(task.join("replies/plan.md"), format!("```json\n{plan}\n```\n")).unwrap();
    expect_exit(nightshift(data_dir).arg("run").arg(&task).args(["--model", "scripted", "--exit"]), 0);
    let listed = json_lines(&expect_exit(nightshift(data_dir).args(["list", "runs", "--json"]), 0));
    let run = &listed[0]["items"][0];
    (run["campaign"].as_str().unwrap().to_owned(), run["id"].as_str().unwrap().to_owned())
}

/// Begins a campaign that waits for approval of its plan, on the server of this data folder. Returns its run.
fn waiting_run(folder: &Path, data_dir: &Path, task: &str) -> String {
    let task = tiny_task::write(folder, task, &[16, 2]);
    // Should the first plan be rejected, the script makes the same one again.
    std::fs::copy(task.join("replies/plan.md"), task.join("replies/replan2.md")).unwrap();
    let mut submitting = nightshift(data_dir)
        .arg("run")
        .arg(&task)
        .args(["--model", "scripted", "--approve", "plan", "--new"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let name = task.file_name().and_then(|name| name.to_str()).unwrap().to_owned();
    let began = Instant::now();
    let run = loop {
        assert!(began.elapsed() < MAX_WAIT, "no run waits for a person");
        let listed = json_lines(&expect_exit(nightshift(data_dir).args(["list", "runs", "--json"]), 0));
        let runs = listed[0]["items"].as_array().unwrap();
        let found = runs.iter().find(|run| run["digest"]["task"] == name.as_str() && run["awaits"].is_array());
        if let Some(id) = found.and_then(|run| run["id"].as_str()) {
            break id.to_owned();
        }
        std::thread::park_timeout(Duration::from_millis(20));
    };
    // The server goes on without the command that asked.
    submitting.kill().unwrap();
    submitting.wait().unwrap();
    run
}

/// Begins a run that fails, because its script has no reply to the first question. Returns it.
fn failed_run(folder: &Path, data_dir: &Path) -> String {
    let task = tiny_task::write(folder, "gaussian_without_plan", &[16]);
    std::fs::remove_file(task.join("replies/plan.md")).unwrap();
    let mut running = nightshift(data_dir);
    running.arg("run").arg(&task).args(["--model", "scripted", "--new", "--json"]);
    let output = running.output().unwrap();
    assert!(!output.status.success(), "a run without replies cannot end well");
    let listed = json_lines(&expect_exit(nightshift(data_dir).args(["list", "runs", "--json"]), 0));
    let runs = listed[0]["items"].as_array().unwrap();
    let found = runs.iter().find(|run| run["status"] == "failed");
    found.and_then(|run| run["id"].as_str()).expect("a run that failed").to_owned()
}

/// A campaign of those that were generated into this data folder.
fn generated_campaign(data_dir: &Path) -> String {
    let listed = json_lines(&expect_exit(nightshift(data_dir).args(["list", "campaigns", "--json"]), 0));
    let campaigns = listed[0]["items"].as_array().unwrap();
    let found =
        campaigns.iter().find(|campaign| campaign["name"].as_str().is_some_and(|name| name.starts_with("night ")));
    found.and_then(|campaign| campaign["id"].as_str()).expect("a generated campaign").to_owned()
}

/// A token that a server made for the commands of its machine.
fn token_of(data_dir: &Path, name: &str) -> String {
    let file = std::fs::read_to_string(data_dir.join("server.json")).unwrap();
    let file: Value = serde_json::from_str(&file).unwrap();
    file[name].as_str().expect("server.json has that token").to_owned()
}

/// Runs the tests of the folder against a server; what they printed is told when one failed.
fn held(facts: &Value) {
    #[expect(clippy::disallowed_methods, reason = "the tests of the pages are run by node")]
    let output = Command::new("node")
        .args(["--test", "--test-concurrency=1", "--test-reporter=spec"])
        .arg(folder())
        .env("NIGHTSHIFT_BROWSER_FACTS", facts.to_string())
        .output()
        .expect("node runs: install it (package nodejs)");
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{told}\n{}", String::from_utf8_lossy(&output.stderr));
    eprintln!("{told}");
}

/// Returns the folder for pictures of the pages, from the environment.
#[expect(clippy::disallowed_methods, reason = "the environment names the folder for pictures")]
fn pictures() -> Option<String> {
    std::env::var("NIGHTSHIFT_TEST_PICTURES").ok()
}

#[test]
fn the_pages_hold_in_a_browser() {
    assert!(
        folder().join("node_modules/playwright-core").is_dir(),
        "the tests of the pages need their packages: `npm ci --prefix tests/browser`, or `cargo xtask test --install`"
    );
    let scratch = tempfile::tempdir().unwrap();
    let scratch = scratch.path();
    let data_dir = scratch.join("data");
    let (campaign, run) = campaign(scratch, &data_dir);
    expect_exit(nightshift(&data_dir).args(["__generate", "--attempts", "400", "--complete", "20"]), 0);
    let many = generated_campaign(&data_dir);
    let serving = Serving::on(&data_dir, &["--no-worker"]);
    let acting_dir = scratch.join("acting");
    let acting = Serving::on(&acting_dir, &[]);
    let waiting = ["gaussian_a", "gaussian_b", "gaussian_c"].map(|task| waiting_run(scratch, &acting_dir, task));
    let failed = failed_run(scratch, &acting_dir);
    let hostile_dir = scratch.join("hostile");
    expect_exit(nightshift(&hostile_dir).args(["__generate", "--hostile"]), 0);
    let hostile = Serving::on(&hostile_dir, &["--no-worker"]);
    held(&json!({
        "acting": {
            "base": acting.address, "token": token_of(&acting_dir, "token"), "workerToken": token_of(&acting_dir, "worker_token"),
            "run": waiting[0], "second": waiting[1], "third": waiting[2], "failed": failed,
        },
        "base": serving.address,
        "binary": env!("CARGO_BIN_EXE_nightshift"),
        "browser": browser(),
        "campaign": campaign,
        "empty": scratch.join("empty"),
        "hostile": {
            "base": hostile.address, "token": token_of(&hostile_dir, "token"),
            "workerToken": token_of(&hostile_dir, "worker_token"),
        },
        "many": { "campaign": format!("/campaigns/{many}") },
        "pages": {
            "campaigns": "/",
            "campaign": format!("/campaigns/{many}"),
            "small-campaign": format!("/campaigns/{campaign}"),
            "run": format!("/runs/{run}"),
            "attempt": format!("/runs/{run}/attempts/2"),
            "attempt-profile": format!("/runs/{run}/attempts/2?tab=profile"),
            "attempt-checks": format!("/runs/{run}/attempts/2?tab=checks"),
            "attempt-conversation": format!("/runs/{run}/attempts/2?tab=conversation"),
            "difference": format!("/runs/{run}/attempts/2?diff=parent&view=split"),
            "compare": format!("/compare?a={run}/1&a={run}/2"),
            "attempts": "/attempts?sort=speedup",
            "tasks": "/tasks",
            "models": "/models",
            "search": "/search?q=gaussian",
            "workers": "/workers",
            "health": "/health",
            "views": "/views?of=attempts&query=sort%3Dspeedup",
            "webhooks": "/webhooks",
            "admin": "/admin",
            "sign-in": "/sign-in",
        },
        "pictures": pictures(),
        "run": run,
        "task": tiny_task::write(scratch, "gaussian_late", &[16]),
    }));
}
