//! What surrounds a campaign is missing, wrong or taken: a clear error, the right exit code, nothing lost.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test stops at the first thing that is not as it should be"
)]

#[path = "support/binary.rs"]
mod binary;
#[path = "support/tiny_task.rs"]
mod tiny_task;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use binary::{expect_exit, json_lines, nightshift};
use serde_json::Value;

/// Maximum time that anything here is waited for.
const LIMIT: Duration = Duration::from_mins(1);

/// A server on its own data folder.
struct Served {
    child: Child,
    address: String,
}

impl Served {
    fn start(data_dir: &Path) -> Self {
        let mut child = nightshift(data_dir)
            .args(["serve", "--no-worker", "--bind", "127.0.0.1:0", "--json"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let listening: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"));
        Self { child, address: listening["address"].as_str().unwrap().to_owned() }
    }

    fn end(mut self) -> Option<i32> {
        signal(&self.child, "-TERM");
        let status = self.child.wait().unwrap();
        status.code()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // Already ended in a test that passed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[expect(clippy::disallowed_methods, reason = "the test signals what it started")]
fn signal(child: &Child, name: &str) {
    let status = std::process::Command::new("kill").arg(name).arg(child.id().to_string()).status().unwrap();
    assert!(status.success());
}

/// Returns a socket that does not listen at its address. No other test gets the address while the socket is there.
fn bound_socket() -> tokio::net::TcpSocket {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    socket
}

fn error(output: &std::process::Output) -> Value {
    json_lines(output).pop().expect("a line")["error"].clone()
}

#[test]
fn a_port_in_use_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = expect_exit(nightshift(folder.path()).args(["serve", "--bind", &address, "--json"]), 6);
    let error = error(&output);
    assert_eq!(error["code"], "server.port_in_use");
    assert!(error["message"].as_str().unwrap().contains(&address), "{error}");
}

#[test]
fn a_server_that_is_not_there_is_unreachable() {
    let folder = tempfile::tempdir().unwrap();
    let free = bound_socket();
    let url = format!("http://{}", free.local_addr().unwrap());
    for args in [&["list"][..], &["work"], &["run", "row_softmax", "--model", "scripted"]] {
        let mut command = nightshift(folder.path());
        command.args(["--server", &url, "--json"]).args(args);
        if args == ["work"] {
            // A worker waits for its server: it was told to work for this one.
            let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
            // It watches for signals before it says this.
            let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
            assert!(lines.any(|line| line.unwrap().contains("starting a worker for")), "it ended");
            signal(&child, "-TERM");
            // Read to the end, so that the worker can write.
            let said: Vec<_> = lines.map_while(Result::ok).collect();
            assert_eq!(child.wait().unwrap().code(), Some(0), "{said:?}");
            continue;
        }
        assert_eq!(error(&expect_exit(&mut command, 6))["code"], "server.unreachable", "{args:?}");
    }
    let wrong = expect_exit(nightshift(folder.path()).args(["--server", "nowhere", "--json", "list"]), 2);
    assert_eq!(error(&wrong)["code"], "usage.invalid_address");
}

#[test]
fn a_command_finds_the_local_server_by_its_data_folder() {
    let folder = tempfile::tempdir().unwrap();
    let served = Served::start(folder.path());
    let listed = expect_exit(nightshift(folder.path()).args(["list", "--json"]), 0);
    assert_eq!(json_lines(&listed)[0]["items"], serde_json::json!([]));
    let other = folder.path().join("other");
    let by_address = expect_exit(nightshift(&other).args(["--server", &served.address, "list", "--json"]), 0);
    assert_eq!(json_lines(&by_address)[0]["items"], serde_json::json!([]));
    assert!(!other.exists(), "a command with --server leaves the data folder alone");
    let args = ["--server", &served.address, "--token", "wrong", "list", "--json"];
    let refused = expect_exit(nightshift(&other).args(args), 6);
    assert_eq!(error(&refused)["code"], "auth.wrong_token");
    assert_eq!(served.end(), Some(0), "a signal is how a server ends");
    assert!(!folder.path().join("server.json").exists(), "it takes its address with it");
}

#[test]
fn a_server_that_cannot_use_its_database_tells_why_and_not_that_it_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let served = Served::start(folder.path());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    runtime.spawn(async move {
        let full = r#"{"error":{"code":"store.full","message":"no space is left"}}"#;
        let json = [(axum::http::header::CONTENT_TYPE, "application/json")];
        let refuse = move || async move { (axum::http::StatusCode::SERVICE_UNAVAILABLE, json, full) };
        axum::serve(listener, axum::Router::new().fallback(refuse)).await.unwrap();
    });
    // A fake server at the remembered address gives the answer of a server with a full disk.
    let file = folder.path().join("server.json");
    let remembered = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, remembered.replace(&served.address, &address)).unwrap();
    let refused = error(&expect_exit(nightshift(folder.path()).args(["list", "--json"]), 5));
    assert_eq!(refused["code"], "store.full", "{refused}");
}

#[test]
fn an_address_that_the_api_does_not_have_is_answered_by_the_api() {
    let folder = tempfile::tempdir().unwrap();
    let served = Served::start(folder.path());
    let host = served.address.strip_prefix("http://").unwrap();
    let get = |path: &str| {
        let mut stream = TcpStream::connect(host).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    for path in ["/api/v1/nope", "/api/v1/runs/run_0/nope/nope"] {
        let answer = get(path);
        assert!(answer.starts_with("HTTP/1.1 404") && answer.contains("request.no_such_call"), "{path}: {answer}");
        assert!(answer.contains(&format!("no call GET {path}")), "it is named as it was asked for: {answer}");
    }
    assert!(get("/").starts_with("HTTP/1.1 200"), "the pages are where they were");
    assert!(!get("/nope").contains("request.no_such_call"), "what is beside the API is no call of it");
}

#[test]
fn two_processes_on_one_database_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let served = Served::start(folder.path());
    // Without its address the server cannot be found, but it still has the database.
    std::fs::remove_file(folder.path().join("server.json")).unwrap();
    for args in
        [&["list", "--json"][..], &["resume", "--exit", "--json"], &["serve", "--bind", "127.0.0.1:0", "--json"]]
    {
        let error = error(&expect_exit(nightshift(folder.path()).args(args), 5));
        assert_eq!(error["code"], "store.locked", "{args:?}");
    }
    assert_eq!(served.end(), Some(0));
    expect_exit(nightshift(folder.path()).args(["list", "--json"]), 0);
}

#[test]
fn a_server_that_was_killed_leaves_nothing_in_the_way() {
    let folder = tempfile::tempdir().unwrap();
    let served = Served::start(folder.path());
    drop(served);
    assert!(folder.path().join("server.json").exists(), "a killed server cannot clean up");
    expect_exit(nightshift(folder.path()).args(["list", "--json"]), 0);
}

#[test]
fn another_server_on_the_remembered_port_is_not_mistaken_for_ours() {
    let folder = tempfile::tempdir().unwrap();
    let (ours, other) = (folder.path().join("ours"), folder.path().join("other"));
    let killed = Served::start(&ours);
    let remembered = std::fs::read_to_string(ours.join("server.json")).unwrap();
    let its_address = killed.address.clone();
    drop(killed);
    let running = Served::start(&other);
    std::fs::write(ours.join("server.json"), remembered.replace(&its_address, &running.address)).unwrap();
    expect_exit(nightshift(&ours).args(["list", "--json"]), 0);
}

#[test]
fn a_folder_that_cannot_be_written_is_a_store_error() {
    // Not even root can make a folder in /sys, so that the test means the same for every user.
    let output = expect_exit(nightshift(Path::new("/sys/kernel/nightshift")).args(["list", "--json"]), 5);
    let error = error(&output);
    assert_eq!(error["code"], "store.read_only");
    assert!(error["message"].as_str().unwrap().contains("/sys/kernel/nightshift"), "{error}");
}

#[test]
fn a_damaged_database_is_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("nightshift.db");
    let junk = b"this is not a database, and must not be overwritten ".repeat(100);
    std::fs::write(&database, &junk).unwrap();
    let output = expect_exit(nightshift(folder.path()).args(["list", "--json"]), 5);
    assert_eq!(error(&output)["code"], "store.corrupt");
    assert_eq!(std::fs::read(&database).unwrap(), junk);
}

