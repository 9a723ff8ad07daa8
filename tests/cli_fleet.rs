//! Server, worker and client as three processes that share nothing but an address and tokens.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test stops at the first thing that is not as it should be"
)]

#[path = "support/binary.rs"]
mod binary;
#[path = "support/tiny_task.rs"]
mod tiny_task;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use binary::{expect_exit, json_lines, nightshift};
use serde_json::Value;

const OPERATOR: &str = "the-operator";
const WORKER: &str = "a-worker-of-this-test";

/// Ends with the test, however the test ends.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn serve(data_dir: &Path) -> (Running, String) {
    let mut child = nightshift(data_dir)
        .args(["serve", "--no-worker", "--bind", "127.0.0.1:0", "--json"])
        .env("NIGHTSHIFT_SERVER__TOKEN", OPERATOR)
        .env("NIGHTSHIFT_SERVER__WORKER_TOKEN", WORKER)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = serde_json::from_str::<Value>(&line).unwrap()["address"].as_str().unwrap().to_owned();
    (Running(child), address)
}

#[test]
fn a_campaign_is_carried_out_by_a_worker_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let (_server, address) = serve(&folder.path().join("server"));
    let worker_dir = folder.path().join("worker");
    let _worker = Running(
        nightshift(&worker_dir)
            .args(["--server", &address, "work", "--name", "elsewhere"])
            .env("NIGHTSHIFT_SERVER__WORKER_TOKEN", WORKER)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    );
    let task = tiny_task::write(folder.path(), "gaussian", &[16, 2, 8]);
    let client_dir = folder.path().join("client");
    let client = || {
        let mut command = nightshift(&client_dir);
        command.args(["--server", &address, "--json"]).env("NIGHTSHIFT_SERVER__TOKEN", OPERATOR);
        command
    };
    let mut run = client();
    run.arg("run").arg(&task).args(["--model", "scripted"]);
    let result = json_lines(&expect_exit(&mut run, 0)).remove(0);
    assert_eq!(result["succeeded"], true);
    assert_eq!(result["dashboard"], address);
    let workers = json_lines(&expect_exit(client().args(["list", "workers"]), 0)).remove(0);
    let elsewhere = workers.as_array().unwrap().iter().find(|worker| worker["name"] == "elsewhere");
    assert_eq!(elsewhere.expect("the worker is listed")["embedded"], false);
    assert!(!client_dir.exists() && !worker_dir.join("nightshift.db").exists(), "only the server has a database");
}

