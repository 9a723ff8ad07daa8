//! Two builds on one database, one after the other: what one leaves unfinished, the other goes on with. The other build is
//! that of `NIGHTSHIFT_TEST_OTHER_RELEASE`; where none is named, this build takes both parts.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test stops at the first thing that is not as it should be"
)]

#[path = "support/binary.rs"]
#[expect(dead_code, reason = "each test file uses a part of it")]
mod binary;
#[path = "support/tiny_task.rs"]
mod tiny_task;

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use binary::{json_lines, nightshift};
use nightshift_testbed::postgres::Cluster;
use serde_json::Value;

/// The binary of another release.
const OTHER_RELEASE: &str = "NIGHTSHIFT_TEST_OTHER_RELEASE";
/// Maximum time that anything here is waited for.
const LIMIT: Duration = Duration::from_mins(2);
/// The error code of an older release for a database with migrations that it does not know.
const TOO_NEW: &str = "store.too_new";

/// A build.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Build {
    This,
    Other,
}

fn other_release() -> Option<OsString> {
    std::env::var_os(OTHER_RELEASE)
}

/// A command of a build, on the database at this address or on SQLite.
#[expect(clippy::disallowed_methods, reason = "whole-system tests run the binary")]
fn command(build: Build, data_dir: &Path, database: Option<&str>) -> Command {
    let mut command = nightshift(data_dir);
    if build == Build::Other
        && let Some(path) = other_release()
    {
        let environment: Vec<_> =
            command.get_envs().map(|(name, value)| (name.to_owned(), value.map(OsString::from))).collect();
        command = Command::new(path);
        command.arg("--data-dir").arg(data_dir).stdin(Stdio::null());
        for (name, value) in environment {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
    }
    match database {
        Some(url) => command.env("DATABASE_URL", url),
        None => command.env_remove("DATABASE_URL"),
    };
    command
}

fn has_runs(build: Build, data_dir: &Path, database: Option<&str>) -> bool {
    let listed = command(build, data_dir, database).args(["list", "runs", "--json"]).output().unwrap();
    json_lines(&listed).pop().is_some_and(|page| page["items"].as_array().is_some_and(|items| !items.is_empty()))
}

fn status(data_dir: &Path, database: Option<&str>) -> (String, usize) {
    let listed = command(Build::This, data_dir, database).args(["list", "runs", "--json"]).output().unwrap();
    let page = json_lines(&listed).pop().unwrap_or_default();
    let run = &page["items"][0];
    let id = run["id"].as_str().unwrap_or_default();
    let log = command(Build::This, data_dir, database).args(["logs", id, "--json"]).output().unwrap();
    let steps = json_lines(&log).iter().filter(|event| event["kind"] == "step_completed").count();
    (run["status"].as_str().unwrap_or_default().to_owned(), steps)
}

/// One build begins a campaign and is killed after its first step; the other one ends it, or refuses the database as a
/// whole, and then the first one ends it.
fn hand_over(first: Build, second: Build, postgres: bool) {
    let folder = tempfile::tempdir().unwrap();
    let data_dir = folder.path().join("data");
    let database = postgres.then(|| Cluster::shared().create_database().expect("a database"));
    let url = database.as_ref().map(|database| database.url.as_str());
    let task = tiny_task::write(folder.path(), "gaussian", &[16, 2]);
    let mut begun = command(first, &data_dir, url);
    begun.arg("run").arg(&task).args(["--model", "scripted", "--exit", "--json"]);
    let mut begun = begun.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let began = Instant::now();
    // Only its own server is asked: a command that comes before it would start one for its question.
    while !data_dir.join("server.json").is_file() || !has_runs(first, &data_dir, url) {
        assert!(began.elapsed() < LIMIT && begun.try_wait().unwrap().is_none(), "{first:?} does not begin");
        std::thread::park_timeout(Duration::from_millis(5));
    }
    begun.kill().unwrap();
    begun.wait().unwrap();

    let resumed = command(second, &data_dir, url).args(["resume", "--exit", "--json"]).output().unwrap();
    let answer: Value = json_lines(&resumed).pop().unwrap_or_default();
    if second == Build::Other && answer["error"]["code"] == TOO_NEW {
        // That it refuses all of it is what it may do; nothing may be lost by it.
        let ended = command(first, &data_dir, url).args(["resume", "--exit", "--json"]).output().unwrap();
        assert!(ended.status.success(), "{ended:?}");
    } else {
        assert!(resumed.status.success(), "{first:?} to {second:?}: {resumed:?}");
    }
    let (status, steps) = status(&data_dir, url);
    assert_eq!(status, "completed", "{first:?} to {second:?}");
    assert!(steps > 5, "{steps} steps");
}

#[test]
fn an_upgrade_goes_on_with_what_the_other_build_left() {
    hand_over(Build::Other, Build::This, false);
    hand_over(Build::Other, Build::This, true);
}

#[test]
fn a_way_back_goes_on_or_refuses_the_database_and_loses_nothing() {
    hand_over(Build::This, Build::Other, false);
    hand_over(Build::This, Build::Other, true);
}
