//! Scoring history anew, training rows, and a trainer's reward call, by the binary.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test stops at the first thing that is not as it should be"
)]

#[path = "support/binary.rs"]
mod binary;
#[path = "support/server.rs"]
#[expect(dead_code, reason = "each test file uses a part of it")]
mod server;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use binary::{expect_exit, json_lines, nightshift};
use serde_json::{Value, json};
use server::Served;

/// Maximum time that an answer is waited for.
const LIMIT: Duration = Duration::from_mins(3);

fn json_of(data: &Path, args: &[&str]) -> Value {
    json_lines(&expect_exit(nightshift(data).args(args).arg("--json"), 0)).pop().expect("a line")
}

fn rows(folder: &Path, name: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The files of an export by their names, without the manifest.
fn files_in(out: &Path) -> BTreeSet<String> {
    let (mut folders, mut files) = (vec![out.to_path_buf()], BTreeSet::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                files.insert(path.strip_prefix(out).unwrap().to_string_lossy().into_owned());
            }
        }
    }
    assert!(files.remove("manifest.json"));
    files
}

#[test]
fn a_campaign_becomes_rows_of_both_skills_and_is_scored_anew() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    json_of(&data, &["demo", "--task", "matmul_bias_relu", "--exit"]);
    let run = json_of(&data, &["list", "runs"])["items"][0]["id"].as_str().expect("a run").to_owned();

    // Scripted replies are exported as training data only with the option for it.
    let out = folder.path().join("without");
    let manifest = json_of(&data, &["export", "rollouts", "--out", &out.to_string_lossy()]);
    assert_eq!(manifest["rows"], 0, "{manifest:#}");
    assert!(manifest["left_out"]["scripted"].as_u64().unwrap() >= 2, "{manifest:#}");

    let out = folder.path().join("with");
    let args = ["export", "rollouts", "--with-scripted", "--test-share", "0", "--out", &out.to_string_lossy()];
    let manifest = json_of(&data, &args);
    let written = manifest["rows"].as_u64().unwrap();
    assert!(written >= 2, "{manifest:#}");
    expect_exit(nightshift(&data).args(args), 2);
    let mut seen = 0;
    for skill in ["from_scratch", "refinement"] {
        let (verl, trl) =
            (rows(&out, &format!("verl/{skill}/train.jsonl")), rows(&out, &format!("trl/{skill}/train.jsonl")));
        assert_eq!(verl.len(), trl.len());
        assert!(!verl.is_empty(), "{skill}");
        for absent in ["test.jsonl", "validation.parquet"] {
            assert!(!out.join("trl").join(skill).join(absent).exists(), "a split without rows has no file: {absent}");
        }
        seen += u64::try_from(verl.len()).unwrap();
        for (verl, trl) in verl.iter().zip(&trl) {
            assert_eq!(verl["data_source"], format!("nightshift/{skill}"));
            assert_eq!(verl["reward_model"]["ground_truth"], verl["extra_info"]["task_id"]);
            assert_eq!(verl["prompt"], trl["prompt"]);
            let roles: Vec<&str> =
                trl["prompt"].as_array().unwrap().iter().map(|message| message["role"].as_str().unwrap()).collect();
            assert_eq!(roles[..2], ["system", "user"]);
            assert_eq!(trl["completion"][0]["content"], verl["extra_info"]["response"]);
            assert_eq!(trl["scripted"], true);
            assert_eq!(trl["judge_total"].is_null(), trl["judge"] == "judge_unavailable", "{trl:#}");
            assert!(trl["reward"].as_f64().unwrap() >= 0.0);
            assert_eq!(trl["before"], verl["extra_info"]["before"]);
            let before = trl["before"].as_str();
            assert_eq!(before.is_some(), skill == "refinement", "{trl:#}");
            assert!(
                before.is_none_or(|before| trl["prompt"][1]["content"].as_str().unwrap().contains(before.trim_end()))
            );
            // The task has no baseline other than its reference.
            for (speedup, over_fastest) in
                [("speedup", "speedup_over_fastest"), ("prev_speedup", "prev_speedup_over_fastest")]
            {
                assert_eq!(trl.get(over_fastest), Some(&trl[speedup]), "{trl:#}");
                assert_eq!(trl[over_fastest], verl["extra_info"][over_fastest]);
            }
            let magic = std::fs::read(out.join(format!("verl/{skill}/train.parquet"))).unwrap();
            assert!(magic.starts_with(b"PAR1") && magic.ends_with(b"PAR1"));
        }
    }
    assert_eq!(seen, written);

    // A misspelt name would put the task that was meant into training.
    for name in ["matmul_bias_rleu", ""] {
        let out = folder.path().join("misspelt");
        let args =
            ["export", "rollouts", "--with-scripted", "--held-out", "matmul_bias_relu", "--held-out", name, "--json"];
        let refused = expect_exit(nightshift(&data).args(args).arg("--out").arg(&out), 2);
        let error = json_lines(&refused).pop().unwrap()["error"].clone();
        assert_eq!(error["code"], "usage.unknown_task");
        assert!(error.to_string().contains("matmul_bias_relu"), "the known tasks are named: {error}");
        assert!(!out.exists(), "nothing is written");
    }

    // The same rows in the same place, held out: nothing is left for training, no file of the export before in any form.
    let out_text = out.to_string_lossy();
    let args =
        ["export", "rollouts", "--with-scripted", "--held-out", "matmul_bias_relu", "--force", "--out", &out_text];
    let manifest = json_of(&data, &[&args[..], &["--layout", "trl", "--file-format", "jsonl"]].concat());
    assert_eq!(files_in(&out), manifest["files"].as_object().unwrap().keys().cloned().collect());
    assert!(manifest["files"].as_object().unwrap().values().all(|rows| rows.as_u64().unwrap() > 0), "{manifest:#}");
    assert!(!rows(&out, "trl/from_scratch/test.jsonl").is_empty());

    let recomputed = json_of(&data, &["reward", "recompute", &run]);
    let scores = recomputed["runs"][0]["scores"].as_array().unwrap();
    let formulas: BTreeSet<&str> = scores.iter().map(|score| score["scored"]["formula"].as_str().unwrap()).collect();
    assert_eq!(formulas, BTreeSet::from(["nightshift.1", "published.1"]));
    let own = json_of(&data, &["show", &format!("{run}/1")])["reward"]["reward"].as_f64().unwrap();
    let again = scores.iter().find(|score| score["attempt"] == 1 && score["scored"]["formula"] == "published.1");
    let again = again.unwrap()["scored"]["reward"].as_f64().unwrap();
    assert!((own - again).abs() < 1e-12, "the run's own reward was {own}, its formula gives {again}");
    // The first attempt was wrong and never judged; the second one was.
    let shown = expect_exit(nightshift(&data).args(["show", &format!("{run}/2")]), 0);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    for part in ["Anti-Hacking: rules", "Operator Coverage: rules", "reward by nightshift.1:", "reward by published.1:"]
    {
        assert!(shown.contains(part), "{part} is not in\n{shown}");
    }
}

