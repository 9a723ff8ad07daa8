//! Running other programs.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// The root of the workspace.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}

/// A command that runs in the root of the workspace.
#[expect(clippy::disallowed_methods, reason = "tasks run other programs; the ban is for the product")]
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root()).stdin(Stdio::null());
    command
}

/// The cargo that runs this task.
#[expect(clippy::disallowed_methods, reason = "cargo tells its path in the environment")]
pub(crate) fn cargo() -> Command {
    let mut cargo = command(std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned()));
    // What cargo said about this task's own package would mislead the next one: its subcommands tell by these variables
    // how they were started.
    for (name, _) in
        std::env::vars().filter(|(name, _)| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_"))
    {
        cargo.env_remove(name);
    }
    cargo
}

/// What cargo says of the workspace and its dependencies.
pub(crate) fn metadata() -> Result<Value> {
    let output = cargo().args(["metadata", "--format-version", "1", "--locked"]).output()?;
    if !output.status.success() {
        bail!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// The folder of what cargo builds.
pub(crate) fn target_folder() -> Result<PathBuf> {
    let metadata = metadata()?;
    let target = metadata.get("target_directory").and_then(Value::as_str);
    Ok(PathBuf::from(target.context("cargo metadata without target_directory")?))
}

/// Runs it with our own output. Returns whether it succeeded.
pub(crate) fn succeeds(command: &mut Command) -> Result<bool> {
    let shown = format!("{command:?}");
    Ok(command.status().with_context(|| format!("cannot run {shown}"))?.success())
}

/// Runs it, showing each line of its standard output and handing it to `line` too. Returns whether it succeeded.
pub(crate) fn for_each_line(command: &mut Command, mut line: impl FnMut(&str)) -> Result<bool> {
    let shown = format!("{command:?}");
    let mut child = command.stdout(Stdio::piped()).spawn().with_context(|| format!("cannot run {shown}"))?;
    if let Some(stdout) = child.stdout.take() {
        for text in BufReader::new(stdout).lines() {
            let text = text?;
            println!("{text}");
            line(&text);
        }
    }
    Ok(child.wait()?.success())
}

/// The first of these programs that exists on the search path or as a path.
#[expect(clippy::disallowed_methods, reason = "a search for programs reads the search path")]
pub(crate) fn find_program(names: &[&str]) -> Option<PathBuf> {
    let path = std::env::var("PATH").unwrap_or_default();
    names.iter().find_map(|name| {
        let direct = Path::new(name);
        if direct.is_absolute() {
            return direct.is_file().then(|| direct.to_path_buf());
        }
        std::env::split_paths(&path).map(|folder| folder.join(name)).find(|candidate| candidate.is_file())
    })
}