#[test]
fn a_worker_adds_its_part_to_the_trace_of_a_run() {
    let folder = tempfile::tempdir().unwrap();
    let (_server, address) = serve(&folder.path().join("server"));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let collector = listener.local_addr().unwrap();
    let received: Arc<Mutex<Vec<Value>>> = Arc::default();
    let kept = received.clone();
    runtime.spawn(async move {
        let take = move |body: String| {
            let spans = serde_json::from_str(&body).expect("OTLP in JSON");
            kept.lock().expect("no test panicked with it").push(spans);
            async { "{}" }
        };
        axum::serve(listener, axum::Router::new().fallback(take)).await.unwrap();
    });
    let mut worker = Running(
        nightshift(&folder.path().join("worker"))
            .args(["--server", &address, "work", "--name", "elsewhere"])
            .env("NIGHTSHIFT_SERVER__WORKER_TOKEN", WORKER)
            .env("NIGHTSHIFT_SERVER__OTLP_ENDPOINT", format!("http://{collector}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    );
    let task = tiny_task::write(folder.path(), "gaussian", &[16, 2, 8]);
    let mut run = nightshift(&folder.path().join("client"));
    run.args(["--server", &address, "--json", "run"]).arg(&task).args(["--model", "scripted"]);
    let result = json_lines(&expect_exit(run.env("NIGHTSHIFT_SERVER__TOKEN", OPERATOR), 0)).remove(0);
    let id = result["runs"][0]["summary"]["id"].as_str().unwrap();
    let spans_in = |received: &[Value]| -> Vec<Value> {
        let of = |body: &Value| body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().expect("spans").clone();
        received.iter().flat_map(of).collect()
    };
    let names = ["carry out prepare_task", "carry out build", "carry out measure"];
    let missing = || {
        let spans = spans_in(&received.lock().unwrap());
        names.into_iter().find(|name| !spans.iter().any(|span| span["name"] == *name))
    };
    // A worker that ends gives up on a collector that does not answer at once, as on a busy machine.
    let began = Instant::now();
    while let Some(name) = missing() {
        assert!(began.elapsed() < Duration::from_mins(1), "{name} did not come");
        std::thread::sleep(Duration::from_millis(20));
    }
    terminate(&worker.0);
    assert_eq!(worker.0.wait().unwrap().code(), Some(0));
    let received = received.lock().unwrap();
    let spans = spans_in(&received);
    for name in names {
        let span = spans.iter().find(|span| span["name"] == name).unwrap_or_else(|| panic!("{name} in {spans:?}"));
        assert_eq!(span["traceId"].as_str(), id.strip_prefix("run_"), "the trace is the run's");
        assert!(span["parentSpanId"].is_string(), "it is part of a try: {span}");
    }
    assert!(received[0]["resourceSpans"][0]["resource"].to_string().contains("nightshift-worker"));
}

#[test]
fn a_workers_token_starts_no_campaign() {
    let folder = tempfile::tempdir().unwrap();
    let (_server, address) = serve(&folder.path().join("server"));
    let task = tiny_task::write(folder.path(), "gaussian", &[16, 2, 8]);
    for (token, code) in
        [(Some(WORKER), "access.role_needed"), (Some("wrong"), "auth.wrong_token"), (None, "auth.required")]
    {
        let mut command = nightshift(&folder.path().join("client"));
        command.args(["--server", &address, "--json", "run"]).arg(&task).args(["--model", "scripted"]);
        if let Some(token) = token {
            command.env("NIGHTSHIFT_SERVER__TOKEN", token);
        }
        let error = json_lines(&expect_exit(&mut command, 6)).remove(0)["error"].clone();
        assert_eq!(error["code"], code, "{token:?}");
    }
    let mut worker = nightshift(&folder.path().join("worker"));
    worker.args(["--server", &address, "--json", "work"]).env("NIGHTSHIFT_SERVER__WORKER_TOKEN", "wrong");
    let refused = expect_exit(&mut worker, 6);
    assert_eq!(json_lines(&refused)[0]["error"]["code"], "auth.wrong_token");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!said.contains("working for"), "it never worked: {said}");
    worker = nightshift(&folder.path().join("worker"));
    worker.args(["--server", &address, "work"]).env("NIGHTSHIFT_SERVER__WORKER_TOKEN", "wrong");
    let said = String::from_utf8_lossy(&expect_exit(&mut worker, 6).stderr).into_owned();
    assert!(said.contains("NIGHTSHIFT_SERVER__WORKER_TOKEN"), "a worker is told of the workers' token: {said}");
}

#[test]
fn a_worker_without_steps_ends_at_the_first_signal() {
    let folder = tempfile::tempdir().unwrap();
    let (_server, address) = serve(&folder.path().join("server"));
    let mut worker = Running(
        nightshift(&folder.path().join("worker"))
            // No machine has so many GPUs: the worker says so and works without.
            .args(["--server", &address, "work", "--name", "elsewhere", "--devices", "4000"])
            .env("NIGHTSHIFT_SERVER__WORKER_TOKEN", WORKER)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let mut lines = BufReader::new(worker.0.stderr.take().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    assert!(first.contains("starting a worker"), "{first}");
    let second = lines.next().unwrap().unwrap();
    assert!(second.contains("no such device: 4000") && second.contains("builds programs"), "{second}");
    terminate(&worker.0);
    assert_eq!(worker.0.wait().unwrap().code(), Some(0), "being stopped is how its work ends");
    assert!(lines.any(|line| line.unwrap().contains("draining")));
}

#[expect(clippy::disallowed_methods, reason = "the test signals what it started")]
fn terminate(child: &Child) {
    let status = std::process::Command::new("kill").arg("-TERM").arg(child.id().to_string()).status().unwrap();
    assert!(status.success());
}