/// `reward serve`, ended with the test.
struct Rewards {
    child: Child,
    address: String,
}

impl Rewards {
    fn start(data: &Path, args: &[&str]) -> Self {
        let mut command = nightshift(data);
        command.args(["reward", "serve", "--bind", "127.0.0.1:0", "--json"]).args(args);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the binary starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("its output")).read_line(&mut line).expect("a line");
        let said: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} in {line}"));
        let address = said["address"].as_str().expect("an address").trim_start_matches("http://").to_owned();
        Self { child, address }
    }

    fn call(&self, body: &Value) -> (u16, Value) {
        let body = body.to_string();
        let head =
            format!("host: {}\r\ncontent-type: application/json\r\ncontent-length: {}", self.address, body.len());
        self.send("POST /v1/rewards", &head, &body)
    }

    fn send(&self, call: &str, head: &str, body: &str) -> (u16, Value) {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        write!(stream, "{call} HTTP/1.1\r\n{head}\r\nconnection: close\r\n\r\n{body}").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a body");
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
        (status, serde_json::from_str(body).unwrap_or_else(|error| panic!("{error} in {body}")))
    }
}

impl Drop for Rewards {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_trainer_gets_a_reward_with_its_whole_breakdown_for_each_program() {
    let folder = tempfile::tempdir().unwrap();
    let right = std::fs::read_to_string("examples/row_softmax/replies/subtask1.attempt1.write_code.md").unwrap();
    let server = Rewards::start(&folder.path().join("data"), &["row_softmax", "--parallel", "2"]);
    let item = |completion: &str| json!({ "task": "row_softmax", "completion": completion, "group": "g" });
    let wrong = "```cpp\nthis does not compile\n```";
    let mut unknown = item(&right);
    unknown["task"] = json!("no_such_task");
    let items = json!([item(&right), item("I would rather not."), item(wrong), unknown]);
    let (status, answer) = server.call(&json!({ "items": items }));
    assert_eq!(status, 200, "{answer:#}");
    let results = answer["results"].as_array().unwrap();
    assert_eq!(results.len(), 4);

