//! What people do to campaigns that go on, by the commands, against a server of the binary: on SQLite and on Postgres.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test stops at the first thing that is not as it should be"
)]

#[path = "support/binary.rs"]
mod binary;
#[path = "support/server.rs"]
mod server;
#[path = "support/tiny_task.rs"]
mod tiny_task;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use binary::{expect_exit, json_lines, nightshift};
use nightshift_testbed::postgres::Cluster;
use serde_json::{Value, json};
use server::Served;

const OPERATOR: &str = "the-operator-of-this-test";
/// Maximum time that anything here is waited for.
const LIMIT: Duration = Duration::from_mins(2);

/// A server, and how to speak to it.
struct Site {
    folder: tempfile::TempDir,
    served: Served,
    database: Option<nightshift_testbed::postgres::Database>,
}

impl Site {
    fn sqlite(args: &[&str]) -> Self {
        Self::start(args, None)
    }

    fn postgres(args: &[&str]) -> Self {
        let database = Cluster::shared().create_database().expect("a database");
        Self::start(args, Some(database))
    }

    fn start(args: &[&str], database: Option<nightshift_testbed::postgres::Database>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut command = nightshift(&folder.path().join("server"));
        command.env_remove("DATABASE_URL").env("NIGHTSHIFT_SERVER__TOKEN", OPERATOR);
        if let Some(database) = &database {
            command.env("DATABASE_URL", &database.url);
        }
        let served = Served::start(command, args);
        Self { folder, served, database }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = nightshift(&self.folder.path().join("client"));
        command
            .env_remove("DATABASE_URL")
            .env("NIGHTSHIFT_SERVER__TOKEN", OPERATOR)
            .args(["--server", &self.served.address])
            .args(args);
        command
    }

    fn json(&self, args: &[&str], code: i32) -> Value {
        json_lines(&expect_exit(self.command(args).arg("--json"), code)).pop().expect("a line")
    }

    fn text(&self, args: &[&str]) -> String {
        String::from_utf8_lossy(&expect_exit(&mut self.command(args), 0).stdout).into_owned()
    }

    fn task(&self, name: &str) -> PathBuf {
        tiny_task::write(self.folder.path(), name, &[16, 2])
    }

