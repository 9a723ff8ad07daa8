//! `nightshift reward`: scoring history anew, and scoring for a trainer.

mod recompute;
mod serve;

use nightshift_protocol::error::ExitCode;

use crate::args::{Reward, RewardCommand};
use crate::context::Context;
use crate::failure::Result;

pub(super) async fn run(context: &Context, args: Reward) -> Result<ExitCode> {
    match args.command {
        RewardCommand::Recompute(args) => recompute::run(context, args).await,
        RewardCommand::Serve(args) => serve::run(context, args).await,
    }
}
