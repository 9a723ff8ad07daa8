//! One file for each command.

mod agent;
mod approve;
mod bulk;
mod cancel;
mod completions;
mod config;
mod control;
mod demo;
mod doctor;
mod drain;
mod export;
mod gate;
mod generate;
mod handover;
mod hint;
mod import;
mod limits;
mod list;
mod logs;
mod mcp;
mod optimize;
mod pause;
mod priority;
mod prompts;
mod prune;
mod reject;
mod release;
mod requests;
mod resume;
mod retry;
mod reward;
mod run;
mod search;
mod serve;
mod share;
mod show;
mod standstill;
mod token;
mod verify;
mod watch;
mod work;

use nightshift_protocol::error::ExitCode;

use crate::args::Command;
use crate::context::Context;
use crate::failure::Result;

/// Carries out a command. Returns the exit code of the process.
pub(crate) async fn run(context: &Context, command: Command) -> Result<ExitCode> {
    match command {
        Command::Demo(args) => Box::pin(demo::run(context, args)).await,
        Command::Optimize(args) => Box::pin(optimize::run(context, *args)).await,
        Command::Run(args) => Box::pin(run::run(context, *args)).await,
        Command::Verify(args) => verify::run(context, *args).await,
        Command::Resume(args) => resume::run(context, args).await,
        Command::Serve(args) => serve::run(context, args).await,
        Command::Work(args) => work::run(context, args).await,
        Command::List(args) => list::run(context, *args).await,
        Command::Search(args) => search::run(context, args).await,
        Command::Generate(args) => generate::run(context, args).await,
        Command::Show(args) => show::run(context, args).await,
        Command::Watch(args) => watch::run(context, args).await,
        Command::Logs(args) => logs::run(context, args).await,
        Command::Hint(args) => hint::run(context, args).await,
        Command::Approve(args) => approve::run(context, args).await,
        Command::Reject(args) => reject::run(context, args).await,
        Command::Pause(args) => pause::run(context, args).await,
        Command::Cancel(args) => cancel::run(context, args).await,
        Command::Retry(args) => retry::run(context, args).await,
        Command::Priority(args) => priority::run(context, args).await,
        Command::Limits(args) => limits::run(context, args).await,
        Command::Drain(args) => drain::run(context, args).await,
        Command::Release(args) => release::run(context, args).await,
        Command::Token(args) => token::run(context, args.command).await,
        Command::Requests(args) => requests::run(context, args.command).await,
        Command::Agent(args) => agent::run(context, args).await,
        Command::Handover(args) => handover::run(context, args.command).await,
        Command::Share(args) => share::run(context, args.command).await,
        Command::Export(args) => export::run(context, args).await,
        Command::Reward(args) => reward::run(context, args).await,
        Command::Mcp(args) => mcp::run(context, args).await,
        Command::Import(args) => import::run(context, *args).await,
        Command::Prune(args) => prune::run(context, args).await,
        Command::Doctor(args) => doctor::run(context, args).await,
        Command::Prompts(args) => prompts::run(context, args.command).await,
        Command::Config(args) => config::run(context, args.command),
        Command::Completions(args) => completions::run(context, args.shell),
    }
}