#[test]
fn without_a_compiler_nothing_is_begun_and_the_error_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let data_dir = folder.path().join("data");
    let task = tiny_task::write(folder.path(), "gaussian", &[16, 2, 8]);
    let mut command = nightshift(&data_dir);
    command.arg("run").arg(&task).args(["--model", "scripted", "--exit", "--json"]);
    command.env("NIGHTSHIFT_WORKER__CPP_COMPILER", "/nonexistent/c++");
    let error = error(&expect_exit(&mut command, 6));
    assert_eq!(error["code"], "toolchain.no_cpp_compiler");
    assert!(error["message"].as_str().unwrap().contains("/nonexistent/c++"), "{error}");
    // The campaign waits: with a compiler the same command goes on.
    let mut again = nightshift(&data_dir);
    again.arg("run").arg(&task).args(["--model", "scripted", "--exit", "--json"]);
    let output = expect_exit(&mut again, 0);
    let listed = expect_exit(nightshift(&data_dir).args(["list", "--json"]), 0);
    assert!(json_lines(&listed)[0]["items"].as_array().unwrap().len() <= 1, "no second campaign");
    assert_eq!(json_lines(&output)[0]["succeeded"], true);
    let mut doctor = nightshift(&data_dir);
    doctor.args(["doctor", "--json"]).env("NIGHTSHIFT_WORKER__CPP_COMPILER", "/nonexistent/c++");
    let checks = json_lines(&expect_exit(&mut doctor, 6)).remove(0);
    assert_eq!(checks["demo_possible"], false);
}

