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
use std::process::Command;

use binary::{expect_exit, json_lines, nightshift};
use serde_json::{Value, json};
use serving::{Serving, browser};

/// What a model could write into its plan.
const SMUGGLED: &str =
    "<script>document.title = 'taken over'</script><img src=x onerror=\"document.title='taken over'\">";

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

/// Where pictures of the pages are kept, when somebody wants them.
#[expect(clippy::disallowed_methods, reason = "who wants pictures says where, in the environment")]
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
    let data_dir = scratch.path().join("data");
    let (campaign, run) = campaign(scratch.path(), &data_dir);
    let serving = Serving::on(&data_dir, &["--no-worker"]);
    held(&json!({
        "base": serving.address,
        "browser": browser(),
        "pictures": pictures(),
        "campaign": campaign,
        "run": run,
        "pages": {
            "campaigns": "/",
            "campaign": format!("/campaigns/{campaign}"),
            "run": format!("/runs/{run}"),
            "attempt": format!("/runs/{run}/attempts/2"),
        },
    }));
}
