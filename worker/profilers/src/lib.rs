//! Profilers and sanitizers in front of a program: nsys for the timeline, ncu for the kernels, compute-sanitizer for
//! memory and races.
//!
//! Each tool runs the replay of a program (`nightshift __replay PLAN WARMUPS CALLS`) in a jail with a cleaned
//! environment, within a limit of its own. A tool that is missing, refused, too slow or broken lowers the tier of the
//! result, with the reason and what an operator can do; it never fails the step, and it never makes a program look
//! better than it was seen to be.

mod activity;
mod bound;
mod chrome;
mod cupti;
mod cupti_library;
#[expect(unsafe_code, reason = "calls the library of CUPTI, and is called by it")]
mod cupti_tracer;
pub mod host;
mod ncu;
mod nsys;
mod provenance;
mod replay;
mod replay_main;
mod roofline;
mod sanitizer;
mod subject;
mod tier;
mod timeline;
mod tool;
mod tools;
mod traced;

use nightshift_protocol::profile::{Profile, SanitizeReport, TierPurpose, TierReport};
use nightshift_protocol::step::StepFailure;

use self::bound::{Roof, bound_of_program};
use self::roofline::place;
use self::tier::unused;

pub use self::provenance::mark_own;
pub use self::replay::{REPLAY_ARGUMENT, Replay};
pub use self::replay_main::replay_main;
pub use self::subject::{Checks, ProfiledProgram};
pub use self::tool::{MissingTool, Tool};
pub use self::tools::{Profilers, TimeLimits, installed};

/// Carries the checks out. The replay should be that of a small shape: the tools slow a program down a hundred times, and
/// looking for races in shared memory far more.
pub fn sanitize(
    profilers: &Profilers,
    replay: &Replay<'_>,
    checks: &Checks<'_>,
) -> Result<SanitizeReport, StepFailure> {
    sanitizer::sanitize(profilers, replay, checks)
}

/// Returns the report of skipped checks of a Python file: the tools only replay calls of libraries.
#[must_use]
pub fn nothing_sanitized(checks: &Checks<'_>) -> SanitizeReport {
    sanitizer::nothing(checks.wanted())
}

/// Profiles a program at its default shape, by the best tools that can be had.
pub fn profile(
    profilers: &Profilers,
    replay: &Replay<'_>,
    subject: &ProfiledProgram<'_>,
) -> Result<Profile, StepFailure> {
    let (nsys_tier, traced) = nsys::trace(profilers, replay)?;
    let (cupti_tier, mut traced) = if traced.is_some() {
        (None, traced)
    } else {
        let (tier, traced) = cupti::trace(profilers, replay)?;
        (Some(tier), traced)
    };
    let capability = subject.gpu.map(|gpu| gpu.compute_capability);
    let (kernel_tier, kernels) = ncu::count(profilers, replay, traced.as_ref(), capability)?;
    let mut profile = Profile { compiler: subject.compiler.clone(), kernels, ..Profile::default() };
    profile.tiers.push(nsys_tier);
    profile.tiers.extend(cupti_tier);
    profile.tiers.push(kernel_tier);
    if let Some(traced) = &mut traced {
        profile.trace = Some((replay.put)(&std::mem::take(&mut traced.trace))?);
    }
    profile.timeline = traced.map(|traced| traced.timeline);
    profile.tiers.push(compiler_tier(subject));
    let roofline_tier = place(&mut profile, subject);
    profile.tiers.push(roofline_tier);
    let roof =
        Roof { bound: &profile.roofline_bound, share: profile.roofline_share, arithmetic: profile.peak_arithmetic };
    profile.bound = Some(bound_of_program(profile.timeline.as_ref(), &profile.kernels, roof, subject.median_ns));
    let used: Vec<&str> = profile.tiers.iter().filter(|tier| tier.used).map(|tier| tier.tool.as_str()).collect();
    profile.tier = if used.is_empty() { "none".to_owned() } else { used.join("+") };
    profile.missing = profile.tiers.iter().filter_map(missing).collect();
    Ok(profile)
}

fn compiler_tier(subject: &ProfiledProgram<'_>) -> TierReport {
    let tier = unused(TierPurpose::Code, "compiler_report");
    match subject.cuda {
        Some(cuda) if !cuda.kernels.is_empty() => TierReport { used: true, reason: cuda.uncounted.clone(), ..tier },
        Some(_) => TierReport { reason: Some("the library holds no kernels of its own".to_owned()), ..tier },
        None => TierReport { reason: Some("the build left no report of its kernels".to_owned()), ..tier },
    }
}

/// Describes what a missing or incomplete tier would have added.
fn missing(tier: &TierReport) -> Option<String> {
    let reason = tier.reason.as_deref()?;
    let what = match tier.purpose {
        TierPurpose::Timeline => "what ran when",
        TierPurpose::Kernels => "what limits each kernel",
        TierPurpose::Code => "what the compiler made of the source",
        TierPurpose::Roofline => "the place under the roofline",
    };
    let how = if tier.used { "in part" } else { "not available" };
    let remedy = tier.remedy.as_deref().map(|remedy| format!("; {remedy}")).unwrap_or_default();
    Some(format!("{what} by {} ({how}): {reason}{remedy}", tier.tool))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests;
