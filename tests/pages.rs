//! The pages in a real browser: what a campaign left behind can be read, and what a model wrote stays text.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test stops at the first thing that is not as it should be"
)]

#[path = "support/binary.rs"]
mod binary;
#[path = "support/serving.rs"]
mod serving;
#[path = "support/tiny_task.rs"]
mod tiny_task;

use std::path::Path;

use binary::{expect_exit, json_lines, nightshift};
use serving::{Serving, browser};

/// What a model could write into its plan.
const SMUGGLED: &str = "<script>document.title = 'taken over'</script>";

/// The page as the browser has it after its scripts, if it had any, have run.
#[expect(clippy::disallowed_methods, reason = "the test runs a browser")]
fn page(address: &str, profile: &Path) -> String {
    let output = std::process::Command::new(browser())
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(address)
        .output()
        .expect("the browser runs");
    let dom = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(dom.contains("<html"), "{address}: {}", String::from_utf8_lossy(&output.stderr));
    dom
}

#[test]
fn what_a_campaign_left_behind_can_be_read_in_a_browser() {
    let folder = tempfile::tempdir().unwrap();
    let profile = folder.path().join("browser");
    let task = tiny_task::write(folder.path(), "gaussian", &[16, 2]);
    let plan = format!(
        r#"{{"summary": "{SMUGGLED}", "subtasks": [{{"title": "all", "scope": ["gaussian"], "fusion_boundary": "none"}}]}}"#
    );
    std::fs::write(task.join("replies/plan.md"), format!("```json\n{plan}\n```\n")).unwrap();
    let data_dir = folder.path().join("data");

    let empty = Serving::on(&data_dir, &["--no-worker"]);
    assert!(page(&empty.address, &profile).contains("No campaign yet"), "an empty store says how to begin");
    drop(empty);

    expect_exit(nightshift(&data_dir).arg("run").arg(&task).args(["--model", "scripted", "--exit"]), 0);
    let listed = json_lines(&expect_exit(nightshift(&data_dir).args(["list", "runs", "--json"]), 0));
    let run = listed[0]["items"][0].clone();
    let (run, campaign) = (run["id"].as_str().unwrap().to_owned(), run["campaign"].as_str().unwrap().to_owned());

    let serving = Serving::on(&data_dir, &["--no-worker"]);
    let base = &serving.address;
    let list = page(base, &profile);
    assert!(list.contains(&format!("/campaigns/{campaign}")) && list.contains("scripted"), "{list}");
    let of_campaign = page(&format!("{base}/campaigns/{campaign}"), &profile);
    assert!(of_campaign.contains("gaussian") && of_campaign.contains(&format!("/runs/{run}")), "{of_campaign}");
    let of_run = page(&format!("{base}/runs/{run}"), &profile);
    assert!(of_run.contains("subtask1/attempt2/measure"), "{of_run}");
    assert!(of_run.contains("&lt;script&gt;"), "what a model wrote is shown as text");
    assert!(!of_run.contains("<title>taken over"), "and never runs");
    let tabs: [(&str, &[&str]); 3] = [
        ("overview", &["Numerically correct", "Speedup over the fastest baseline", "Paired ratios"]),
        ("source", &["NS_EXPORT", "ns_run"]),
        ("checks", &["interleaved pairs"]),
    ];
    for (tab, parts) in tabs {
        let of_attempt = page(&format!("{base}/runs/{run}/attempts/2?tab={tab}"), &profile);
        for part in parts {
            assert!(of_attempt.contains(part), "{part} on the tab {tab}: {of_attempt}");
        }
    }
    let missing = page(&format!("{base}/runs/run_{}", "0".repeat(32)), &profile);
    assert!(missing.contains("This page cannot be shown") && missing.contains("run.not_found"), "{missing}");
}
