use std::sync::Mutex;

use serde_json::json;

use super::super::Unmetered;
use super::*;

fn request() -> ModelRequest {
    ModelRequest { system: "You write programs.".to_owned(), user: "Write one.".to_owned(), ..ModelRequest::example() }
}

fn variables(name: &str) -> Option<SecretString> {
    let value = match name {
        "PATH" => "/usr/local/bin:/usr/bin:/bin",
        "LAB_KEY" => "hush-hush",
        "SWITCH" => "3",
        "OTHER_KEY" => "unrequested-value",
        _ => return None,
    };
    Some(SecretString::from(value))
}

fn model(config: CommandConfig) -> CommandModel {
    let provider = Arc::new(CommandProvider::new("cli".to_owned(), config));
    provider.open("big".to_owned(), &variables).unwrap_or_else(|error| panic!("{error}"))
}

fn shell(line: &str) -> CommandConfig {
    CommandConfig { shell: true, ..CommandConfig::new(vec![line.to_owned()]) }
}

async fn ask(config: CommandConfig) -> Result<String, ModelError> {
    model(config).call(&request(), &Unmetered).await.map(|reply| reply.text)
}

#[tokio::test]
async fn a_command_gets_the_prompt_and_its_output_is_the_reply() {
    let reply = ask(CommandConfig::new(vec!["cat".to_owned()])).await;
    assert_eq!(reply.ok().as_deref(), Some("You write programs.\n\nWrite one.\n"));
}

#[tokio::test]
async fn arguments_reach_the_program_as_they_are() {
    let parts = ["printf", "%s|", "{model}", "$HOME; `id`"];
    let reply = ask(CommandConfig::new(parts.map(str::to_owned).to_vec())).await;
    assert_eq!(reply.ok().as_deref(), Some("big|$HOME; `id`|"));
    let reply = ask(shell("printf '%s' \"$NIGHTSHIFT_MODEL\"")).await;
    assert_eq!(reply.ok().as_deref(), Some("big"));
}

#[tokio::test]
async fn a_command_sees_no_secret_but_those_that_are_named() {
    let seen = ask(shell("env; pwd; ls -A")).await.unwrap_or_default();
    assert!(seen.contains("PATH=") && !seen.contains("hush") && !seen.contains("unrequested"), "{seen}");
    let named = CommandConfig { env: vec!["LAB_KEY".to_owned()], ..shell("env") };
    let seen = ask(named).await.unwrap_or_default();
    assert!(seen.contains("LAB_KEY=hush-hush") && !seen.contains("unrequested"), "{seen}");
    let missing = CommandConfig { env: vec!["NO_SUCH_KEY".to_owned()], ..shell("env") };
    let provider = Arc::new(CommandProvider::new("cli".to_owned(), missing));
    let Err(error) = provider.open("big".to_owned(), &variables) else { panic!("opened") };
    assert_eq!(error.code(), "model.auth");
    let said = error.to_string();
    assert!(said.contains("the command of `cli`") && said.contains("NO_SUCH_KEY"), "{said}");
    assert_eq!(provider.probe(&variables).err().map(|error| error.to_string()), Some(said));
}

#[tokio::test]
async fn a_failure_tells_status_and_words_but_no_secret() {
    let line = "echo \"no credit for $LAB_KEY since 13:30\" >&2; exit 3";
    let config = CommandConfig { env: vec!["LAB_KEY".to_owned(), "SWITCH".to_owned()], ..shell(line) };
    let Err(error) = ask(config).await else { panic!("answered") };
    assert_eq!(error.code(), "model.command_failed");
    assert!(error.is_retriable() && error.may_be_billed() && error.falls_through());
    let said = error.to_string();
    assert!(said.contains("status 3") && said.contains("no credit for [hidden] since 13:30"), "{said}");
    let Err(error) = ask(shell("kill -9 $$")).await else { panic!("answered") };
    assert!(error.to_string().contains("signal"), "{error}");
}

#[tokio::test]
async fn a_program_that_is_not_there_is_a_matter_of_configuration() {
    let missing = CommandConfig::new(vec!["no-such-program-of-ours".to_owned()]);
    let Err(error) = ask(missing.clone()).await else { panic!("answered") };
    assert_eq!((error.code(), error.is_retriable()), ("config.model", false));
    let Err(error) = ask(shell("no-such-program-of-ours")).await else { panic!("answered") };
    assert_eq!(error.code(), "config.model");
    assert!(CommandProvider::new("cli".to_owned(), missing).probe(&variables).is_err());
    let there = CommandProvider::new("cli".to_owned(), CommandConfig::new(vec!["cat".to_owned()]));
    assert_eq!(there.probe(&variables).ok().map(|report| report.base_url).as_deref(), Some("command `cat`"));
}

#[tokio::test]
async fn a_command_that_takes_too_long_is_killed_with_all_that_it_started() {
    let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
    let pid = folder.path().join("pid");
    // The child of the shell would sleep for minutes, with the output in its hands.
    let line = format!("sleep 300 & echo $! > {}; wait", pid.display());
    let Err(error) = ask(CommandConfig { timeout_ms: 10_000, ..shell(&line) }).await else { panic!("answered") };
    assert_eq!(error.code(), "model.timeout");
    assert!(error.may_be_billed());
    assert_gone(&pid).await;
}