    let good = &results[0];
    assert!(good["reward"].as_f64().unwrap() > 0.0, "{good:#}");
    assert_eq!(good["breakdown"]["verdict"]["numerically_correct"], "pass", "{good:#}");
    let judge = &good["breakdown"]["rubric"]["judge"];
    assert_eq!(judge["state"], "judge_unavailable", "the judge is reported as missing");
    let reason = judge["reason"].as_str().unwrap();
    assert!(reason.contains("no judge was asked for") && reason.contains("--judge-model"), "{reason}");
    assert!(good["breakdown"]["speedup"]["low"].as_f64().unwrap() > 0.0);
    assert!(good["breakdown"]["speedup_over_fastest"]["low"].as_f64().unwrap() > 0.0);
    assert_eq!(good["breakdown"]["scored"]["formula"], "published.1");
    for (index, outcome) in [(1, "no_code"), (2, "compile_failed")] {
        assert_eq!(results[index]["reward"], 0.0, "{:#}", results[index]);
        assert_eq!(results[index]["breakdown"]["outcome"], outcome);
        assert!(results[index]["advantage"].as_f64().unwrap() < 0.0);
    }
    assert!(!results[2]["breakdown"]["messages"].as_array().unwrap().is_empty());
    assert!(results[3]["reward"].is_null(), "what could not be found out has no reward");
    assert_eq!(results[3]["error"]["code"], "task.not_found");
    let message = results[3]["error"]["message"].as_str().unwrap();
    assert_eq!(message.matches("row_softmax").count(), 1, "{message}");
    assert!(good["advantage"].as_f64().unwrap() > 0.0 && results[3]["advantage"].is_null());

