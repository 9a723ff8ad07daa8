//! `nightshift mcp install`: the file of each client, what is in it already, and what is refused.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test stops at the first thing that is not as it should be"
)]

#[path = "support/binary.rs"]
mod binary;

use std::path::Path;
use std::process::Command;

use binary::{expect_exit, json_lines, nightshift};
use serde_json::Value;

/// Clients with their files, below the folder that is both project and home.
const CLIENTS: [(&str, &str); 5] = [
    ("claude-code", ".mcp.json"),
    ("codex", ".codex/config.toml"),
    ("cursor", ".cursor/mcp.json"),
    ("vscode", ".vscode/mcp.json"),
    ("goose", ".config/goose/config.yaml"),
];

fn install(folder: &Path, args: &[&str]) -> Command {
    let mut command = nightshift(&folder.join("data"));
    command.current_dir(folder).env("HOME", folder).env_remove("XDG_CONFIG_HOME").env_remove("CODEX_HOME");
    command.args(["mcp", "install"]).args(args);
    command
}

#[test]
fn each_client_gets_its_file_and_the_second_time_changes_nothing() {
    for (client, file) in CLIENTS {
        let folder = tempfile::tempdir().unwrap();
        let printed = expect_exit(&mut install(folder.path(), &[client, "--print"]), 0);
        assert!(!folder.path().join(file).exists(), "--print writes nothing");
        let done = json_lines(&expect_exit(&mut install(folder.path(), &[client, "--json"]), 0)).remove(0);
        assert_eq!(done["changed"], true, "{done}");
        let text = std::fs::read_to_string(folder.path().join(file)).expect(file);
        assert_eq!(text, String::from_utf8(printed.stdout).unwrap(), "{client}: --print tells what is written");
        assert!(text.contains(env!("CARGO_BIN_EXE_nightshift")), "this program is not on the search path: {text}");
        assert!(text.contains("--data-dir") && text.contains("mcp"), "{text}");
        let again = json_lines(&expect_exit(&mut install(folder.path(), &[client, "--json"]), 0)).remove(0);
        assert_eq!(again["changed"], false, "{again}");
    }
}

#[test]
fn the_entry_starts_this_program_against_the_server_that_was_named_and_holds_no_token() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = install(folder.path(), &["claude-code", "--read-only"]);
    command.args(["--server", "http://127.0.0.1:1"]).env("NIGHTSHIFT_SERVER__TOKEN", "verysecret");
    expect_exit(&mut command, 0);
    let text = std::fs::read_to_string(folder.path().join(".mcp.json")).unwrap();
    assert!(!text.contains("verysecret"), "{text}");
    let entry = serde_json::from_str::<Value>(&text).unwrap()["mcpServers"]["nightshift"].clone();
    let args: Vec<&str> = entry["args"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(args.ends_with(&["--server", "http://127.0.0.1:1", "mcp", "--read-only"]), "{args:?}");
    assert_eq!(entry["env"]["NIGHTSHIFT_SERVER__TOKEN"], "${NIGHTSHIFT_SERVER__TOKEN:-}", "{entry}");
}

#[test]
fn a_file_that_is_not_understood_stays_as_it_is() {
    for (client, file) in CLIENTS {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, "{ [ broken").unwrap();
        let refused = install(folder.path(), &[client, "--json"]).output().unwrap();
        let error = json_lines(&refused).remove(0)["error"].clone();
        assert_eq!(error["code"], "config.not_understood", "{client}: {error}");
        assert_eq!(refused.status.code(), Some(2), "{client}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{ [ broken", "{client}");
    }
}

#[test]
fn a_link_stays_a_link_and_other_servers_stay() {
    let folder = tempfile::tempdir().unwrap();
    let real = folder.path().join("dotfiles.json");
    std::fs::write(&real, "{\"mcpServers\": {\"other\": {\"command\": \"x\"}}}").unwrap();
    let link = folder.path().join(".mcp.json");
    std::os::unix::fs::symlink(&real, &link).unwrap();
    expect_exit(&mut install(folder.path(), &["claude-code"]), 0);
    assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    let written: Value = serde_json::from_str(&std::fs::read_to_string(&real).unwrap()).unwrap();
    assert!(written["mcpServers"]["other"].is_object() && written["mcpServers"]["nightshift"].is_object(), "{written}");
}
