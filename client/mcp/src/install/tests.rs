#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use jsonc_parser::ParseOptions;
use serde_json::{Value, json};

use super::*;

fn launch() -> Launch {
    Launch {
        command: "nightshift".to_owned(),
        args: ["--server", "https://host:1/a \"b\"", "mcp"].map(str::to_owned).to_vec(),
        needs_token: true,
    }
}

/// Parses a configuration as its client does.
fn read(client: Client, text: &str) -> Value {
    match client {
        Client::Codex => ::toml::from_str::<Value>(text).unwrap(),
        Client::Goose => yaml_serde::from_str::<Value>(text).unwrap(),
        _ => jsonc_parser::parse_to_serde_value::<Value>(text, &ParseOptions::default()).unwrap(),
    }
}

/// Returns the key below which a client finds servers.
fn key(client: Client) -> &'static str {
    match client {
        Client::Codex => "mcp_servers",
        Client::Goose => "extensions",
        Client::VsCode => "servers",
        Client::ClaudeCode | Client::Cursor => "mcpServers",
    }
}

/// Returns an existing configuration with comments.
fn existing(client: Client) -> &'static str {
    match client {
        Client::Codex => {
            "# mine\nmodel = \"x\"\n\n[mcp_servers.other] # keep\ncommand = \"other\"\nargs = []\n\n[tui]\ntheme = \"dark\"\n"
        }
        Client::Goose => {
            "# mine\nGOOSE_MODEL: x\nextensions:\n    # keep\n    other:\n        cmd: other\n        args: []\nafter: 1\n"
        }
        Client::VsCode => {
            "{\n  // mine\n  \"inputs\": [],\n  \"servers\": {\n    \"other\": { \"command\": \"other\" }, // keep\n  },\n}\n"
        }
        Client::ClaudeCode | Client::Cursor => {
            "{\n\t\"z\": 1,\n\t\"mcpServers\": {\"other\": {\"command\": \"other\"}},\n\t\"a\": [1, 2]\n}\n"
        }
    }
}

#[test]
fn a_new_file_holds_the_entry_as_its_client_reads_it() {
    for client in Client::ALL {
        let text = with_entry(client, "", &launch()).unwrap();
        let entry = &read(client, &text)[key(client)][ENTRY];
        let command = if client == Client::Goose { "cmd" } else { "command" };
        assert_eq!(entry[command], "nightshift", "{client:?}: {text}");
        assert_eq!(entry["args"], json!(["--server", "https://host:1/a \"b\"", "mcp"]), "{client:?}: {text}");
        let named = match client {
            Client::Codex => entry["env_vars"][0].clone(),
            Client::Goose => entry["env_keys"][0].clone(),
            _ => json!(entry["env"].as_object().unwrap().keys().next()),
        };
        assert_eq!(named, TOKEN_VARIABLE, "{client:?}: {text}");
    }
}

#[test]
fn existing_entries_stay_with_their_comments() {
    for client in Client::ALL {
        let before = existing(client);
        let after = with_entry(client, before, &launch()).unwrap();
        let (mut known, mut changed) = (read(client, before), read(client, &after));
        let entry = changed[key(client)].as_object_mut().unwrap().remove(ENTRY);
        assert!(entry.is_some_and(|entry| entry.is_object()), "{client:?}: {after}");
        assert_eq!(changed, known.take(), "{client:?}: {after}");
        for comment in ["mine", "keep"].iter().filter(|comment| before.contains(*comment)) {
            assert!(after.contains(comment), "{client:?} lost `{comment}`: {after}");
        }
    }
}

#[test]
fn a_second_time_changes_nothing_and_another_command_changes_the_entry_alone() {
    for client in Client::ALL {
        let once = with_entry(client, existing(client), &launch()).unwrap();
        assert_eq!(with_entry(client, &once, &launch()).unwrap(), once, "{client:?}");
        let other = Launch { command: "/opt/nightshift".to_owned(), needs_token: false, ..launch() };
        let changed = read(client, &with_entry(client, &once, &other).unwrap());
        let command = if client == Client::Goose { "cmd" } else { "command" };
        assert_eq!(changed[key(client)][ENTRY][command], "/opt/nightshift", "{client:?}");
        assert_eq!(changed[key(client)]["other"][command], "other", "{client:?}");
    }
}

#[test]
fn a_file_that_is_not_understood_is_refused() {
    for (client, text) in [
        (Client::ClaudeCode, "{\"mcpServers\": {"),
        (Client::ClaudeCode, "[]"),
        (Client::Cursor, "{\"mcpServers\": 3}"),
        (Client::VsCode, "servers: {}"),
        (Client::Codex, "mcp_servers = 3"),
        (Client::Codex, "[mcp_servers"),
        (Client::Goose, "extensions: [a]"),
        (Client::Goose, "extensions: {other: {cmd: other}}"),
        (Client::Goose, "- a"),
        (Client::Goose, "a: ["),
    ] {
        assert!(with_entry(client, text, &launch()).is_err(), "{client:?}: {text}");
    }
}

#[test]
fn empty_places_for_entries_are_filled() {
    for (client, text) in [
        (Client::Goose, "extensions: {}\n"),
        (Client::Goose, "extensions:\n"),
        (Client::Goose, "a: 1\nextensions: null # none yet\nb: 2"),
        (Client::Goose, "extensions:\n  nightshift:\n    cmd: old\n\nlast: 1\n"),
        (Client::Codex, "mcp_servers = {}\n"),
        (Client::Codex, "mcp_servers = { other = { command = \"other\" } }\n"),
        (Client::Codex, "[mcp_servers]\n"),
        (Client::ClaudeCode, "{\"mcpServers\": {}}"),
        (Client::ClaudeCode, "{}"),
    ] {
        let after = with_entry(client, text, &launch()).unwrap();
        assert!(read(client, &after)[key(client)][ENTRY].is_object(), "{client:?}: {after}");
    }
}

#[test]
fn files_are_where_the_clients_look_for_them() {
    let places = Places { project: "/p".into(), codex: Some("/h/.codex".into()), config: Some("/h/.config".into()) };
    let named = |client| file(client, &places).unwrap().display().to_string();
    assert_eq!(named(Client::ClaudeCode), "/p/.mcp.json");
    assert_eq!(named(Client::Codex), "/h/.codex/config.toml");
    assert_eq!(named(Client::Cursor), "/p/.cursor/mcp.json");
    assert_eq!(named(Client::VsCode), "/p/.vscode/mcp.json");
    assert_eq!(named(Client::Goose), "/h/.config/goose/config.yaml");
    let homeless = Places { project: "/p".into(), codex: None, config: None };
    assert!(file(Client::Codex, &homeless).is_err());
}
