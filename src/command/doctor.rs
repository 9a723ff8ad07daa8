//! `nightshift doctor`: what a campaign needs on this machine, and what to do about what is missing.

mod gpu;
mod gpu_devices;
mod install_nvcc;
mod machine;
mod models;
mod nvcc;
mod reads;
mod sandbox;
mod storage;

use nightshift_protocol::error::ExitCode;
use serde::Serialize;
use serde_json::json;

use crate::args::Doctor;
use crate::context::Context;
use crate::failure::Result;
use crate::output::{Tone, printable};

/// How a check ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum State {
    /// It is there.
    Ok,
    /// Something does not work because of it, but not everything.
    Warning,
    /// Nothing works, or data is in danger.
    Problem,
}

/// One check.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Check {
    /// What was looked at.
    pub(super) name: String,
    /// How it ended.
    pub(super) state: State,
    /// What was found.
    pub(super) found: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) advice: Option<String>,
    /// Whether even the demo is impossible.
    pub(super) blocks_demo: bool,
}

impl Check {
    pub(super) fn ok(name: &str, found: impl Into<String>) -> Self {
        Self { name: name.to_owned(), state: State::Ok, found: found.into(), advice: None, blocks_demo: false }
    }

    pub(super) fn warning(name: &str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { state: State::Warning, advice: Some(advice.into()), ..Self::ok(name, found) }
    }

    /// A problem that makes even the demo impossible.
    pub(super) fn problem(name: &str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { state: State::Problem, advice: Some(advice.into()), blocks_demo: true, ..Self::ok(name, found) }
    }
}

pub(super) async fn run(context: &Context, args: Doctor) -> Result<ExitCode> {
    if args.install_nvcc {
        return install_nvcc::run(context, args).await;
    }
    let mut checks = machine::checks(context).await?;
    checks.extend(gpu::checks(context).await?);
    checks.extend(storage::checks(context).await);
    checks.push(reads::check(context));
    checks.extend(models::checks(context).await?);
    let blocked = checks.iter().any(|check| check.blocks_demo);
    let output = context.output;
    if output.is_json() {
        output.json(&json!({ "checks": checks, "demo_possible": !blocked }))?;
    } else {
        for check in &checks {
            let (word, tone) = match check.state {
                State::Ok => ("ok     ", Tone::Good),
                State::Warning => ("warning", Tone::Caution),
                State::Problem => ("problem", Tone::Bad),
            };
            let found = printable(&check.found).replace('\n', " ");
            output.text(&format!("{}  {:22} {found}", output.paint(word, tone), check.name))?;
            if let Some(advice) = &check.advice {
                output.text(&format!("{:33}-> {}", "", printable(advice)))?;
            }
        }
        output.text(if blocked { "\nthe demo is NOT possible here yet" } else { "\nthe demo is possible here" })?;
    }
    Ok(if blocked { ExitCode::Environment } else { ExitCode::Ok })
}