    /// `run` beside the test, until it is waited for or the test ends.
    fn begin(&self, tasks: &[&Path], args: &[&str]) -> Followed {
        let mut command = self.command(&["run"]);
        command.args(tasks).args(["--model", "scripted", "--name", "small", "--json"]).args(args);
        Followed(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    /// The runs, once there are so many.
    fn runs(&self, number: usize) -> Vec<String> {
        Self::wait(|| {
            let page = self.json(&["list", "runs"], 0);
            let runs: Vec<String> =
                page["items"].as_array()?.iter().map(|run| run["id"].as_str().unwrap().to_owned()).collect();
            (runs.len() == number).then_some(runs)
        })
    }

    fn wait<T>(mut look: impl FnMut() -> Option<T>) -> T {
        let began = Instant::now();
        loop {
            if let Some(found) = look() {
                return found;
            }
            assert!(began.elapsed() < LIMIT, "it takes too long");
        }
    }

    fn status(&self, run: &str) -> Value {
        self.json(&["show", run], 0)["summary"]["status"].clone()
    }
}

struct Followed(Child);

impl Followed {
    fn ended(mut self) -> Option<i32> {
        self.0.wait().unwrap().code()
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        // It has ended by itself in a test that passed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn error_code(output: &Output) -> Value {
    json_lines(output).pop().expect("a line")["error"]["code"].clone()
}

/// Bulk commands, limits, priority, tokens, archive: all that needs no work to be done.
fn a_fleet_is_steered(site: &Site) {
    let tasks = [site.task("gaussian_a"), site.task("gaussian_b"), site.task("gaussian_c")];
    let follow = site.begin(&tasks.iter().map(PathBuf::as_path).collect::<Vec<_>>(), &["--max-cost", "20"]);
    let runs = site.runs(3);
    let campaign = site.json(&["list"], 0)["items"][0]["id"].as_str().unwrap().to_owned();

    // Without a terminal, several runs need --yes; a dry run does nothing.
    let refused = expect_exit(site.command(&["pause", "--all"]).arg("--json"), 2);
    assert_eq!(error_code(&refused), "usage.not_confirmed");
    assert_eq!(error_code(&expect_exit(site.command(&["pause"]).arg("--json"), 2)), "usage.invalid");
    let meant = site.json(&["pause", "--campaign", &campaign, "--dry-run"], 0);
    assert_eq!(meant["done"].as_array().unwrap().len(), 3);
    assert!(runs.iter().all(|run| site.status(run) == "running"), "nothing was done");
    let old = site.json(&["pause", "--older-than", "2h", "--yes"], 0);
    assert_eq!(old["done"], json!([]), "none is that old");
    let one = site.json(&["pause", "--task", "gaussian_b"], 0);
    assert_eq!(one["done"][0][1], "paused", "a single run needs no word");
    let rest = site.json(&["pause", "--all", "--yes"], 0);
    assert_eq!(rest["done"].as_array().unwrap().len(), 2);
    assert_eq!(Some(7), follow.ended(), "what is left is paused");
    let events = expect_exit(&mut site.command(&["logs", &runs[0]]), 0);
    let log = String::from_utf8_lossy(&events.stdout).into_owned();
    assert!(log.contains("run_paused") && log.contains("by operator"), "{log}");

    assert_eq!(site.json(&["priority", &campaign, "-7"], 0)["priority"], -7);
    assert_eq!(site.json(&["limits", &campaign], 0)["priority"], -7, "what was set is what is shown");
    assert_eq!(site.json(&["priority", &runs[0][runs[0].len() - 8..], "9"], 0)["id"], runs[0].as_str());
    assert_eq!(site.json(&["show", &runs[0]], 0)["summary"]["priority"], 9);
    let text = site.text(&["limits", &campaign]);
    assert!(text.contains("priority: -7 to 9"), "one run has its own: {text}");
    limits(site, &campaign);

    let cancelled = site.json(&["cancel", "--status", "paused", "--yes"], 0);
    assert_eq!(cancelled["done"].as_array().unwrap().len(), 3);
    for run in &runs {
        Site::wait(|| (site.status(run) == "cancelled").then_some(()));
    }
    for over in [&runs[0], &campaign] {
        let refused = expect_exit(site.command(&["priority", over, "3"]).arg("--json"), 4);
        assert_eq!(error_code(&refused), "run.over", "a priority has no effect any more");
    }
    let retried = site.json(&["retry", "--status", "cancelled", "--yes"], 7);
    assert_eq!(retried["refused"].as_array().unwrap().len(), 3, "a run that was cancelled stays cancelled: {retried}");
    archive(site, &campaign, &runs[0]);
}

fn limits(site: &Site, campaign: &str) {
    let cap = |answer: &Value, resource: &str| {
        let lines = answer["budget"].as_array().unwrap().clone();
        lines.into_iter().find(|line| line["resource"] == resource).expect("a line")["cap"].clone()
    };
    let before = site.json(&["limits", campaign], 0);
    assert_eq!(cap(&before, "cost_microusd"), 20_000_000);
    let wall = before["budget"].as_array().unwrap().iter().find(|line| line["resource"] == "wall_ms").expect("a line");
    assert!(wall["used"].as_u64().unwrap() > 0, "time passes: {wall}");
    let args = ["limits", campaign, "--max-tokens", "1000", "--window", "20:00-07:30", "--time-zone", "Europe/Berlin"];
    let changed = site.json(&args, 0);
    assert_eq!((cap(&changed, "cost_microusd"), cap(&changed, "tokens")), (json!(20_000_000), json!(1000)));
    assert_eq!(changed["schedule"]["window"], "20:00-07:30");
    let text = site.text(&["show", campaign]);
    assert!(text.contains("tokens 0 of 1000") && text.contains("Europe/Berlin"), "{text}");
    let lifted = site.json(&["limits", campaign, "--no-max-cost", "--no-window", "--weight", "5"], 0);
    assert_eq!((cap(&lifted, "cost_microusd"), cap(&lifted, "tokens")), (Value::Null, json!(1000)));
    assert_eq!((&lifted["schedule"], &lifted["weight"]), (&Value::Null, &json!(5)));
    let both = expect_exit(site.command(&["limits", campaign, "--no-window", "--window", "1:0-2:0"]).arg("--json"), 2);
    assert_eq!(error_code(&both), "usage.invalid");
    let zone = expect_exit(site.command(&["limits", campaign, "--window", "20:00-07:30"]).arg("--json"), 2);
    assert_eq!(error_code(&zone), "usage.invalid", "a window needs a zone");
}

/// The archive of a campaign is rebuilt by another server, and a cut one is not.
fn archive(site: &Site, campaign: &str, run: &str) {
    let file = site.folder.path().join("campaign.nightshift");
    let out = file.to_str().unwrap();
    let said = site.json(&["export", campaign, "--out", out], 0);
    assert_eq!(said["bytes"], std::fs::metadata(&file).unwrap().len());
    assert!(!site.folder.path().join("campaign.nightshift.part").exists(), "nothing is left beside it");
    let again = expect_exit(site.command(&["export", campaign, "--out", out]).arg("--json"), 2);
    assert_eq!(error_code(&again), "usage.file_exists");
    let of_run = expect_exit(site.command(&["export", run, "--out", out, "--force"]).arg("--json"), 2);
    assert_eq!(error_code(&of_run), "usage.invalid");
    assert_eq!(site.json(&["import", out], 0)["existed"], true, "it is there already");

    let elsewhere = site.folder.path().join("elsewhere");
    let import = |file: &Path, code: i32| {
        let mut command = nightshift(&elsewhere);
        command.env_remove("DATABASE_URL").arg("import").arg(file).arg("--json");
        expect_exit(&mut command, code)
    };
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&file).unwrap().permissions());
    assert_eq!(mode & 0o077, 0, "only the owner can read it");
    let imported = json_lines(&import(&file, 0)).remove(0);
    assert_eq!((&imported["campaign"], &imported["existed"]), (&json!(campaign), &json!(false)));
    let mut show = nightshift(&elsewhere);
    show.env_remove("DATABASE_URL").args(["show", campaign, "--json"]);
    assert_eq!(json_lines(&expect_exit(&mut show, 0))[0]["summary"]["name"], "small");
    let whole = std::fs::read(&file).unwrap();
    let cut = site.folder.path().join("cut");
    std::fs::write(&cut, &whole[..whole.len() / 2]).unwrap();
    let code = error_code(&import(&cut, 4));
    assert!(code == "archive.cut" || code == "archive.unreadable", "{code}");
    assert_eq!(error_code(&import(&site.folder.path().join("none"), 4)), "archive.not_read");

    let young = site.json(&["prune", "--older-than", "1h", "--dry-run"], 0);
    assert_eq!(young["campaigns"], json!([]), "it ended just now");
    assert_eq!(site.json(&["prune", "--older-than", "30d"], 0)["campaigns"], json!([]), "nothing is left to confirm");
    assert_eq!(site.json(&["prune", "--older-than", "30d", "--yes"], 0)["more"], false);
}

/// Gates and hints: a run that waits for a person goes on when told so.
fn a_gate_is_opened(site: &Site) {
    let task = site.task("gaussian");
    let follow = site.begin(&[&task], &["--approve", "plan"]);
    let run = site.runs(1).remove(0);
    let short = &run[run.len() - 8..];
    Site::wait(|| (site.json(&["show", &run], 0)["summary"]["awaits"] == json!(["plan"])).then_some(()));
    let text = site.text(&["show", &run]);
    assert!(text.contains(&format!("nightshift approve {short} --gate plan")), "{text}");
    assert_eq!(site.json(&["hint", short, "Use fewer passes."], 0)["signal"]["text"], "Use fewer passes.");
    let empty = expect_exit(site.command(&["hint", short, " "]).arg("--json"), 4);
    assert_eq!(error_code(&empty), "signal.invalid_text");
    assert_eq!(site.json(&["approve", short], 0)["signal"]["gate"], "plan", "the one that it waits at");
    assert_eq!(follow.ended(), Some(0));
    let none = expect_exit(site.command(&["approve", short]).arg("--json"), 2);
    assert_eq!(error_code(&none), "usage.no_gate");
    let log = site.text(&["logs", short]);
    assert!(log.contains("by operator: hint: Use fewer passes."), "{log}");
    assert!(log.contains("by operator: approved: plan"), "{log}");
    a_link_is_made_and_ended(site, &run);
}

fn a_link_is_made_and_ended(site: &Site, run: &str) {
    let printed = site.text(&["share", "create", &run[run.len() - 8..], "--label", "the other team"]);
    let link = printed.trim();
    let (before, secret) = link.split_once('#').expect("the secret behind a hash");
    assert_eq!(before, format!("{}/sign-in?next=/runs/{run}", site.served.address), "the link alone: {printed}");
    let read = |code: i32| {
        let mut command = site.command(&["show", run, "--json"]);
        expect_exit(command.env("NIGHTSHIFT_SERVER__TOKEN", secret), code)
    };
    assert_eq!(json_lines(&read(0))[0]["summary"]["id"], run);
    let shares = site.json(&["share", "list"], 0);
    let share = &shares.as_array().unwrap()[0];
    assert_eq!((&share["target"], &share["label"]), (&json!(run), &json!("the other team")));
    let table = site.text(&["share", "list"]);
    assert!(table.contains("the other team") && !table.contains(secret), "secrets are never listed: {table}");
    let id = share["id"].as_str().unwrap();
    assert_eq!(site.json(&["share", "revoke", &id[id.len() - 8..]], 0)["id"], id);
    assert_eq!(error_code(&read(6)), "token.revoked");
    let unknown = expect_exit(site.command(&["share", "revoke", "ffffffffff"]).arg("--json"), 3);
    assert_eq!(error_code(&unknown), "share.not_found");
    let long = expect_exit(site.command(&["share", "create", run, "--valid-for", "999d"]).arg("--json"), 4);
    assert_eq!(error_code(&long), "share.invalid");
}

fn a_token_is_made_and_ended(site: &Site) {
    let created = site.json(&["token", "create", "the viewer", "--role", "viewer", "--valid-for", "30d"], 0);
    let (id, secret) = (created["token"]["id"].as_str().unwrap(), created["secret"].as_str().unwrap());
    let with = |args: &[&str]| {
        let mut command = site.command(args);
        command.env("NIGHTSHIFT_SERVER__TOKEN", secret).arg("--json");
        command
    };
    expect_exit(&mut with(&["list"]), 0);
    let denied = expect_exit(&mut with(&["token", "list"]), 6);
    assert_eq!(error_code(&denied), "access.role_needed");
    let printed = site.text(&["token", "create", "script", "--role", "worker"]);
    assert!(printed.starts_with("nst_") && printed.lines().count() == 1, "the secret alone: {printed}");
    assert!(!site.text(&["token", "list"]).contains(secret), "secrets are never listed");
    assert_eq!(site.json(&["token", "revoke", &id[id.len() - 8..]], 0)["id"], id);
    assert_eq!(error_code(&expect_exit(&mut with(&["list"]), 6)), "token.revoked");
    let unknown = expect_exit(site.command(&["token", "revoke", "ffffffffff"]).arg("--json"), 3);
    assert_eq!(error_code(&unknown), "token.not_found");
    let role = expect_exit(site.command(&["token", "create", "x", "--role", "king"]).arg("--json"), 2);
    assert_eq!(error_code(&role), "usage.invalid");
}

fn a_worker_is_drained(site: &Site) {
    let worker = Site::wait(|| {
        let workers = site.json(&["list", "workers"], 0);
        workers
            .as_array()?
            .iter()
            .find(|worker| worker["embedded"] == true && worker["offers"]["targets"][0] == "cpu")
            .cloned()
    });
    let id = worker["id"].as_str().unwrap();
    assert!(site.text(&["list", "workers"]).contains("cpu"), "its device is shown");
    assert_eq!(error_code(&expect_exit(site.command(&["drain", "missing"]).arg("--json"), 3)), "worker.not_found");
    assert_eq!(site.json(&["drain", &id[id.len() - 8..]], 0)["draining"], true);
    assert!(site.text(&["list", "workers"]).contains("draining"));
    let servers = site.json(&["list", "servers"], 0);
    assert!(servers.as_array().unwrap().iter().any(|server| server["name"] == "first" && server["alive"] == true));
}

/// A machine with a GPU that hangs introduces itself, and goes away.
fn introduce_a_machine_with_a_broken_gpu(site: &Site) {
    let machine = json!({ "host": "far", "os": "Linux", "processor": "some", "cores": 2, "features": [], "memory_bytes": 1,
        "last_level_cache_bytes": null, "cpp_toolchain": null,
        "sandbox": { "means": [], "isolates_files": true, "isolates_network": true } });
    let gpu = json!({ "index": 1, "target": "cuda", "name": "NVIDIA H200", "uuid": "GPU-8f2c11", "memory_bytes": 1,
        "shared_slots": 1, "quarantine": { "incident": 1, "code": "gpu.wedged", "reason": "a test process hangs" } });
    let offers = json!({ "targets": ["cuda"], "cpu_slots": 1, "devices": [gpu], "machine": machine });
    let worker = json!({ "name": "far", "embedded": false, "offers": offers, "version": "0" });
    let token = secrecy::SecretString::from(OPERATOR.to_owned());
    let client = nightshift_client::Client::new(&site.served.address, Some(token)).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(client.register_worker(&serde_json::from_value(worker).unwrap())).unwrap();
}

fn a_quarantined_gpu_is_shown_and_released(site: &Site) {
    let missing = expect_exit(site.command(&["release", "GPU-8f2c"]).arg("--json"), 3);
    assert_eq!(error_code(&missing), "device.not_found");
    introduce_a_machine_with_a_broken_gpu(site);
    let shown = site.text(&["list", "workers"]);
    for part in ["quarantined since", "GPU-8f2c11", "a test process hangs", "gpu.wedged"] {
        let words = part.split(' ').all(|word| shown.contains(word));
        assert!(words, "{part} is not shown:\n{shown}");
    }
    let released = site.json(&["release", "8f2c"], 0);
    assert_eq!((&released["device"], &released["worker_name"]), (&json!("GPU-8f2c11"), &json!("far")));
    assert!(released["released_at"].is_number() && released["quarantine"]["since"].is_number(), "{released}");
    assert!(site.text(&["release", "GPU-8f2c11"]).contains("tests it"), "again is no harm");
}

#[test]
fn a_fleet_on_sqlite_is_steered() {
    a_fleet_is_steered(&Site::sqlite(&["--no-worker"]));
}

#[test]
fn a_fleet_on_postgres_is_steered() {
    a_fleet_is_steered(&Site::postgres(&["--no-worker"]));
}

#[test]
fn a_gate_is_opened_on_sqlite() {
    a_gate_is_opened(&Site::sqlite(&[]));
}

#[test]
fn a_gate_is_opened_on_postgres() {
    a_gate_is_opened(&Site::postgres(&[]));
}

#[test]
fn tokens_workers_and_servers_on_sqlite() {
    let site = Site::sqlite(&["--name", "first"]);
    a_token_is_made_and_ended(&site);
    a_worker_is_drained(&site);
    a_quarantined_gpu_is_shown_and_released(&site);
}

#[test]
fn tokens_workers_and_servers_on_postgres() {
    let site = Site::postgres(&["--name", "first"]);
    a_token_is_made_and_ended(&site);
    a_worker_is_drained(&site);
    a_quarantined_gpu_is_shown_and_released(&site);
}

#[test]
fn with_postgres_the_data_folder_holds_no_database_and_doctor_looks_at_postgres() {
    let site = Site::postgres(&["--no-worker"]);
    let data_dir = site.folder.path().join("server");
    assert!(data_dir.join("server.json").is_file());
    assert!(!data_dir.join("nightshift.db").exists());
    let other = site.folder.path().join("other");
    let doctor = |url: &str| {
        let output = nightshift(&other).env("DATABASE_URL", url).args(["doctor", "--json"]).output().unwrap();
        let checks = json_lines(&output).remove(0)["checks"].as_array().unwrap().clone();
        checks.into_iter().find(|check| check["name"] == "database").expect("a check of the database")
    };
    let url = &site.database.as_ref().unwrap().url;
    let found = doctor(url);
    assert_eq!(found["state"], "ok", "{found}");
    assert!(found["found"].as_str().unwrap().contains("Postgres"), "{found}");
    let empty = Cluster::shared().create_database().expect("a database");
    let new = doctor(&empty.url);
    assert!(new["found"].as_str().unwrap().contains("is empty"), "{new}");
    assert!(doctor(&empty.url)["found"].as_str().unwrap().contains("is empty"), "a check creates nothing");
    let gone = doctor("postgres://user@127.0.0.1:1/nothing");
    assert_eq!(gone["state"], "problem");
    assert!(gone["found"].as_str().unwrap().contains("store.unreachable"), "{gone}");
}
