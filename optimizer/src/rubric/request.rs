//! Refinement: was done what was asked for, as far as a build can show it?

use nightshift_protocol::attempt::Attempt;

use super::{Scored, engineering, gpu, is_repair};

/// Words of a request, and what the build has to show when they occur.
const VECTOR_WORDS: [&str; 6] = ["vector", "simd", "avx", "neon", "lanes", "wide"];
const MATH_WORDS: [&str; 6] = ["expf", "tanhf", "polynomial", "scalar call", "math call", "exponential"];
const FMA_WORDS: [&str; 3] = ["fma", "fused multiply", "multiply-add"];

/// A repair that succeeded is what was asked for. Of a modification, the claims that the build can show are counted:
/// all of them shown 5 when there are several and 4 when there is one, some 3, none 2. Without such a claim, or without
/// a request, the evidence cannot tell.
pub(super) fn score(attempt: &Attempt, modification: Option<&str>) -> Scored {
    if is_repair(attempt.stage) {
        return if attempt.outcome.is_correct() {
            (5, "skill_compliance 5: the repair was asked for and succeeded".to_owned())
        } else {
            (2, "skill_compliance 2: the repair that was asked for did not succeed".to_owned())
        };
    }
    let Some(modification) = modification else {
        return (3, "skill_compliance 3: no single modification was asked for".to_owned());
    };
    let claims = claims(attempt, &modification.to_ascii_lowercase());
    let shown = claims.iter().filter(|(_, shown)| *shown).count();
    let list: Vec<String> =
        claims.iter().map(|(what, shown)| format!("{what} {}", if *shown { "shown" } else { "not shown" })).collect();
    let score = match (shown, claims.len()) {
        (_, 0) => return (3, "skill_compliance 3: the build cannot show what was asked for".to_owned()),
        (shown, all) if shown == all && all > 1 => 5,
        (shown, all) if shown == all => 4,
        (0, _) => 2,
        _ => 3,
    };
    (score, format!("skill_compliance {score}: {}", list.join(", ")))
}

fn claims(attempt: &Attempt, request: &str) -> Vec<(&'static str, bool)> {
    if let Some(kernels) = gpu::Kernels::of(attempt) {
        return gpu::claims(&kernels, request);
    }
    let asks = |words: &[&str]| words.iter().any(|word| request.contains(word));
    let Some(report) = engineering::report(attempt) else { return Vec::new() };
    let mut claims = Vec::new();
    if let Some(vectorized) = engineering::vectorized(attempt)
        && asks(&VECTOR_WORDS)
    {
        claims.push(("wide vectors", vectorized));
    }
    if report.instructions > 0 && asks(&MATH_WORDS) {
        claims.push(("no scalar calls of mathematics", report.scalar_math_calls.is_empty()));
    }
    if report.instructions > 0 && asks(&FMA_WORDS) {
        claims.push(("fused multiply-adds", report.fma_instructions > 0));
    }
    claims
}
