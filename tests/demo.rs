//! The main job: `nightshift demo` on the bundled examples, with real compilation, checks and timings. The examples
//! contain every route of the loop, and no number in the result is written down beforehand.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test stops at the first thing that is not as it should be"
)]

#[path = "support/binary.rs"]
mod binary;
#[path = "support/serving.rs"]
#[expect(dead_code, reason = "no browser looks at the pages here")]
mod serving;
#[path = "support/tiny_task.rs"]
mod tiny_task;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use binary::{expect_exit, json_lines, nightshift};
use serde_json::Value;
use serving::Serving;

/// Maximum number of bytes of a page with all that it needs, as they come over the wire.
const MAX_FIRST_LOAD_BYTES: usize = 150_000;
/// Longest wait for an answer.
const MAX_ANSWER: Duration = Duration::from_secs(30);

/// Every run in full, by task.
fn runs(data_dir: &Path) -> BTreeMap<String, Value> {
    json_lines(&expect_exit(nightshift(data_dir).args(["list", "runs", "--json"]), 0))
        .iter()
        .flat_map(|page| page["items"].as_array().cloned().unwrap_or_default())
        .map(|run| {
            let id = run["id"].as_str().unwrap();
            let detail = json_lines(&expect_exit(nightshift(data_dir).args(["show", id, "--json"]), 0)).remove(0);
            (run["digest"]["task"].as_str().unwrap().to_owned(), detail)
        })
        .collect()
}

fn attempts(run: &Value) -> &Vec<Value> {
    run["view"]["attempts"].as_array().unwrap()
}

fn outcomes(run: &Value) -> Vec<&str> {
    attempts(run).iter().map(|attempt| attempt["outcome"].as_str().unwrap()).collect()
}

fn stages(run: &Value) -> Vec<&str> {
    attempts(run).iter().map(|attempt| attempt["stage"].as_str().unwrap()).collect()
}

fn stop_reason(run: &Value) -> &str {
    run["view"]["stop_reason"]["kind"].as_str().unwrap()
}

fn routes(run: &Value) -> Vec<&str> {
    attempts(run).iter().filter_map(|attempt| attempt["route"]["route"].as_str()).collect()
}

#[test]
fn the_demo_goes_every_route_of_the_loop() {
    let folder = tempfile::tempdir().unwrap();
    let data_dir = folder.path().join("data");
    let output = expect_exit(nightshift(&data_dir).args(["demo", "--exit"]), 0);
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(table.contains("scripted"), "the table says that replies are scripted:\n{table}");

    let demo_dir = data_dir.join("demo");
    let runs = runs(if demo_dir.join("nightshift.db").is_file() { &demo_dir } else { &data_dir });
    assert!(runs.len() >= 5, "at least five examples: {:?}", runs.keys());
    assert!(runs.keys().all(|task| !task.starts_with("cuda_")), "none that needs a GPU: {:?}", runs.keys());
    for (task, run) in &runs {
        assert_eq!(run["summary"]["status"], "completed", "{task}");
        assert_eq!(run["summary"]["digest"]["scripted"], true, "{task}");
        assert!(table.contains(task.as_str()), "{task} is in the table:\n{table}");
        for attempt in attempts(run) {
            for call in attempt["calls"].as_array().unwrap() {
                assert_eq!(call["scripted"], true, "{task}: a scripted reply is labelled in the evidence");
            }
        }
    }

    let softmax = &runs["row_softmax"];
    assert_eq!(outcomes(softmax), ["correct_faster"], "first try correct");
    assert_eq!(stop_reason(softmax), "target_reached");

    let fused = &runs["layernorm_gelu"];
    assert_eq!(outcomes(fused)[0], "compile_failed");
    assert_eq!(stages(fused)[1], "repair_compile");
    assert!(outcomes(fused)[1].starts_with("correct"), "a compile error is repaired: {:?}", outcomes(fused));

    let matmul = &runs["matmul_bias_relu"];
    assert_eq!(outcomes(matmul)[0], "incorrect");
    assert_eq!(stages(matmul)[1], "repair_correctness");
    assert!(outcomes(matmul)[1].starts_with("correct"), "a wrong result is repaired: {:?}", outcomes(matmul));

    let stencil = &runs["stencil_2d"];
    assert_eq!(outcomes(stencil)[0], "correct_not_faster");
    assert_eq!(stages(stencil)[1], "optimize");
    assert!(outcomes(stencil).contains(&"correct_faster"), "slower, then optimized: {:?}", outcomes(stencil));

    let transformer = &runs["transformer_mlp"];
    assert!(routes(transformer).contains(&"next_subtask"), "{:?}", routes(transformer));
    let subtasks = transformer["view"]["plans"][0]["plan"]["subtasks"].as_array().unwrap();
    assert!(subtasks.len() >= 2, "the plan has several subtasks");
    for subtask in subtasks {
        assert!(!subtask["contract"]["outputs"].as_array().unwrap().is_empty(), "with contracts: {subtask}");
    }

    let all_routes: BTreeSet<&str> = runs.values().flat_map(routes).collect();
    let all_outcomes: BTreeSet<&str> = runs.values().flat_map(outcomes).collect();
    let all_stops: BTreeSet<&str> = runs.values().map(stop_reason).collect();
    assert!(
        all_routes.is_superset(&BTreeSet::from(["repair", "optimize", "next_subtask", "replan", "stop"])),
        "{all_routes:?}"
    );
    assert!(all_outcomes.is_superset(&BTreeSet::from(["crashed", "timed_out", "memory_exceeded"])), "{all_outcomes:?}");
    assert!(all_stops.is_superset(&BTreeSet::from(["target_reached", "attempt_budget"])), "{all_stops:?}");
    let replanned = runs.values().find(|run| run["view"]["plans"].as_array().unwrap().len() > 1).expect("a replan");
    let stagnated = attempts(replanned)
        .iter()
        .filter(|attempt| attempt["route"]["route"] == "replan")
        .all(|attempt| attempt["outcome"].as_str().unwrap().starts_with("correct"));
    assert!(stagnated, "the replan was caused by correct attempts without a gain");
    every_page_is_small(&data_dir, &runs);
}