#[tokio::test]
async fn what_a_command_leaves_running_does_not_hold_its_reply_back() {
    let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
    let pid = folder.path().join("pid");
    let line = format!("sleep 300 & echo $! > {}; echo done", pid.display());
    let began = Instant::now();
    assert_eq!(ask(shell(&line)).await.ok().as_deref(), Some("done\n"));
    assert!(began.elapsed() < Duration::from_mins(1));
    assert_gone(&pid).await;
}

#[tokio::test]
async fn a_call_that_is_broken_off_leaves_nothing_running() {
    let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
    let pid = folder.path().join("pid");
    let line = format!("echo $$ > {}; sleep 300", pid.display());
    let call = tokio::spawn(ask(shell(&line)));
    wait_until("it runs", || std::fs::read_to_string(&pid).is_ok_and(|text| text.ends_with('\n'))).await;
    call.abort();
    assert_gone(&pid).await;
}

#[tokio::test]
async fn an_endless_reply_ends_at_its_limit() {
    let began = Instant::now();
    let config = CommandConfig { max_output_bytes: 1_000, ..shell("while :; do echo again; done") };
    let Err(error) = ask(config).await else { panic!("answered") };
    assert_eq!(error.code(), "model.too_large");
    assert!(began.elapsed() < Duration::from_mins(1));
    let exactly = CommandConfig { max_output_bytes: 6, ..shell("echo again") };
    assert_eq!(ask(exactly).await.ok().as_deref(), Some("again\n"));
}

#[tokio::test]
async fn a_command_need_not_read_its_prompt() {
    let long = ModelRequest { user: "x".repeat(1 << 20), ..request() };
    let reply = model(shell("echo heard")).call(&long, &Unmetered).await;
    assert_eq!(reply.ok().map(|reply| reply.text).as_deref(), Some("heard\n"));
}

#[tokio::test]
async fn bytes_that_are_no_text_are_refused() {
    let Err(error) = ask(shell("printf '\\377\\376'")).await else { panic!("answered") };
    assert_eq!(error.code(), "model.malformed");
}

#[test]
fn earlier_turns_and_the_form_of_the_reply_are_part_of_the_prompt() {
    let asked = ModelRequest {
        earlier: vec![("no json".to_owned(), "wrong form".to_owned())],
        json_schema: Some(json!({"type": "object"})),
        ..request()
    };
    let text = prompt(&asked);
    let parts = ["You write", "Write one", "no json", "wrong form", "{\"type\":\"object\"}"];
    let order = parts.map(|part| text.find(part));
    assert!(order.iter().all(Option::is_some) && order.is_sorted(), "{text}");
}

#[test]
fn a_configuration_that_cannot_work_is_refused() {
    let two_with_shell = CommandConfig { shell: true, ..CommandConfig::new(vec!["a".to_owned(), "b".to_owned()]) };
    for config in [
        CommandConfig::new(Vec::new()),
        CommandConfig::new(vec![String::new()]),
        two_with_shell,
        CommandConfig { env: vec!["A=B".to_owned()], ..shell("env") },
        CommandConfig { timeout_ms: 0, ..shell("env") },
        CommandConfig { max_output_bytes: 0, ..shell("env") },
    ] {
        let provider = Arc::new(CommandProvider::new("cli".to_owned(), config));
        let Err(error) = provider.open("big".to_owned(), &variables) else { panic!("opened") };
        assert_eq!(error.code(), "config.model");
    }
}

#[tokio::test]
async fn no_more_calls_run_at_once_than_are_allowed() {
    let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
    let seen = Mutex::new(Vec::new());
    let place = folder.path().join("running");
    // A second one at the same time would find the folder there.
    let line = format!("mkdir {0} && sleep 0.05 && rmdir {0} && echo alone", place.display());
    let model = model(CommandConfig { max_parallel: NonZeroUsize::MIN, ..shell(&line) });
    let call = async || {
        let reply = model.call(&request(), &Unmetered).await.map(|reply| reply.text).unwrap_or_default();
        seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(reply);
    };
    tokio::join!(call(), call(), call());
    assert_eq!(seen.into_inner().unwrap_or_default(), ["alone\n", "alone\n", "alone\n"]);
}

async fn assert_gone(pid: &Path) {
    let pid = std::fs::read_to_string(pid).unwrap_or_default().trim().to_owned();
    assert!(!pid.is_empty());
    let status = std::path::PathBuf::from(format!("/proc/{pid}/stat"));
    // A process that is dead and not yet waited for by its new parent is as good as gone.
    let is_gone = || std::fs::read_to_string(&status).map_or(true, |text| text.contains(") Z "));
    wait_until("it is gone", is_gone).await;
}

async fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let patience = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < patience, "timed out: {what}");
        tokio::task::yield_now().await;
    }
}
