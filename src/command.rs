//! One file for each command.

mod cancel;
mod completions;
mod config;
mod control;
mod demo;
mod doctor;
mod export;
mod list;
mod logs;
mod pause;
mod resume;
mod retry;
mod run;
mod serve;
mod show;
mod watch;
mod work;

use nightshift_protocol::error::ExitCode;

use crate::args::Command;
use crate::context::Context;
use crate::failure::Result;

/// Carries out a command. Gives the exit code of the process.
pub(crate) async fn run(context: &Context, command: Command) -> Result<ExitCode> {
    match command {
        Command::Demo(args) => demo::run(context, args).await,
        Command::Run(args) => run::run(context, args).await,
        Command::Resume(args) => resume::run(context, args).await,
        Command::Serve(args) => serve::run(context, args).await,
        Command::Work(args) => work::run(context, args).await,
        Command::List(args) => list::run(context, args).await,
        Command::Show(args) => show::run(context, args).await,
        Command::Watch(args) => watch::run(context, args).await,
        Command::Logs(args) => logs::run(context, args).await,
        Command::Pause(args) => pause::run(context, args).await,
        Command::Cancel(args) => cancel::run(context, args).await,
        Command::Retry(args) => retry::run(context, args).await,
        Command::Export(args) => export::run(context, args).await,
        Command::Doctor => doctor::run(context).await,
        Command::Config(args) => config::run(context, args.command),
        Command::Completions(args) => completions::run(context, args.shell),
    }
}