    // Edits are made in the program that the item brings, and scored as a refinement.
    let before = right.split("```cpp\n").nth(1).unwrap().split("```").next().unwrap();
    let edited = |search: &str, before: Option<&str>| {
        let completion = format!("<<<<<<< SEARCH\n{search}\n=======\n#include <vector>\n{search}\n>>>>>>> REPLACE\n");
        json!({ "task": "row_softmax", "completion": completion, "before": before, "skill": "refinement" })
    };
    let line = "#include <limits>";
    let items = json!([edited(line, Some(before)), edited(line, None), edited("#include <nothing>", Some(before))]);
    let (_, answer) = server.call(&json!({ "items": items }));
    let refined = &answer["results"][0];
    assert!(refined["reward"].as_f64().unwrap() > 0.0, "{refined:#}");
    let rubric = &refined["breakdown"]["rubric"];
    assert_eq!(rubric["skill"], "refinement");
    assert!(rubric["rule_reasons"].to_string().contains("no single modification was asked for"), "{rubric:#}");
    let unknown = &answer["results"][1];
    assert!(unknown["reward"].is_null() && unknown["error"]["code"] == "reward.no_program_before", "{unknown:#}");
    let unmatched = &answer["results"][2];
    assert_eq!((&unmatched["reward"], &unmatched["breakdown"]["outcome"]), (&json!(0.0), &json!("no_code")));
    assert!(unmatched["breakdown"]["findings"].to_string().contains("edit 1 does not match"), "{unmatched:#}");

    // Asked again, the same program is not looked at again.
    let (_, again) = server.call(&json!({ "items": [item(&right)] }));
    assert_eq!(again["results"][0]["breakdown"]["run"], good["breakdown"]["run"]);
    let (status, answer) = server.call(&json!({ "items": [{ "completion": "" }] }));
    assert_eq!((status, answer["error"]["code"].as_str()), (400, Some("request.invalid")));
}

#[test]
fn what_timed_out_is_looked_at_again_when_it_is_asked_again() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let item = |task: &str| json!({ "items": [{ "task": task, "completion": "I would rather not." }] });
    {
        // No worker, so nothing is scored.
        let _served = Served::start(nightshift(&data), &["--no-worker"]);
        let rewards = Rewards::start(&data, &["row_softmax", "--timeout-s", "1"]);
        let (_, answer) = rewards.call(&item("row_softmax"));
        assert_eq!(answer["results"][0]["error"]["code"], "reward.timed_out", "{answer:#}");
    }
    let twin = folder.path().join("twin");
    std::fs::create_dir(&twin).unwrap();
    let toml = std::fs::read_to_string("examples/row_softmax/task.toml").unwrap();
    std::fs::write(twin.join("task.toml"), toml.replace("\"row_softmax\"", "\"row_softmax_twin\"")).unwrap();
    std::fs::copy("examples/row_softmax/reference.cpp", twin.join("reference.cpp")).unwrap();
    let rewards = Rewards::start(&data, &["row_softmax", &twin.to_string_lossy()]);
    let (_, answer) = rewards.call(&item("row_softmax_twin"));
    assert_eq!(answer["results"][0]["reward"], 0.0, "{answer:#}");

    // The only run of `row_softmax` has no attempt. Its name still holds out the task that has the same reference.
    let out = folder.path().join("rows").to_string_lossy().into_owned();
    let args = ["export", "rollouts", "--held-out", "row_softmax", "--test-share", "0", "--out", &out];
    let manifest = json_of(&data, &args);
    let tasks = manifest["tasks"].as_array().unwrap();
    let splits: Vec<_> = tasks.iter().map(|task| (task["name"].as_str().unwrap(), &task["split"])).collect();
    assert_eq!(splits, [("row_softmax", &json!("test")), ("row_softmax_twin", &json!("test"))]);

    let (_, answer) = rewards.call(&item("row_softmax"));
    assert_eq!(answer["results"][0]["reward"], 0.0, "{answer:#}");
    let run = &answer["results"][0]["breakdown"]["run"];
    let (_, again) = rewards.call(&item("row_softmax"));
    assert_eq!(&again["results"][0]["breakdown"]["run"], run, "what was scored is not looked at again");
    drop(rewards);

    // Another campaign, not another request under the key of the first one.
    let rewards = Rewards::start(&data, &["row_softmax", "--allow-unsandboxed"]);
    let (_, answer) = rewards.call(&item("row_softmax"));
    assert_eq!(answer["results"][0]["reward"], 0.0, "{answer:#}");
    assert_ne!(&answer["results"][0]["breakdown"]["run"], run);
}

