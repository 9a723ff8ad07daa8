//! The facts of an attempt by which it is compared with others, always in the same order.

use nightshift_protocol::api::RunDetail;
use nightshift_protocol::attempt::Attempt;
use nightshift_protocol::rubric::{JudgeOpinion, RubricScores};
use nightshift_protocol::verdict::Severity;

use crate::chart::{Unit, show};
use crate::format::{answer, bytes, count, reward as shown_reward, speedup, words};
use crate::page::attempt::{bound_of, fastest_baseline, idle_share, outcome_of, speedup_over_fastest};
use crate::page::components::nanoseconds;

/// The one name of a fact that is ranked and too long to be written twice.
const USED_ERROR: &str = "Share of the allowed error";
/// The same for the speedup over the reference.
const OVER_REFERENCE: &str = "Speedup over the reference";
/// The same for the speedup over the fastest baseline.
const OVER_FASTEST: &str = "Speedup over the fastest baseline";

/// A fact.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Fact {
    /// Label of the row.
    pub(super) name: &'static str,
    /// Value as text; empty when it is unknown.
    pub(super) value: String,
    /// Rank of the value where a larger or smaller value is clearly better: the highest rank is the best.
    pub(super) rank: Option<f64>,
}

/// The rank of the best of a row; none where nothing can be better than another.
pub(super) fn best(cells: &[&Fact]) -> Option<f64> {
    let ranks = || cells.iter().filter_map(|cell| cell.rank).filter(|rank| rank.is_finite());
    let (highest, lowest) = (ranks().reduce(f64::max)?, ranks().reduce(f64::min)?);
    (highest > lowest).then_some(highest)
}

fn rank(name: &str, detail: &RunDetail, attempt: &Attempt) -> Option<f64> {
    match name {
        OVER_REFERENCE => attempt.speedup().map(|speedup| speedup.estimate),
        OVER_FASTEST => speedup_over_fastest(detail, attempt).map(|speedup| speedup.estimate),
        "Candidate" => attempt.published().map(|measurement| -measurement.candidate_median_ns),
        "Gain of its change" => attempt.gain.map(|gain| gain.measured),
        USED_ERROR => used_error(attempt).map(|used| -used),
        "Share of roofline" => attempt.roofline_share(),
        "Reward" => attempt.reward.as_ref().map(|reward| reward.reward),
        _ => None,
    }
}

/// All of them. Every attempt has the same facts in the same order, known or not.
pub(super) fn all(detail: &RunDetail, attempt: &Attempt) -> Vec<Fact> {
    let mut facts = Vec::new();
    let mut add = |name: &'static str, value: Option<String>| {
        facts.push(Fact { name, value: value.unwrap_or_default(), rank: rank(name, detail, attempt) });
    };
    let text = |text: &str| Some(text.to_owned());
    add("Task", text(&detail.summary.digest.task));
    add("Replies from", text(&detail.summary.digest.model));
    add("Outcome", Some(outcome_of(detail, attempt)));
    add("Stage", Some(words(attempt.stage.as_str())));
    add("Derived from", attempt.parent.map(|parent| format!("attempt {parent}")));
    add("Plan and subtask", Some(format!("{}, {}", attempt.plan_version, attempt.subtask)));
    add("Change asked for", attempt.modification.as_ref().map(|change| change.text.clone()));
    add("Source", attempt.source.as_ref().map(|hash| hash.short().to_owned()));
    add("Compiled", text(answer(attempt.verdict.compiled)));
    add("Numerically correct", text(answer(attempt.verdict.numerically_correct)));
    add("Contract compliant", text(answer(attempt.verdict.contract_compliant)));
    add("Faster", text(answer(attempt.verdict.fast)));
    add("Time in own kernels", attempt.verdict.custom_kernel_time_share.map(share));
    let findings = |severity| attempt.findings.iter().filter(|finding| finding.severity == severity).count();
    add("Violations", Some(findings(Severity::Violation).to_string()));
    add("Warnings", Some(findings(Severity::Warning).to_string()));
    timing(detail, attempt, &mut add);
    build(attempt, &mut add);
    profile(attempt, &mut add);
    judgement(attempt, &mut add);
    facts
}

fn share(value: f64) -> String {
    show(value, Unit::Share)
}

