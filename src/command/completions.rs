//! `nightshift completions`: what a shell needs to complete our command line.

use clap::CommandFactory;
use clap_complete::Shell;
use nightshift_protocol::error::ExitCode;
use serde_json::json;

use crate::args::Cli;
use crate::context::Context;
use crate::failure::Result;

pub(super) fn run(context: &Context, shell: Shell) -> Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "nightshift", &mut script);
    if context.output.is_json() {
        let script = String::from_utf8_lossy(&script);
        context.output.json(&json!({ "shell": shell.to_string(), "script": script }))?;
    } else {
        context.output.bytes(&script)?;
    }
    Ok(ExitCode::Ok)
}
