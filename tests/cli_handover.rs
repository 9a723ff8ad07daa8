//! A campaign whose programs are built, checked and measured on another machine, and whose models are an outside agent:
//! files go there and back, and nothing is lost or done twice.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test stops at the first thing that is not as it should be"
)]

#[path = "support/binary.rs"]
mod binary;
#[path = "support/outside_agent.rs"]
mod outside_agent;
#[path = "support/processes.rs"]
#[expect(dead_code, reason = "other tests look at single processes")]
mod processes;
#[path = "support/serving.rs"]
#[expect(dead_code, reason = "other tests look for a browser")]
mod serving;
#[path = "support/tiny_task.rs"]
mod tiny_task;

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use binary::{expect_exit, json_lines, nightshift};
use outside_agent::answer_of;
use serde_json::Value;
use serving::Serving;

/// Maximum time that anything here is waited for.
const LIMIT: Duration = Duration::from_mins(10);

fn json(data_dir: &Path, args: &[&str], code: i32) -> Value {
    let mut lines = json_lines(&expect_exit(nightshift(data_dir).args(args).arg("--json"), code));
    assert_eq!(lines.len(), 1, "{lines:?}");
    lines.remove(0)
}

/// Two machines: a server without a worker, and a folder elsewhere.
struct Machines {
    folder: tempfile::TempDir,
    here: PathBuf,
    there: PathBuf,
    task: PathBuf,
    campaign: String,
    run: String,
    server: Serving,
}

impl Machines {
    /// A campaign that waits for a worker, on a server that has none.
    fn begin() -> Self {
        Self::with(|folder| tiny_task::write(folder, "gaussian", &[2]))
    }

    /// The same with the task that is written to a folder.
    fn with(write: impl FnOnce(&Path) -> PathBuf) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (here, there) = (folder.path().join("here"), folder.path().join("there"));
        let task = write(folder.path());
        let server = Serving::on(&here, &["--no-worker"]);
        let mut command = nightshift(&here);
        command.arg("run").arg(&task).args(["--model", "external", "--max-attempts", "1", "--allow-unsandboxed"]);
        let mut following = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the binary starts");
        let began = Instant::now();
        let run = loop {
            assert!(began.elapsed() < LIMIT, "no campaign was created");
            let runs = json(&here, &["list", "runs"], 0);
            if let Some(run) = runs["items"].get(0) {
                break run.clone();
            }
            std::thread::sleep(Duration::from_millis(100));
        };
        following.kill().unwrap();
        following.wait().unwrap();
        let (campaign, run) = (run["campaign"].as_str().unwrap().to_owned(), run["id"].as_str().unwrap().to_owned());
        Self { folder, here, there, task, campaign, run, server }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    fn create(&self, out: &str, further: &[&str], code: i32) -> Value {
        let out = self.path(out);
        json(&self.here, &[&["handover", "create", &self.campaign, "--out", &out], further].concat(), code)
    }

    fn carry_out(&self, file: &str, out: &str, code: i32) -> Value {
        let (file, out) = (self.path(file), self.path(out));
        json(&self.there, &["handover", "run", &file, "--out", &out, "--for", "4m"], code)
    }

    fn finish(&self, file: &str, code: i32) -> Value {
        json(&self.here, &["handover", "finish", &self.path(file)], code)
    }

    fn error_of(answer: &Value) -> &str {
        answer["error"]["code"].as_str().unwrap_or_else(|| panic!("no error: {answer}"))
    }

    /// Answers requests here until none is open; how many.
    fn answer_all(&self) -> usize {
        let mut answered = 0;
        loop {
            let args = ["requests", "next", "--of", &self.run, "--wait", "5", "--json"];
            let output = nightshift(&self.here).args(args).output().unwrap();
            let taken: Value = serde_json::from_slice(&output.stdout).unwrap();
            if taken["error"]["code"] == "request.none" {
                return answered;
            }
            let (id, lease) = (taken["request"]["id"].as_str().unwrap(), taken["lease"].as_str().unwrap());
            let file = self.path("answer.txt");
            std::fs::write(&file, answer_of(&self.task, &taken)).unwrap();
            json(&self.here, &["requests", "answer", id, "--lease", lease, "--file", &file], 0);
            answered += 1;
        }
    }

    fn summary(&self) -> Value {
        json(&self.here, &["show", &self.run], 0)["summary"].clone()
    }
}