fn timing(detail: &RunDetail, attempt: &Attempt, add: &mut impl FnMut(&'static str, Option<String>)) {
    let published = attempt.published();
    let time = |ns: f64| show(ns, Unit::Nanoseconds);
    add(OVER_REFERENCE, attempt.speedup().map(speedup));
    add(OVER_FASTEST, speedup_over_fastest(detail, attempt).map(speedup));
    add("Fastest baseline", fastest_baseline(detail).map(|fastest| fastest.label_with_limits()));
    add("Confirmed", published.map(|_| if attempt.confirmation.is_some() { "yes" } else { "no" }.to_owned()));
    add("Candidate", published.map(|m| time(m.candidate_median_ns)));
    add("Reference", published.map(|m| time(m.baseline_median_ns)));
    add("Precision policy", published.map(|m| m.precision.as_str().to_owned()));
    add("Variation of the candidate", published.map(|m| share(m.candidate_cv)));
    add("Arithmetic", published.and_then(|m| m.achieved_flops_per_s).map(|rate| show(rate, Unit::FlopsPerS)));
    add("Memory", published.and_then(|m| m.achieved_bytes_per_s).map(|rate| show(rate, Unit::BytesPerS)));
    add("Machine", published.map(|m| m.machine.processor.clone()));
    add("GPU", published.and_then(|m| m.machine.gpus.first()).map(|gpu| gpu.name.clone()));
    add("Gain of its change", attempt.gain.map(|gain| show(gain.measured, Unit::Times)));
    add(USED_ERROR, used_error(attempt).map(share));
}

/// The share of the allowed error that the checked call uses that comes closest to its limit.
fn used_error(attempt: &Attempt) -> Option<f64> {
    attempt.check.as_ref()?.closest_to_limit().map(|(_, used)| used)
}

fn build(attempt: &Attempt, add: &mut impl FnMut(&'static str, Option<String>)) {
    let build = attempt.build.as_ref();
    add("Compiler", build.map(|build| build.toolchain.version.clone()));
    add("Flags", build.map(|build| build.toolchain.flags.join(" ")));
    add("Instructions", build.map(|build| count(build.report.instructions)));
    add("Wide vector instructions", build.map(|build| count(build.report.wide_vector_instructions)));
    add("Size of the library", build.map(|build| bytes(build.report.library_bytes)));
    let kernels = build.and_then(|build| build.cuda.as_ref()).map(|cuda| &cuda.kernels);
    let most = |of: fn(&nightshift_protocol::cuda_build::KernelBuild) -> u64| {
        kernels.and_then(|kernels| kernels.iter().map(of).max()).map(|most| most.to_string())
    };
    add("Kernels built", kernels.map(|kernels| kernels.len().to_string()));
    add("Most registers", most(|kernel| u64::from(kernel.registers)));
    add("Most spills, in bytes", most(|kernel| kernel.spill_store_bytes.saturating_add(kernel.spill_load_bytes)));
    add("Most static shared memory, in bytes", most(|kernel| kernel.shared_bytes));
}

fn profile(attempt: &Attempt, add: &mut impl FnMut(&'static str, Option<String>)) {
    let profile = attempt.profile.as_ref();
    let timeline = profile.and_then(|profile| profile.timeline.as_ref());
    let kernel = profile.and_then(|profile| profile.kernels.first());
    add("Tier of the profile", profile.map(|profile| profile.tier.clone()));
    add("Bound by", bound_of(attempt).map(|bound| bound.name.to_owned()));
    add("Share of roofline", attempt.roofline_share().map(share));
    add("Device idle", timeline.and_then(|timeline| idle_share(attempt, timeline)).map(share));
    add("Device busy in a call", timeline.map(|t| nanoseconds(t.busy_ns / u64::from(t.calls.max(1)))));
    add(
        "Kinds of kernels that ran",
        timeline.map(|timeline| {
            let listed = u64::try_from(timeline.kernels.len()).unwrap_or(u64::MAX);
            listed.saturating_add(timeline.kernels_left_out).to_string()
        }),
    );
    add("Heaviest kernel", kernel.map(|kernel| kernel.name.clone()));
    add("Its device memory", kernel.and_then(|kernel| kernel.dram_share).map(share));
    add("Its L2 cache", kernel.and_then(|kernel| kernel.l2_share).map(share));
    add("Its multiprocessors", kernel.and_then(|kernel| kernel.compute_share).map(share));
    add("Its tensor pipe", kernel.and_then(|kernel| kernel.tensor_share).map(share));
    add("Its occupancy", kernel.and_then(|kernel| kernel.occupancy).map(share));
    let stall = kernel.and_then(|kernel| kernel.stalls.first());
    add("Its warps wait for", stall.map(|stall| format!("{}, {}", words(&stall.reason), share(stall.share))));
}

fn judgement(attempt: &Attempt, add: &mut impl FnMut(&'static str, Option<String>)) {
    let diagnosis = attempt.diagnosis.as_ref();
    add("Critical issue", diagnosis.map(|diagnosis| diagnosis.critical_issue.clone()));
    add("Advised", diagnosis.map(|diagnosis| diagnosis.modification.clone()));
    let rubric = attempt.rubric.as_ref();
    let total = |scores: &RubricScores| format!("{} of 20", scores.total());
    add("Rubric, rules", rubric.map(|rubric| total(&rubric.rules)));
    add(
        "Rubric, judge",
        rubric.map(|rubric| match &rubric.judge {
            JudgeOpinion::Rated { scores, .. } => total(scores),
            JudgeOpinion::JudgeUnavailable { reason } => format!("not available: {reason}"),
        }),
    );
    add("Reward", attempt.reward.as_ref().map(|reward| shown_reward(reward.reward)));
    add("Then", attempt.route.as_ref().map(|route| words(route.route.as_str())));
    add("Model calls", Some(attempt.calls.len().to_string()));
    let tokens = attempt.calls.iter().filter_map(|call| call.output_tokens).fold(0_u64, u64::saturating_add);
    let scripted = attempt.calls.iter().all(|call| call.scripted);
    add("Tokens of the replies", Some(crate::format::tokens(Some(tokens), scripted)));
    let price = attempt.calls.iter().filter_map(|call| call.price_microusd).fold(0_u64, u64::saturating_add);
    add("Price, as far as it is known", Some(crate::format::price(price, scripted)));
}