#[test]
fn doctor_says_what_to_do_about_everything_that_is_not_there() {
    let folder = tempfile::tempdir().unwrap();
    let output = expect_exit(nightshift(folder.path()).args(["doctor", "--json"]), 0);
    let report = json_lines(&output).remove(0);
    let checks = report["checks"].as_array().unwrap();
    for name in ["C++ compiler", "sandbox", "GPU", "nvcc", "nsys", "ncu", "profiling permission", "database", "disk"] {
        assert!(checks.iter().any(|check| check["name"] == name), "{name} is looked at: {report}");
    }
    for check in checks {
        assert!(check["state"] == "ok" || check["advice"].is_string(), "{check}");
    }
}

#[test]
fn doctor_names_the_key_of_a_cuda_compiler_that_cannot_be_used_and_the_demo_needs_none() {
    let folder = tempfile::tempdir().unwrap();
    for (variable, value, code) in [
        ("NIGHTSHIFT_WORKER__NVCC", "/nonexistent/nvcc", "toolchain.no_nvcc"),
        ("NIGHTSHIFT_WORKER__CUDA_ARCH", "hopper", "toolchain.cuda_arch"),
    ] {
        let output = expect_exit(nightshift(folder.path()).args(["doctor", "--json"]).env(variable, value), 0);
        let report = json_lines(&output).remove(0);
        let check = report["checks"].as_array().unwrap().iter().find(|check| check["name"] == "nvcc").unwrap().clone();
        assert_eq!((&check["state"], &report["demo_possible"]), (&"warning".into(), &true.into()), "{check}");
        let found = check["found"].as_str().unwrap();
        assert!(found.contains(code) && found.contains(value), "{found}");
    }
}

#[test]
fn nvcc_is_installed_into_a_folder_of_its_own_and_not_without_python() {
    let folder = tempfile::tempdir().unwrap();
    let install = |target: &Path| {
        let mut command = nightshift(folder.path());
        command.args(["doctor", "--install-nvcc", "--json", "--folder"]).arg(target);
        command
    };
    let empty = folder.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    let failed = error(&expect_exit(install(&folder.path().join("nvcc")).env("PATH", &empty), 6));
    assert_eq!(failed["code"], "toolchain.no_python");
    assert!(!folder.path().join("nvcc").exists());

    let path = folder.path().join("path");
    std::fs::create_dir(&path).unwrap();
    std::os::unix::fs::symlink("/bin/true", path.join("python3")).unwrap();
    std::fs::write(empty.join("thesis.tex"), "all of it").unwrap();
    let failed = error(&expect_exit(install(&empty).env("PATH", &path), 2));
    assert_eq!(failed["code"], "usage.folder_in_use");
}

#[test]
fn a_missing_key_is_named_before_anything_is_created() {
    let folder = tempfile::tempdir().unwrap();
    let task = tiny_task::write(folder.path(), "gaussian", &[1]);
    let data_dir = folder.path().join("data");
    let mut command = nightshift(&data_dir);
    command.arg("run").arg(&task).args(["--model", "openai/some-model", "--exit", "--json"]);
    let error = error(&expect_exit(&mut command, 6));
    assert_eq!(error["code"], "model.auth");
    assert!(error["message"].as_str().unwrap().contains("OPENAI_API_KEY"), "{error}");
    assert!(!data_dir.join("nightshift.db").exists());
}

/// Endpoint `local` at this address.
fn endpoint(command: &mut std::process::Command, address: &str) {
    command
        .env("NIGHTSHIFT_MODELS__LOCAL__KIND", "openai")
        .env("NIGHTSHIFT_MODELS__LOCAL__BASE_URL", format!("http://{address}/v1"))
        .env("NIGHTSHIFT_MODELS__LOCAL__KEY_ENV", "LOCAL_TEST_KEY")
        .env("LOCAL_TEST_KEY", "not-the-right-one");
}

