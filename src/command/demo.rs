//! `nightshift demo`: the bundled examples, from plan to confirmed speedup, with replies that were written beforehand.

use nightshift_optimizer::strategy::DEFAULT_STRATEGY;
use nightshift_protocol::error::ExitCode;
use nightshift_protocol::task::TaskGoal;

use super::run::{self, Campaign};
use crate::args::Demo;
use crate::context::Context;
use crate::examples;
use crate::failure::Result;
use crate::models::Models;
use crate::submit::{Again, SubmitRequest};

pub(super) async fn run(context: &Context, args: Demo) -> Result<ExitCode> {
    let tasks = if args.tasks.is_empty() {
        examples::of_target(args.target)?
    } else {
        args.tasks.iter().map(|name| examples::one(name)).collect::<Result<_>>()?
    };
    let wanted = SubmitRequest {
        name: "demo".to_owned(),
        models: Models::scripted(),
        goal: TaskGoal::default(),
        strategy: DEFAULT_STRATEGY.to_owned(),
        allow_unsandboxed: false,
        tasks,
        limits: crate::limits::Limits::default(),
        knowledge: nightshift_protocol::campaign::KnowledgeUse::default(),
        untrusted_replies: false,
        again: Again::unless_new(args.follow.new),
    };
    run::carry_out(context, Campaign { wanted, follow: args.follow, record: None, agent: None }).await
}