#[test]
fn a_campaign_is_carried_out_elsewhere_and_answered_here_until_its_result_is_confirmed() {
    let machines = Machines::begin();
    let began = Instant::now();
    let (mut answered, mut rounds) = (0, 0);
    while machines.summary()["status"] == "running" {
        assert!(began.elapsed() < LIMIT, "{}", machines.summary());
        rounds += 1;
        let (out, back) = (format!("out{rounds}"), format!("back{rounds}"));
        // The machine keeps what it had.
        let before = machines.path(&format!("back{}", rounds - 1));
        let since: &[&str] = if rounds == 1 { &[] } else { &["--since", &before] };
        let created = machines.create(&out, since, 0);
        assert_eq!(created["left_out"].as_u64().unwrap() > 0, rounds > 1, "{created}");
        let carried = machines.carry_out(&out, &back, 0);
        assert!(matches!(carried["until"].as_str(), Some("waits" | "ended")), "{carried}");
        assert_eq!(machines.finish(&back, 0)["repeated"], false);
        answered += machines.answer_all();
    }
    let detail = json(&machines.here, &["show", &machines.run], 0);
    assert_eq!(detail["summary"]["status"], "completed", "{detail}");
    assert_eq!(
        (&detail["view"]["best_attempt"], &detail["summary"]["digest"]["best_confirmed"]),
        (&1.into(), &true.into())
    );
    assert!(answered >= 2 && rounds >= 2, "{answered} answers in {rounds} rounds");
    let events = json_lines(&expect_exit(nightshift(&machines.here).args(["logs", &machines.run, "--json"]), 0));
    let mut completed: Vec<&str> = events
        .iter()
        .filter(|event| event["kind"] == "step_completed")
        .map(|event| event["step_key"].as_str().unwrap())
        .collect();
    let all = completed.len();
    completed.sort_unstable();
    completed.dedup();
    assert_eq!(completed.len(), all, "every step is committed once");
    // The first result again: another one was brought back since, and nothing changes.
    assert_eq!(machines.finish("back1", 0)["repeated"], true);
    assert_eq!(json(&machines.here, &["show", &machines.run], 0)["summary"], detail["summary"]);
    let source = json(&machines.here, &["show", &format!("{}/1", machines.run)], 0);
    assert!(source.to_string().contains("measure"), "the evidence is here: {source}");
}

