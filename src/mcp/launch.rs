//! The command with which a coding agent starts this program as its MCP server.

use std::path::Path;

use nightshift_mcp::install::Launch;
use nightshift_protocol::id::RunId;

use crate::context::Context;
use crate::failure::{Failure, Result};

/// The name of this program on the search path.
const PROGRAM: &str = "nightshift";

/// Returns the command, with the server, data folder and configuration file of this process, and these options of `mcp`.
/// What the environment of the agent leads to is left out.
pub(crate) fn launch(context: &Context, options: Vec<String>) -> Result<Launch> {
    let environment = &context.environment;
    let is_default = environment.default_data_dir().as_ref() == Some(&context.config().data_dir);
    command(context, !is_default, options)
}

/// Returns the command of the server that is bound to a run. It names the data folder in any case: the environment of an agent
/// that this process starts may lead to another one.
pub(crate) fn launch_for_run(context: &Context, run: &RunId) -> Result<Launch> {
    command(context, true, vec!["--run".to_owned(), run.to_string()])
}

fn command(context: &Context, names_data_dir: bool, options: Vec<String>) -> Result<Launch> {
    let (config, environment) = (context.config(), &context.environment);
    let executable = std::env::current_exe().map_err(|error| {
        Failure::new("worker.executable", format!("the path of this program is not known: {error}"))
    })?;
    let on_path = environment.search_path().iter().map(|folder| folder.join(PROGRAM)).find(|path| path.is_file());
    let on_path = on_path.and_then(|path| path.canonicalize().ok());
    let is_this = on_path.is_some() && on_path == executable.canonicalize().ok();
    let command = if is_this { PROGRAM.to_owned() } else { executable.display().to_string() };
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf()).display().to_string();
    let mut with = Vec::new();
    if names_data_dir {
        with.extend(["--data-dir".to_owned(), absolute(&config.data_dir)]);
    }
    let named = context.loaded.file.as_ref().filter(|path| environment.default_config_file().as_ref() != Some(path));
    if let Some(path) = named.filter(|_| context.loaded.file_read) {
        with.extend(["--config".to_owned(), absolute(path)]);
    }
    if let Some(url) = &config.server.url {
        with.extend(["--server".to_owned(), url.clone()]);
    }
    with.push("mcp".to_owned());
    with.extend(options);
    Ok(Launch { command, args: with, needs_token: config.server.url.is_some() })
}
