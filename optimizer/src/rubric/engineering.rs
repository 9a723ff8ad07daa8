//! Engineering: from scratch, how well the machine is used; for a refinement, whether the limiter gave way.

use nightshift_protocol::attempt::Attempt;
use nightshift_protocol::measurement::{CompilerReport, Interval};
use nightshift_protocol::rubric::Skill;
use nightshift_protocol::verdict::Answer;

use super::{Scored, gpu, is_repair};

/// Share of wide vector instructions from which a program counts as vectorized.
const VECTORIZED_SHARE: f64 = 0.1;
/// Share of the roofline from which a program counts as near its limit.
const NEAR_ROOFLINE: f64 = 0.4;
/// Lower bound of the speedup that says as much, where the roofline is not known.
const CLEAR_SPEEDUP: f64 = 2.0;

pub(super) fn score(attempt: &Attempt, skill: Skill, parent: Option<Interval>) -> Scored {
    if !attempt.outcome.is_correct() {
        return (1, format!("cuda_engineering 1: the program is not right ({})", attempt.outcome.as_str()));
    }
    match skill {
        Skill::FromScratch => match gpu::Kernels::of(attempt) {
            Some(kernels) => gpu::quality(attempt, &kernels, near_limit(attempt)),
            None => quality(attempt),
        },
        Skill::Refinement if is_repair(attempt.stage) => {
            (5, "cuda_engineering 5: the error that was to be repaired is gone".to_owned())
        }
        Skill::Refinement => effect(attempt, parent),
    }
}

/// Starts at 3, plausible but naive. Vectors add one, closeness to the limit adds one, calls of scalar mathematics
/// left in a program take one, being slower than the naive reference takes one.
fn quality(attempt: &Attempt) -> Scored {
    let mut score = 3_u8;
    let mut evidence = Vec::new();
    match vectorized(attempt) {
        Some(true) => {
            score += 1;
            evidence.push("wide vectors are used".to_owned());
        }
        Some(false) => evidence.push("no wide vectors are used".to_owned()),
        None => evidence.push("whether vectors are used is not known".to_owned()),
    }
    if let Some(limit) = near_limit(attempt) {
        score += 1;
        evidence.push(limit);
    }
    let calls = report(attempt).map_or(&[][..], |report| report.scalar_math_calls.as_slice());
    if !calls.is_empty() {
        score -= 1;
        evidence.push(format!("scalar calls are left: {}", calls.join(", ")));
    }
    if attempt.verdict.fast == Answer::Fail {
        score -= 1;
        evidence.push("it is slower than the reference".to_owned());
    }
    (score, format!("cuda_engineering {score}: {}", evidence.join("; ")))
}

/// Whether the limit gave way: by the speedup of the program before, where it is known. Both were measured against the
/// same baseline, so intervals that do not touch tell a gain or a loss from noise.
fn effect(attempt: &Attempt, parent: Option<Interval>) -> Scored {
    let Some(speedup) = attempt.speedup() else {
        return (3, "cuda_engineering 3: the program was not timed".to_owned());
    };
    let Some(parent) = parent else { return effect_on_the_best(attempt, speedup) };
    let change = format!("{:.3}x after {:.3}x", speedup.estimate, parent.estimate);
    if speedup.low > parent.high {
        match near_limit(attempt) {
            Some(limit) => (5, format!("cuda_engineering 5: {change}; {limit}")),
            None => (4, format!("cuda_engineering 4: {change}")),
        }
    } else if speedup.high < parent.low {
        (1, format!("cuda_engineering 1: {change}: it became slower"))
    } else if speedup.estimate > parent.estimate {
        (3, format!("cuda_engineering 3: {change}: a gain within the noise"))
    } else {
        (2, format!("cuda_engineering 2: {change}: no gain"))
    }
}

/// Without the program before: a confirmed attempt beat the best before it, that is what confirmation is for.
fn effect_on_the_best(attempt: &Attempt, speedup: Interval) -> Scored {
    let limit = near_limit(attempt);
    match (attempt.confirmation.is_some(), attempt.verdict.fast, limit) {
        (true, Answer::Pass, Some(limit)) => {
            (5, format!("cuda_engineering 5: a new best of {:.3}x; {limit}", speedup.estimate))
        }
        (true, Answer::Pass, None) => (4, format!("cuda_engineering 4: a new best of {:.3}x", speedup.estimate)),
        (true, _, _) => (
            3,
            format!("cuda_engineering 3: a new best of {:.3}x, not surely faster than the reference", speedup.estimate),
        ),
        (false, Answer::Fail, _) => (1, "cuda_engineering 1: it is slower than the reference".to_owned()),
        (false, _, _) => (2, format!("cuda_engineering 2: {:.3}x did not beat the best before it", speedup.estimate)),
    }
}

fn near_limit(attempt: &Attempt) -> Option<String> {
    let share = attempt.profile.as_ref().and_then(|profile| profile.roofline_share);
    if let Some(share) = share {
        return (share >= NEAR_ROOFLINE).then(|| format!("it reaches {:.0} % of the roofline", share * 100.0));
    }
    let low = attempt.speedup()?.low;
    (low >= CLEAR_SPEEDUP).then(|| format!("its speedup is at least {low:.2}x and the roofline is not known"))
}

/// Returns whether the program uses wide vectors; none when it was not disassembled.
pub(super) fn vectorized(attempt: &Attempt) -> Option<bool> {
    let report = report(attempt)?;
    if report.instructions == 0 {
        return (!report.vectorized_loops.is_empty()).then_some(true);
    }
    #[expect(clippy::cast_precision_loss, reason = "counts of instructions are far below 2^52")]
    let share = report.wide_vector_instructions as f64 / report.instructions as f64;
    Some(share >= VECTORIZED_SHARE)
}

/// What is known about the built code.
pub(super) fn report(attempt: &Attempt) -> Option<&CompilerReport> {
    let profiled = attempt.profile.as_ref().map(|profile| &profile.compiler);
    profiled.or_else(|| attempt.build.as_ref().map(|build| &build.report))
}