/// The body of an answer, packed as for a browser on this machine.
fn body(address: &str, path: &str, encodings: &str) -> Vec<u8> {
    let host = address.trim_start_matches("http://").trim_end_matches('/');
    let mut stream = TcpStream::connect(host).unwrap();
    stream.set_read_timeout(Some(MAX_ANSWER)).unwrap();
    let ask =
        format!("GET {path} HTTP/1.1\r\nhost: {host}\r\naccept-encoding: {encodings}\r\nconnection: close\r\n\r\n");
    stream.write_all(ask.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert!(
        answer.starts_with(b"HTTP/1.1 200"),
        "{path}: {}",
        String::from_utf8_lossy(&answer[..answer.len().min(200)])
    );
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    answer.split_off(end + 4)
}

/// Checks that each page with its program and style stays small.
fn every_page_is_small(data_dir: &Path, runs: &BTreeMap<String, Value>) {
    let serving = Serving::on(data_dir, &["--no-worker"]);
    let mut paths: Vec<String> = [
        "/",
        "/attempts",
        "/tasks",
        "/models",
        "/compare",
        "/search?q=float",
        "/workers",
        "/views",
        "/webhooks",
        "/admin",
        "/health",
    ]
    .map(str::to_owned)
    .to_vec();
    for run in runs.values() {
        let id = run["summary"]["id"].as_str().unwrap();
        paths.push(format!("/campaigns/{}", run["summary"]["campaign"].as_str().unwrap()));
        paths.push(format!("/runs/{id}"));
        paths.extend((1..=attempts(run).len()).map(|number| format!("/runs/{id}/attempts/{number}")));
    }
    let html = String::from_utf8(body(&serving.address, "/", "identity")).unwrap();
    let needed: BTreeSet<&str> = html.split('"').filter(|part| part.starts_with("/pkg/")).collect();
    assert!(needed.len() >= 4, "style, program and what begins it: {needed:?}");
    let beside: usize = needed.iter().map(|path| body(&serving.address, path, "br, gzip").len()).sum();
    let sizes = paths.iter().map(|path| (body(&serving.address, path, "br, gzip").len(), path));
    let (largest, path) = sizes.max().unwrap();
    assert!(
        beside + largest <= MAX_FIRST_LOAD_BYTES,
        "{path} takes {largest} bytes and what it needs {beside}, together more than {MAX_FIRST_LOAD_BYTES}"
    );
}

#[test]
fn another_scripted_program_gives_another_number() {
    let folder = tempfile::tempdir().unwrap();
    let mut speedups = Vec::new();
    for (name, passes) in [("more", 16), ("less", 2)] {
        let task = tiny_task::write(folder.path(), &format!("gaussian_{name}"), &[passes]);
        let data_dir = folder.path().join(name);
        expect_exit(nightshift(&data_dir).arg("run").arg(task).args(["--model", "scripted", "--exit"]), 0);
        let run = runs(&data_dir).into_values().next().unwrap();
        speedups.push(run["summary"]["digest"]["best_speedup"]["estimate"].as_f64().unwrap());
    }
    assert!(speedups[1] > speedups[0], "an eighth of the work: {speedups:?}");
}
