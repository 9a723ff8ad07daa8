//! Breaks servers, workers, databases and messages at random while campaigns run, and checks afterwards that nothing was
//! lost and nothing done twice. For tests only; see `docs/explanation/durability.md`.
//!
//! `storm` is the orchestrator: it starts a database, servers and workers as processes of their own (`node …`, the same
//! binary), puts a proxy of its own between them, and draws one fault after the other from a seed. What a run consists
//! of is a toy (`toy`); the engine, the store, the server, the client and the worker's lease loop are the real ones.

mod node;
mod race;
mod storm;
mod toy;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "nightshift-chaos", about = "Breaks everything at random, and checks that nothing was lost")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Injects faults while campaigns run, and checks what came out.
    Storm(storm::Options),
    /// Lets two processes race for the same thing, round after round: exactly one may win.
    Race(race::Options),
    /// A process that the others start.
    #[command(subcommand, hide = true)]
    Node(node::Role),
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Storm(options) => storm::run(&options),
        Command::Race(options) => race::run(&options),
        Command::Node(role) => node::run(role).map(|()| true),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error:?}");
            ExitCode::from(2)
        }
    }
}
