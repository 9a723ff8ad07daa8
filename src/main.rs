//! `nightshift`: overnight campaigns that make GPU programs faster.
//!
//! This is the composition root: it reads command line, configuration and environment, and puts server, worker, store,
//! optimizer and dashboard together. What is done with them lives in their crates.

mod archive_file;
mod args;
mod coding_agent;
mod command;
mod compose;
mod config;
mod confirm;
mod connect;
mod context;
mod environment;
mod examples;
mod failure;
mod follow;
mod handover_file;
mod interrupt;
mod kernelbench;
mod limits;
mod mcp;
#[expect(unsafe_code, reason = "options of the allocators have no safe interface")]
mod memory;
mod models;
mod output;
mod present;
mod progress;
mod random;
mod record;
mod resolve;
mod results;
mod reward_call;
mod server_file;
mod stored_runs;
mod submit;
mod verify;

use std::ffi::OsString;

use clap::Parser;
use nightshift_protocol::error::ExitCode;

use crate::args::{Cli, Command};
use crate::environment::Environment;
use crate::failure::{Failure, Result};
use crate::interrupt::Manners;
use crate::output::Output;

/// The engine allocates many small texts on one thread and frees them on another; the system's allocator takes a sixth
/// of the time of a step for that (`docs/evidence/engine-notes.md`).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    let args: Vec<OsString> = std::env::args_os().collect();
    // A sandboxed child of a worker: it has to be alone in its process, before any thread starts.
    if let Some(status) = nightshift_worker::child_main(&args) {
        std::process::exit(status);
    }
    memory::keep_little();
    let environment = Environment::read();
    let cli = match Cli::try_parse_from(&args) {
        Ok(cli) => cli,
        Err(error) => return refuse(&error, &args, &environment),
    };
    let output = Output::new(cli.global.json, cli.global.no_color, &environment);
    match run(cli, environment, output) {
        Ok(code) => exit(code),
        Err(failure) if failure.is_closed_output() => exit(ExitCode::Ok),
        Err(failure) => {
            output.failure(&failure);
            exit(failure.exit_code())
        }
    }
}

fn run(cli: Cli, environment: Environment, output: Output) -> Result<ExitCode> {
    let loaded = config::load(&cli.flags(), &environment)?;
    start_log(&loaded.config.log)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new("internal.runtime", format!("the runtime cannot be started: {error}")))?;
    let code = runtime.block_on(async {
        let manners = match &cli.command {
            Command::Work(_) => Manners::Drains,
            _ => Manners::Ends,
        };
        let signals = interrupt::on_signal(output, manners)?;
        let context =
            context::Context { loaded, environment, output, interrupt: signals.first, insist: signals.second };
        command::run(&context, cli.command).await
    });
    // Whatever still blocks a thread here has nothing left to store.
    runtime.shutdown_background();
    code
}

fn exit(code: ExitCode) -> std::process::ExitCode {
    std::process::ExitCode::from(code as u8)
}

/// A command line that is not understood, or a request for help.
fn refuse(error: &clap::Error, args: &[OsString], environment: &Environment) -> std::process::ExitCode {
    use clap::error::ErrorKind;
    let json = args.iter().any(|arg| arg == "--json");
    let no_color = args.iter().any(|arg| arg == "--no-color");
    let output = Output::new(json, no_color, environment);
    let help = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    let text = error.render().to_string();
    if help {
        return match output.text(&text) {
            Ok(()) => exit(ExitCode::Ok),
            Err(failure) => exit(if failure.is_closed_output() { ExitCode::Ok } else { failure.exit_code() }),
        };
    }
    if json {
        output.failure(&Failure::new("usage.invalid", text.trim().trim_start_matches("error: ")));
    } else if let Some(message) = text.strip_prefix("error: ") {
        output.note(&format!("error[usage.invalid]: {message}"));
    } else {
        // Without any command: the help.
        output.note(&text);
    }
    exit(ExitCode::Usage)
}

fn start_log(filter: &str) -> Result<()> {
    let filter = tracing_subscriber::EnvFilter::try_new(filter)
        .map_err(|error| Failure::new("config.invalid", format!("`log`: `{filter}` is no log filter: {error}")))?;
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(|| output::LogLine).with_ansi(false).init();
    Ok(())
}