#[test]
fn a_campaign_is_in_one_place_and_files_that_do_not_belong_are_refused() {
    let machines = Machines::begin();
    let write = |name: &str, bytes: &[u8]| std::fs::write(machines.path(name), bytes).unwrap();
    // A file that an earlier call left may have other permissions.
    write("out.part", b"left behind");
    std::fs::set_permissions(machines.path("out.part"), std::fs::Permissions::from_mode(0o644)).unwrap();
    machines.create("out", &[], 0);
    assert_eq!(std::fs::metadata(machines.path("out")).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(Machines::error_of(&machines.create("out", &[], 2)), "usage.file_exists");
    assert_eq!(Machines::error_of(&machines.create("twice", &[], 4)), "campaign.handed_over");
    assert!(!Path::new(&machines.path("twice")).exists());
    for args in [["resume", &machines.run], ["cancel", &machines.campaign], ["pause", &machines.run]] {
        assert_eq!(Machines::error_of(&json(&machines.here, &args, 4)), "campaign.handed_over", "{args:?}");
    }
    let shown = json(&machines.here, &["show", &machines.campaign], 0);
    assert_eq!(shown["summary"]["handover"]["state"], "out");
    let listed = json(&machines.here, &["list"], 0);
    assert_eq!(listed["items"][0]["handover"], shown["summary"]["handover"]);
    assert_eq!(Machines::error_of(&machines.finish("out", 4)), "handover.wrong_direction");
    machines.create("again", &["--again"], 0);

    // A place where the result cannot be is refused before anything is carried out.
    write("mine", b"something else");
    assert_eq!(Machines::error_of(&machines.carry_out("out", "mine", 2)), "usage.file_exists");
    assert_eq!(std::fs::read(machines.path("mine")).unwrap(), b"something else");
    assert_eq!(Machines::error_of(&machines.carry_out("out", "out", 2)), "usage.file_exists");
    assert_eq!(Machines::error_of(&machines.carry_out("out", "missing/back", 4)), "archive.not_written");
    assert!(!machines.there.join("handovers").exists());

    // Killed when a step is completed, and started again: it goes on where it was.
    let mut running = nightshift(&machines.there)
        .args(["handover", "run", &machines.path("out"), "--out", &machines.path("back")])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary starts");
    let handover = shown["summary"]["handover"]["id"].as_str().unwrap();
    let kept = machines.there.join("handovers").join(handover);
    let began = Instant::now();
    let before = loop {
        assert!(began.elapsed() < LIMIT, "no step was completed");
        // Its server answers, which keeps the folder to itself, or has ended.
        if kept.join("server.json").exists() || running.try_wait().unwrap().is_some() {
            let events = events(&kept, &machines.run);
            if events.iter().any(|event| event["kind"] == "step_completed") {
                break events;
            }
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    processes::kill_tree(running.id());
    running.wait().unwrap();
    machines.carry_out("out", "back", 0);
    assert_eq!(
        Machines::error_of(&json(&machines.there, &["handover", "run", &machines.path("back"), "--out", "x"], 4)),
        "handover.wrong_direction"
    );

    let whole = std::fs::read(machines.path("back")).unwrap();
    write("half", &whole[..whole.len() / 2]);
    assert_eq!(Machines::error_of(&machines.finish("half", 4)), "archive.cut");
    let mut changed = whole.clone();
    let middle = changed.len() / 2;
    changed[middle] ^= 0x40;
    write("changed", &changed);
    let refused = machines.finish("changed", 4);
    let refused = Machines::error_of(&refused);
    assert!(refused.starts_with("archive.") || refused == "handover.tampered", "{refused}");
    write("forged", &forged(&whole));
    assert_eq!(Machines::error_of(&machines.finish("forged", 4)), "handover.tampered");
    write("later", &rewritten(&whole, "\"version\":1", "\"version\":7"));
    assert_eq!(Machines::error_of(&machines.finish("later", 4)), "handover.wrong_version");
    write("newer", &rewritten(&whole, "\"state_format\":", "\"state_format\":9"));
    assert_eq!(Machines::error_of(&machines.finish("newer", 4)), "handover.newer_release");
    let other = machines.folder.path().join("other");
    let refused = json(&other, &["handover", "finish", &machines.path("back")], 4);
    assert_eq!(Machines::error_of(&refused), "handover.unknown");
    assert!(refused["error"]["message"].as_str().unwrap().contains("another data folder"), "{refused}");
    assert_eq!(machines.summary()["status"], "paused", "nothing of this changed anything");

    assert_eq!(machines.finish("back", 0)["repeated"], false);
    assert_eq!(events(&machines.here, &machines.run)[..before.len()], before, "what was completed is not repeated");
    assert_eq!(machines.finish("back", 0)["repeated"], true);
    // A second result of the same hand-over, for example of another copy of its file.
    std::fs::remove_dir_all(&machines.there).unwrap();
    machines.carry_out("again", "copy", 0);
    assert_eq!(Machines::error_of(&machines.finish("copy", 4)), "handover.finished");
    assert_eq!(machines.summary()["status"], "running");

    machines.create("lost", &[], 0);
    let cancelled = json(&machines.here, &["handover", "cancel", &machines.campaign], 0);
    assert_eq!(cancelled["state"], "cancelled");
    machines.carry_out("lost", "late", 0);
    assert_eq!(Machines::error_of(&machines.finish("late", 4)), "handover.cancelled");
    assert_eq!(machines.summary()["status"], "running");
    drop(machines.server);
}

/// Writes a task that no worker can carry out.
fn for_no_device(folder: &Path) -> PathBuf {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/cuda_row_softmax");
    let task = folder.join("for_no_device");
    std::fs::create_dir(&task).unwrap();
    std::fs::copy(example.join("reference.cu"), task.join("reference.cu")).unwrap();
    let spec = std::fs::read_to_string(example.join("task.toml")).unwrap();
    let spec = spec.replace("target = \"cuda\"", "target = \"cuda\"\nmin_compute_capability = \"19.9\"");
    std::fs::write(task.join("task.toml"), spec).unwrap();
    task
}

/// Sends SIGINT, as Ctrl-C does.
#[expect(clippy::disallowed_methods, reason = "the test interrupts what it started")]
fn interrupt(process: u32) {
    std::process::Command::new("kill").args(["-INT", &process.to_string()]).status().unwrap();
}

#[test]
fn steps_that_no_worker_can_carry_out_are_waited_for_until_the_time_is_over_or_an_interrupt() {
    let machines = Machines::with(for_no_device);
    machines.create("out", &[], 0);
    let (out, back) = (machines.path("out"), machines.path("back"));
    let carried = json(&machines.there, &["handover", "run", &out, "--out", &back, "--for", "1s"], 0);
    assert_eq!(carried["until"], "time_over", "{carried}");

    let mut command = nightshift(&machines.there);
    command.args(["handover", "run", &out, "--out", &back, "--json"]).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut running = command.spawn().expect("the binary starts");
    let began = Instant::now();
    let is_up = || {
        let kept = std::fs::read_dir(machines.there.join("handovers")).unwrap();
        kept.into_iter().any(|entry| entry.unwrap().path().join("server.json").exists())
    };
    while !is_up() {
        assert!(began.elapsed() < LIMIT, "its server does not start");
        assert!(running.try_wait().unwrap().is_none(), "it ended before its server started");
        std::thread::sleep(Duration::from_millis(20));
    }
    interrupt(running.id());
    let output = running.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    assert_eq!(json_lines(&output)[0]["until"], "interrupted");

    assert_eq!(machines.finish("back", 0)["repeated"], false);
    assert_eq!(machines.summary()["status"], "running");
}

/// The log of a run, as a server with this data folder gives it.
fn events(data_dir: &Path, run: &str) -> Vec<Value> {
    json_lines(&nightshift(data_dir).args(["logs", run, "--json"]).output().unwrap())
        .into_iter()
        .filter(|event| event["kind"].is_string())
        .collect()
}

/// The result with another first line and everything else as it was.
fn forged(whole: &[u8]) -> Vec<u8> {
    rewritten(whole, "\"server\":\"", "\"server\":\"of ")
}

fn rewritten(whole: &[u8], from: &str, to: &str) -> Vec<u8> {
    let text = String::from_utf8(zstd::decode_all(whole).unwrap()).unwrap();
    let (first, rest) = text.split_once('\n').unwrap();
    assert!(first.contains(from), "{first}");
    zstd::encode_all(format!("{}\n{rest}", first.replacen(from, to, 1)).as_bytes(), 1).unwrap()
}
