//! What a GPU adds to an attempt, in lines.

use nightshift_protocol::attempt::Attempt;
use nightshift_protocol::gpu_text;

/// Build, sanitizer and profile of an attempt for a GPU; nothing for one on a processor.
pub(crate) fn lines(attempt: &Attempt) -> Vec<String> {
    let mut lines = Vec::new();
    let mut section = |title: String, entries: Vec<String>| {
        if !entries.is_empty() {
            lines.push(title);
            lines.extend(entries.into_iter().map(|entry| format!("  {entry}")));
        }
    };
    if let Some(cuda) = attempt.build.as_ref().and_then(|build| build.cuda.as_ref()) {
        section(format!("kernels, built for {}:", cuda.arch), gpu_text::built(cuda));
    }
    if let Some(report) = &attempt.sanitize {
        section("memory and races:".to_owned(), gpu_text::sanitizer(report));
    }
    if let Some(profile) = &attempt.profile {
        section("bound by:".to_owned(), profile.bound.iter().map(gpu_text::bound).collect());
        section("on the device:".to_owned(), profile.timeline.as_ref().map(gpu_text::timeline).unwrap_or_default());
        section("hardware counters:".to_owned(), gpu_text::counters(&profile.kernels));
        if !profile.tiers.is_empty() {
            section("not seen:".to_owned(), gpu_text::missing(profile, true));
        }
        section("trace for Perfetto:".to_owned(), profile.trace.iter().map(ToString::to_string).collect());
    }
    lines
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn attempt(more: &[(&str, Value)]) -> Attempt {
        let mut attempt = json!({
            "number": 1, "plan_version": 1, "subtask": 1, "stage": "draft", "parent": null, "outcome": "correct_faster",
            "source": null, "verdict": {"compiled": "pass", "numerically_correct": "pass", "contract_compliant": "pass",
            "fast": "pass", "custom_kernel_time_share": null}, "findings": [], "build": null, "check": null,
            "measurement": null, "confirmation": null, "profile": null, "diagnosis": null, "rubric": null,
            "reward": null, "calls": [], "route": null,
        });
        for (field, value) in more {
            attempt[*field] = value.clone();
        }
        serde_json::from_value(attempt).unwrap()
    }

    #[test]
    fn an_attempt_on_a_processor_has_no_such_lines() {
        assert_eq!(lines(&attempt(&[])), Vec::<String>::new());
    }

    #[test]
    fn checks_of_memory_and_what_could_not_be_seen_are_listed() {
        let sanitize =
            json!({"tools": [{"tool": "memcheck", "outcome": "clean", "errors": 0, "wall_ms": 3}], "findings": []});
        let profile = json!({
            "tier": "nsys", "missing": [], "arithmetic_intensity": null, "peak_flops_per_s": 0.0, "peak_bytes_per_s": 0.0,
            "roofline_share": null, "roofline_bound": "unknown", "compiler": {"vectorized_loops": [], "missed_loops": [],
            "instructions": 0, "wide_vector_instructions": 0, "fma_instructions": 0, "scalar_math_calls": [],
            "library_bytes": 1},
            "tiers": [{"purpose": "kernels", "tool": "ncu", "used": false, "reason": "no permission", "remedy": "grant it"}],
        });
        assert_eq!(
            lines(&attempt(&[("sanitize", sanitize), ("profile", profile)])),
            ["memory and races:", "  memcheck: nothing found", "not seen:", "  ncu: not used: no permission: grant it"]
        );
    }
}