#[test]
fn an_unconfigured_judge_is_refused_before_serving_begins() {
    let folder = tempfile::tempdir().unwrap();
    let args = ["reward", "serve", "row_softmax", "--bind", "127.0.0.1:0", "--judge-model", "nowhere/x", "--json"];
    let error = json_lines(&expect_exit(nightshift(folder.path()).args(args), 3)).pop().unwrap()["error"].clone();
    assert_eq!(error["code"], "model.not_found");
    assert!(error["message"].as_str().unwrap().contains("nowhere"), "{error}");

    // Nor is one who would stand in.
    let config = folder.path().join("config.toml");
    std::fs::write(&config, "[models.there]\nkind = \"openai\"\nbase_url = \"http://127.0.0.1:9/v1\"\n").unwrap();
    let mut command = nightshift(folder.path());
    let args =
        ["reward", "serve", "row_softmax", "--bind", "127.0.0.1:0", "--judge-model", "there/x,nowhere/y", "--json"];
    let error = json_lines(&expect_exit(command.arg("--config").arg(&config).args(args), 3));
    let error = error.last().unwrap()["error"].clone();
    assert_eq!(error["code"], "model.not_found");
    assert!(error["message"].as_str().unwrap().contains("nowhere"), "{error}");
}

#[test]
fn a_call_for_rewards_is_refused_as_the_server_refuses_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let server = Rewards::start(&folder.path().join("data"), &["row_softmax", "--max-batch", "1"]);
    let own = server.address.as_str();
    let port = own.rsplit(':').next().unwrap();
    let two = json!({ "items": [{ "task": "t", "completion": "" }, { "task": "t", "completion": "" }] }).to_string();
    let (rewards, json) = ("POST /v1/rewards", "application/json");
    let too_large = " ".repeat(64 * 1024 * 1024 + 1);
    let cases = [
        (rewards, "evil.example", json, "{}", 403, "request.host_not_allowed"),
        ("GET /health", "evil.example", json, "", 403, "request.host_not_allowed"),
        (rewards, own, json, "{\"items\":", 400, "request.malformed_json"),
        (rewards, own, json, "", 400, "request.malformed_json"),
        (rewards, own, json, "7", 400, "request.invalid"),
        (rewards, own, json, "{\"items\": [7]}", 400, "request.invalid"),
        (rewards, own, "text/plain", "{}", 415, "request.content_type"),
        (rewards, own, json, &too_large, 413, "request.too_large"),
        (rewards, own, json, &two, 413, "request.too_large"),
        ("GET /v1/rewards", own, json, "", 405, "request.method_not_allowed"),
        ("GET /v1/reward", own, json, "", 404, "request.no_such_call"),
    ];
    for (call, host, kind, body, status, code) in cases {
        let head = format!("host: {host}\r\ncontent-type: {kind}\r\ncontent-length: {}", body.len());
        let (answered, answer) = server.send(call, &head, body);
        assert_eq!((answered, answer["error"]["code"].as_str()), (status, Some(code)), "{call} {body:.40}: {answer}");
        let message = answer["error"]["message"].as_str().unwrap();
        for internal in ["struct", "RewardCall", "RewardItem", "target type", "deserialize"] {
            assert!(!message.contains(internal), "{message}");
        }
    }
    let (status, answer) = server.send("GET /health", &format!("host: localhost:{port}"), "");
    assert_eq!((status, answer["status"].as_str()), (200, Some("ok")));
}

#[test]
fn a_port_of_another_program_is_named_as_such() {
    let folder = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let args = ["reward", "serve", "row_softmax", "--bind", &address, "--json"];
    let error = json_lines(&expect_exit(nightshift(folder.path()).args(args), 6)).pop().unwrap()["error"].clone();
    assert_eq!(error["code"], "server.port_in_use");
    assert!(error["message"].as_str().unwrap().contains(&address), "{error}");
}
