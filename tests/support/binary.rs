//! Running the built binary.

use std::path::Path;
use std::process::{Command, Output, Stdio};

/// The binary with this data folder, an empty configuration, and nothing of the caller's environment that matters.
#[expect(clippy::disallowed_methods, reason = "whole-system tests run the binary")]
pub(crate) fn nightshift(data_dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nightshift"));
    for (name, _) in std::env::vars() {
        if name.starts_with("NIGHTSHIFT_") || name.ends_with("_API_KEY") {
            command.env_remove(name);
        }
    }
    command
        .arg("--data-dir")
        .arg(data_dir)
        .env("XDG_CONFIG_HOME", data_dir.join("no-config"))
        .env("NO_COLOR", "1")
        // Tests read pages without a token, also where other people use this machine.
        .env("NIGHTSHIFT_SERVER__OPEN_READS", "true")
        .stdin(Stdio::null());
    command
}

/// Runs it and panics with everything it printed unless it ends with this exit code.
pub(crate) fn expect_exit(command: &mut Command, code: i32) -> Output {
    let output = command.output().expect("the binary starts");
    assert_eq!(
        output.status.code(),
        Some(code),
        "{command:?}\n--- stdout\n{}\n--- stderr\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

/// Every line of the output as JSON.
pub(crate) fn json_lines(output: &Output) -> Vec<serde_json::Value> {
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error} in {line}")))
        .collect()
}
