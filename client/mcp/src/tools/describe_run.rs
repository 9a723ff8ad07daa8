//! `describe_run`.

use std::fmt::Write as _;

use nightshift_client::Client;
use nightshift_protocol::access::Role;
use nightshift_protocol::api::RunDetail;
use nightshift_protocol::task::TaskBundle;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::list_runs::{Row, row};
use crate::error::ToolError;
use crate::lookup;
use crate::program::{bound, digest, json, machine, rounded};
use crate::text::{Window, line, lines};
use crate::tool::{Access, Call, Effect, Tool};

pub(crate) struct DescribeRun;

/// A part of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RunSection {
    /// The contract of programs: rules and header.
    Contract,
    /// The source of the reference.
    Reference,
    /// The specification of the task.
    Specification,
    /// Every measured way to run the reference.
    Baselines,
    /// The profile of the reference, with its position under the roofline.
    Profile,
    /// The versions of the plan, newest first.
    Plan,
    /// One line per attempt.
    Attempts,
}

impl RunSection {
    /// Every section.
    const ALL: [Self; 7] = [
        Self::Contract,
        Self::Reference,
        Self::Specification,
        Self::Baselines,
        Self::Profile,
        Self::Plan,
        Self::Attempts,
    ];

    fn as_str(self) -> &'static str {
        match self {
            Self::Contract => "contract",
            Self::Reference => "reference",
            Self::Specification => "specification",
            Self::Baselines => "baselines",
            Self::Profile => "profile",
            Self::Plan => "plan",
            Self::Attempts => "attempts",
        }
    }

    /// Returns the section of that name.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|section| section.as_str() == text)
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Arguments {
    /// Id of the run, or a part of it.
    run: String,
    /// Return this section as text, instead of the summary.
    section: Option<RunSection>,
    /// Offset of the text in bytes: `next_offset` of the previous part.
    offset: Option<u64>,
    /// Maximum size of the part in bytes; default 6144, at most 24576.
    limit: Option<u32>,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Answer {
    /// The run as in a list.
    run: Row,
    /// The summary; none if a section was requested.
    summary: Option<Summary>,
    /// The part of the section, if requested.
    section: Option<Window>,
    /// Values of `section` with content.
    sections: Vec<&'static str>,
}

#[derive(Serialize, JsonSchema)]
struct Summary {
    /// The search strategy, with its model.
    strategy: String,
    /// Required precision of programs.
    precision: Option<&'static str>,
    /// Median time of one call of the reference, in nanoseconds; none before the task is prepared.
    reference_median_ns: Option<f64>,
    /// The fastest way to run the reference without a new program.
    fastest_baseline: Option<String>,
    /// Bottleneck of the reference.
    reference_bound: Option<String>,
    /// Fraction of the roofline that the reference reaches, 0 to 1.
    reference_roofline_share: Option<f64>,
    /// The machine on which the task was prepared.
    machine: Option<String>,
    /// Warnings about the task.
    warnings: Vec<String>,
    /// The current plan.
    plan: Option<String>,
    /// Open steps, and why they wait.
    open_steps: Vec<String>,
    /// Gates that a person has to open.
    awaits: Vec<String>,
    /// The remaining budget of the campaign, by resource.
    budget: Vec<String>,
}

impl Tool for DescribeRun {
    const NAME: &'static str = "describe_run";
    const TITLE: &'static str = "Describe a run";
    const DESCRIPTION: &'static str = "Describes a run: where it stands, reference time, fastest baseline, what bounds the reference, open steps, budget left. \
        With `section`: contract, reference, specification, baselines, profile (of the reference, with roofline), plan, attempts (one line each). \
        Sections come in parts: go on with `offset`.";
    const ACCESS: Access = Access::Needs(Role::Viewer);
    const EFFECT: Effect = Effect::Reads;
    type Arguments = Arguments;
    type Answer = Answer;

    async fn call(call: &Call<'_>, arguments: Arguments) -> Result<Answer, ToolError> {
        let connection = call.connect().await?;
        let client = &connection.client;
        let detail = lookup::run_detail(client, &arguments.run).await?;
        let section = match arguments.section {
            Some(wanted) => {
                let text = section_text(call, client, &detail, wanted).await?;
                Some(Window::of(&text, arguments.offset, arguments.limit)?)
            }
            None => None,
        };
        let summary = match section {
            Some(_) => None,
            None => Some(summary(client, &detail).await?),
        };
        let sections = sections(&detail).into_iter().map(RunSection::as_str).collect();
        Ok(Answer { run: row(&detail.summary), summary, section, sections })
    }
}

/// Returns the sections with content.
fn sections(detail: &RunDetail) -> Vec<RunSection> {
    let prepared = detail.view.prepared.as_ref();
    let has_content = |section: &RunSection| match section {
        RunSection::Contract | RunSection::Reference | RunSection::Specification => true,
        RunSection::Baselines => prepared.is_some(),
        RunSection::Profile => prepared.is_some_and(|prepared| prepared.profile.is_some()),
        RunSection::Plan => !detail.view.plans.is_empty(),
        RunSection::Attempts => !detail.view.attempts.is_empty(),
    };
    RunSection::ALL.into_iter().filter(has_content).collect()
}

/// Returns a section as text.
pub(crate) async fn section_text(
    call: &Call<'_>,
    client: &Client,
    detail: &RunDetail,
    wanted: RunSection,
) -> Result<String, ToolError> {
    let not_yet = |what: &str| {
        ToolError::new("run.not_prepared", format!("the {what} of the reference is not known"))
            .hint("describe_run shows whether the run is still being prepared, and what a profile would need")
    };
    let prepared = detail.view.prepared.as_ref();
    match wanted {
        RunSection::Contract => call.shared.tasks.contract(&bundle(client, detail).await?),
        RunSection::Reference => Ok(bundle(client, detail).await?.reference_source),
        RunSection::Specification => Ok(json(&bundle(client, detail).await?.spec)),
        RunSection::Baselines => {
            let prepared = prepared.ok_or_else(|| not_yet("time"))?;
            let mut text = format!("reference: median {:.0} ns\n", prepared.baseline_median_ns);
            for baseline in &prepared.baselines {
                let label = baseline.kind.label();
                let measured = baseline.measurement.as_ref().map(|measured| {
                    let speedup = measured.speedup;
                    format!(
                        "median {:.0} ns, {:.3}x [{:.3}, {:.3}] over the reference",
                        measured.candidate_median_ns, speedup.estimate, speedup.low, speedup.high
                    )
                });
                let reason = baseline.reason.clone().unwrap_or_default();
                let said = measured.unwrap_or_else(|| format!("not measured: {reason}"));
                let _ = writeln!(text, "{label}: {said}");
            }
            Ok(text)
        }
        RunSection::Profile => {
            let profile = prepared.and_then(|prepared| prepared.profile.as_ref());
            profile.map(|profile| digest(profile)).ok_or_else(|| not_yet("profile"))
        }
        RunSection::Plan => Ok(detail.view.plans.iter().rev().map(json).collect::<Vec<_>>().join("\n")),
        RunSection::Attempts => Ok(attempts(detail)),
    }
}

async fn bundle(client: &Client, detail: &RunDetail) -> Result<TaskBundle, ToolError> {
    let bytes = client.get_artifact(&detail.view.task).await?;
    serde_json::from_slice(&bytes).map_err(|error| {
        ToolError::new("task.not_understood", format!("the stored task of the run cannot be read: {error}"))
    })
}

fn attempts(detail: &RunDetail) -> String {
    let attempts = detail.view.attempts.iter().map(|attempt| {
        let parent = attempt.parent.map_or_else(String::new, |parent| format!(" from {parent}"));
        let speedup = attempt.speedup().filter(|_| attempt.outcome.is_correct()).map_or_else(String::new, |speedup| {
            format!(" {:.3}x [{:.3}, {:.3}]", speedup.estimate, speedup.low, speedup.high)
        });
        let best = if detail.view.best_attempt == Some(attempt.number) { " (best)" } else { "" };
        let issue = attempt
            .diagnosis
            .as_ref()
            .map_or_else(String::new, |diagnosis| format!(": {}", line(&diagnosis.critical_issue)));
        let (number, stage, outcome) = (attempt.number, attempt.stage.as_str(), attempt.outcome.as_str());
        format!("{number} {stage}{parent} {outcome}{speedup}{best}{issue}\n")
    });
    attempts.collect()
}

async fn summary(client: &Client, detail: &RunDetail) -> Result<Summary, ToolError> {
    let campaign = client.campaign(&detail.summary.campaign).await?;
    let prepared = detail.view.prepared.as_ref();
    let profile = prepared.and_then(|prepared| prepared.profile.as_deref());
    let fastest = prepared.and_then(nightshift_protocol::step::PreparedTask::fastest_baseline);
    let open = detail.open_steps.iter().map(|step| {
        let why = step.waiting_for.as_deref().unwrap_or("in work");
        format!("{} ({}): {why}", step.key, step.status.as_str())
    });
    let budget = campaign.budget.iter().map(|of| {
        let cap = of.cap.map_or_else(|| "unlimited".to_owned(), |cap| cap.to_string());
        format!("{}: {} used, {} reserved, limit {cap}", of.resource.as_str(), of.used, of.reserved)
    });
    Ok(Summary {
        strategy: line(&format!("{} with {}", campaign.spec.strategy, detail.summary.digest.model)),
        precision: detail.summary.digest.precision.map(nightshift_protocol::task::PrecisionPolicy::as_str),
        reference_median_ns: prepared.map(|prepared| rounded(prepared.baseline_median_ns)),
        fastest_baseline: fastest
            .map(|fastest| format!("{}, median {:.0} ns", fastest.label_with_limits(), fastest.median_ns)),
        reference_bound: profile.map(|profile| bound(profile).to_owned()),
        reference_roofline_share: profile.and_then(|profile| profile.roofline_share).map(rounded),
        machine: prepared.map(|prepared| machine(&prepared.machine)),
        warnings: lines(
            prepared.iter().flat_map(|prepared| &prepared.warnings).map(nightshift_protocol::verdict::Finding::line),
        ),
        plan: detail.view.plans.last().map(|plan| line(&plan.plan.summary)),
        open_steps: lines(open),
        awaits: lines(&detail.summary.awaits),
        budget: lines(budget),
    })
}
