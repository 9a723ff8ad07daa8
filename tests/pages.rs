//! The pages in a real browser: what a campaign left behind can be read, and what a model wrote stays text.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test stops at the first thing that is not as it should be"
)]

#[path = "support/binary.rs"]
mod binary;
#[path = "support/tiny_task.rs"]
mod tiny_task;

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use binary::{expect_exit, json_lines, nightshift};

/// What a model could write into its plan.
const SMUGGLED: &str = "<script>document.title = 'taken over'</script>";

/// A server that ends with the test.
struct Serving {
    child: Child,
    address: String,
}

impl Serving {
    fn on(data_dir: &Path) -> Self {
        let mut child = nightshift(data_dir)
            .args(["serve", "--no-worker", "--bind", "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (stdout, stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let (found, address) = std::sync::mpsc::channel();
        for stream in [Box::new(stdout) as Box<dyn std::io::Read + Send>, Box::new(stderr)] {
            let found = found.clone();
            // Reads to the end, so that the server never waits for a full pipe.
            std::thread::spawn(move || {
                for line in BufReader::new(stream).lines().map_while(Result::ok) {
                    if let Some(address) = line.split_whitespace().find(|word| word.starts_with("http://")) {
                        let _ = found.send(address.to_owned());
                    }
                }
            });
        }
        let address = address.recv_timeout(std::time::Duration::from_secs(30)).expect("the server says its address");
        Self { child, address }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[expect(clippy::disallowed_methods, reason = "the test looks for a browser")]
fn browser() -> PathBuf {
    let path = std::env::var("PATH").unwrap_or_default();
    ["chromium", "chromium-browser", "google-chrome"]
        .iter()
        .flat_map(|name| std::env::split_paths(&path).map(move |folder| folder.join(name)))
        .find(|candidate| candidate.is_file())
        .expect("no browser: install one with `apt-get install chromium`, or run `cargo xtask test --install`")
}

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

    let empty = Serving::on(&data_dir);
    assert!(page(&empty.address, &profile).contains("No campaign yet"), "an empty store says how to begin");
    drop(empty);

    expect_exit(nightshift(&data_dir).arg("run").arg(&task).args(["--model", "scripted", "--exit"]), 0);
    let listed = json_lines(&expect_exit(nightshift(&data_dir).args(["list", "runs", "--json"]), 0));
    let run = listed[0]["items"][0].clone();
    let (run, campaign) = (run["id"].as_str().unwrap().to_owned(), run["campaign"].as_str().unwrap().to_owned());

    let serving = Serving::on(&data_dir);
    let base = &serving.address;
    let list = page(base, &profile);
    assert!(list.contains(&format!("/campaigns/{campaign}")) && list.contains("scripted"), "{list}");
    let of_campaign = page(&format!("{base}/campaigns/{campaign}"), &profile);
    assert!(of_campaign.contains("gaussian") && of_campaign.contains(&format!("/runs/{run}")), "{of_campaign}");
    let of_run = page(&format!("{base}/runs/{run}"), &profile);
    assert!(of_run.contains("subtask1/attempt2/measure"), "{of_run}");
    assert!(of_run.contains("&lt;script&gt;"), "what a model wrote is shown as text");
    assert!(!of_run.contains("<title>taken over"), "and never runs");
    let of_attempt = page(&format!("{base}/runs/{run}/attempts/2"), &profile);
    for part in ["Numerically correct", "interleaved pairs", "NS_EXPORT", "ns_run"] {
        assert!(of_attempt.contains(part), "{part} in {of_attempt}");
    }
    let missing = page(&format!("{base}/runs/run_{}", "0".repeat(32)), &profile);
    assert!(missing.contains("This page cannot be shown") && missing.contains("run.not_found"), "{missing}");
}