#[test]
fn a_wrong_key_fails_the_run_at_once_and_the_key_is_shown_nowhere() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    runtime.spawn(async move {
        let refuse = || async { (axum::http::StatusCode::UNAUTHORIZED, r#"{"error":{"message":"bad key"}}"#) };
        axum::serve(listener, axum::Router::new().fallback(refuse)).await.unwrap();
    });
    let task = tiny_task::write(folder.path(), "gaussian", &[1]);
    let data_dir = folder.path().join("data");
    let mut command = nightshift(&data_dir);
    command.arg("run").arg(&task).args(["--model", "local/some-model", "--exit", "--json", "-vv"]);
    command.arg("--allow-unsandboxed");
    endpoint(&mut command, &address);
    let output = expect_exit(&mut command, 7);
    let result = json_lines(&output).pop().unwrap();
    assert_eq!(result["runs"][0]["summary"]["status"], "failed", "{result}");
    assert_eq!(result["runs"][0]["summary"]["failure"]["code"], "model.auth", "{result}");
    for text in [&output.stdout, &output.stderr] {
        assert!(!String::from_utf8_lossy(text).contains("not-the-right-one"));
    }
}

#[test]
fn a_run_that_failed_for_want_of_a_plan_shows_what_its_calls_cost() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    runtime.spawn(async move {
        let answer = || async {
            let body = concat!(
                r#"data: {"choices":[{"index":0,"delta":{"content":"I have no plan."},"finish_reason":null}]}"#,
                "\n\n",
                r#"data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#,
                "\n\n",
                r#"data: {"choices":[],"usage":{"prompt_tokens":100,"completion_tokens":10}}"#,
                "\n\ndata: [DONE]\n\n",
            );
            ([(axum::http::header::CONTENT_TYPE, "text/event-stream")], body)
        };
        axum::serve(listener, axum::Router::new().fallback(answer)).await.unwrap();
    });
    let task = tiny_task::write(folder.path(), "gaussian", &[1]);
    let data_dir = folder.path().join("data");
    let mut command = nightshift(&data_dir);
    command.arg("run").arg(&task).args(["--model", "local/some-model", "--exit", "--allow-unsandboxed"]);
    endpoint(&mut command, &address);
    let output = expect_exit(&mut command, 7);
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    let cost = "cost: unknown (4 calls without a known price); 400 tokens read, 40 written; of these 4 calls of steps \
                that failed";
    assert!(shown.contains("model.no_plan") && shown.contains(cost), "{shown}");
    let listed = json_lines(&expect_exit(nightshift(&data_dir).args(["list", "runs", "--json"]), 0)).pop().unwrap();
    let run = listed["items"][0]["id"].as_str().unwrap();
    let output = expect_exit(nightshift(&data_dir).args(["show", run]), 0);
    assert!(String::from_utf8_lossy(&output.stdout).contains(cost), "show says the same");
    let output = expect_exit(nightshift(&data_dir).args(["logs", run, "--step", "plan"]), 0);
    assert!(String::from_utf8_lossy(&output.stdout).contains("I have no plan."), "the replies can be read");
}

/// A command that ends with the test, however that ends.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn an_unreachable_endpoint_is_waited_for_and_a_signal_ends_the_waiting() {
    let folder = tempfile::tempdir().unwrap();
    let socket = bound_socket();
    let task = tiny_task::write(folder.path(), "gaussian", &[1]);
    let data_dir = folder.path().join("data");
    let mut command = nightshift(&data_dir);
    command.arg("run").arg(&task).args(["--model", "local/some-model", "--allow-unsandboxed", "--exit"]);
    endpoint(&mut command, &socket.local_addr().unwrap().to_string());
    let mut running = Running(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let begin = Instant::now();
    let failure = loop {
        assert!(begin.elapsed() < LIMIT, "the failure is seen");
        assert!(running.0.try_wait().unwrap().is_none(), "it waits for the endpoint");
        let listed = nightshift(&data_dir).args(["list", "runs", "--json"]).output().unwrap();
        let page = json_lines(&listed).pop().unwrap_or_default();
        let Some(run) = page["items"][0]["id"].as_str() else { continue };
        let shown = nightshift(&data_dir).args(["show", run, "--json"]).output().unwrap();
        let detail = json_lines(&shown).pop().unwrap_or_default();
        let open = detail["open_steps"].as_array().cloned().unwrap_or_default();
        // Between two waits it is being tried again.
        let waits = |step: &Value| step["failure"].is_object() && step["waiting_for"].is_string();
        if let Some(step) = open.into_iter().find(waits) {
            break step;
        }
    };
    assert_eq!(failure["failure"]["code"], "model.unreachable", "{failure}");
    signal(&running.0, "-TERM");
    assert_eq!(running.0.wait().unwrap().code(), Some(130), "work is left");
}
