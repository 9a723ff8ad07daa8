//! What is known of an attempt, as metrics with names: what a diagnosis may rest on, and nothing else.

use nightshift_protocol::attempt::{Attempt, CheckReport};
use nightshift_protocol::gpu_text::significant;
use nightshift_protocol::measurement::CompilerReport;
use nightshift_protocol::profile::{KernelProfile, Timeline};

/// Most kernels whose metrics are named.
const MAX_KERNELS: usize = 4;
/// Most variants of a search that are named.
const MAX_VARIANTS: usize = 8;
/// Most reasons for which the warps of a kernel wait.
const MAX_STALLS: usize = 4;
/// How far a claimed number may be off: rounding, and no more.
const TOLERANCE: f64 = 0.02;
/// Longest foreign text, in characters.
const MAX_CLAIM_CHARS: usize = 120;

#[derive(Debug, Clone, PartialEq)]
enum Value {
    Number(f64, &'static str),
    Text(String),
}

/// The metrics of an attempt, in the order in which they are listed.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Evidence {
    metrics: Vec<(String, Value)>,
}

impl Evidence {
    pub(super) fn of(attempt: &Attempt) -> Self {
        let mut evidence = Self::default();
        evidence.measurement(attempt);
        evidence.precision(attempt);
        evidence.tuning(attempt);
        evidence.profile(attempt);
        evidence.compiler(attempt);
        evidence.kernels_as_built(attempt);
        evidence
    }

    /// `name = value`, one for each metric.
    pub(super) fn lines(&self) -> Vec<String> {
        self.metrics.iter().map(|(name, value)| line(name, value)).collect()
    }

    /// The metric that is claimed, with its own value; why not, in words for the repair turn.
    pub(super) fn resolve(&self, claim: &str) -> Result<String, String> {
        let said: String = claim.chars().take(MAX_CLAIM_CHARS).collect();
        let (name, value) = match claim.split_once('=') {
            Some((name, value)) => (name.trim(), Some(value.trim())),
            None => (claim.trim(), None),
        };
        let name = name.trim_matches('`');
        let Some((name, known)) = self.metrics.iter().find(|(known, _)| known == name) else {
            return Err(format!("the metric `{said}` is not in the evidence: only the metrics that are listed count"));
        };
        match value.filter(|value| !value.is_empty()) {
            Some(value) if !agrees(known, value) => {
                Err(format!("the metric `{said}` is not what was measured: {}", line(name, known)))
            }
            _ => Ok(line(name, known)),
        }
    }

    fn number(&mut self, name: impl Into<String>, value: Option<f64>, unit: &'static str) {
        if let Some(value) = value.filter(|value| value.is_finite()) {
            self.metrics.push((name.into(), Value::Number(value, unit)));
        }
    }

    fn share(&mut self, name: impl Into<String>, share: Option<f64>) {
        self.number(name, share.map(|share| share * 100.0), "%");
    }

    fn count(&mut self, name: impl Into<String>, count: u64) {
        self.number(name, Some(to_f64(count)), "");
    }

    /// A foreign text, on one line and bounded.
    fn text(&mut self, name: &str, text: &str) {
        let flat = text.chars().map(|c| if c.is_control() { ' ' } else { c });
        self.metrics.push((name.to_owned(), Value::Text(flat.take(MAX_CLAIM_CHARS).collect())));
    }

    fn measurement(&mut self, attempt: &Attempt) {
        let Some(measurement) = attempt.published() else { return };
        self.number("speedup", Some(measurement.speedup.estimate), "");
        self.number("candidate_ms", Some(measurement.candidate_median_ns / 1e6), "ms");
        self.number("baseline_ms", Some(measurement.baseline_median_ns / 1e6), "ms");
        self.number("achieved_gflops", measurement.achieved_flops_per_s.map(|flops| flops / 1e9), "GFLOP/s");
        self.number("achieved_gbytes", measurement.achieved_bytes_per_s.map(|bytes| bytes / 1e9), "GB/s");
        self.share("own_kernel_share", attempt.verdict.custom_kernel_time_share);
    }

    /// The error of the checked call that comes closest to its limit, in multiples of the tolerance.
    fn precision(&mut self, attempt: &Attempt) {
        let Some((case, used)) = attempt.check.as_ref().and_then(CheckReport::closest_to_limit) else { return };
        self.share("error.used_share", Some(used));
        let unit = if case.is_widened() { "times the widened tolerance" } else { "times the tolerance" };
        self.number("error.largest", case.worst.as_ref().and_then(|worst| worst.normalized_error), unit);
        self.number("error.allowed", case.allowed_error, unit);
        self.number("error.reference", Some(case.reference_normalized_error), "times the task's tolerance");
    }

    /// The variants of a search, the fastest first.
    fn tuning(&mut self, attempt: &Attempt) {
        let Some(tuning) = &attempt.tuning else { return };
        let timed = tuning.variants.iter().filter_map(|variant| Some((variant, variant.speedup?.estimate)));
        let mut timed: Vec<_> = timed.collect();
        timed.sort_by(|(_, one), (_, other)| other.total_cmp(one));
        for (number, (variant, speedup)) in (1..=MAX_VARIANTS).zip(timed) {
            // An equals sign stands between the name of a metric and its value.
            self.text(&format!("tuned{number}.values"), &tuning.values_text(&variant.values).replace(" = ", " "));
            self.number(format!("tuned{number}.speedup"), Some(speedup), "");
        }
    }

    fn profile(&mut self, attempt: &Attempt) {
        let Some(profile) = &attempt.profile else { return };
        self.number("arithmetic_intensity", profile.arithmetic_intensity, "flop/byte");
        self.number("peak_gflops", Some(profile.peak_flops_per_s / 1e9).filter(|peak| *peak > 0.0), "GFLOP/s");
        if let Some(arithmetic) = profile.peak_arithmetic.filter(|_| profile.peak_flops_per_s > 0.0) {
            self.text("peak_gflops_of", arithmetic.as_str());
        }
        self.number("peak_gbytes", Some(profile.peak_bytes_per_s / 1e9).filter(|peak| *peak > 0.0), "GB/s");
        self.share("roofline_share", profile.roofline_share);
        self.text("roofline_bound", &profile.roofline_bound);
        if let Some(bound) = profile.bound.as_ref().and_then(|by| by.bound) {
            self.text("bound", bound.as_str());
        }
        if let Some(timeline) = &profile.timeline {
            self.timeline(timeline);
        }
        for (number, kernel) in (1..).zip(profile.kernels.iter().take(MAX_KERNELS)) {
            self.kernel(number, kernel);
        }
    }

    fn timeline(&mut self, timeline: &Timeline) {
        let calls = to_f64(u64::from(timeline.calls.max(1)));
        let per_call = |total: u64| Some(to_f64(total) / calls);
        let micros = |ns: u64| Some(to_f64(ns) / 1e3);
        self.number("timeline.call_us", per_call(timeline.span_ns).map(|ns| ns / 1e3), "µs");
        self.share("timeline.host_share", Some(timeline.host_share));
        let launches = timeline.kernels.iter().map(|kernel| kernel.times.count).sum();
        self.number("timeline.kernels_per_call", per_call(launches), "");
        self.number("timeline.gaps_per_call", per_call(timeline.gaps.between.count), "");
        self.number("timeline.longest_gap_us", micros(timeline.gaps.between.max_ns), "µs");
        self.number("timeline.launch_us", micros(timeline.launches.host.mean_ns()), "µs");
        let copied: u64 = timeline.copies.iter().map(|copy| copy.bytes).sum();
        self.number("timeline.copied_bytes_per_call", per_call(copied), "bytes");
        for (number, kernel) in (1..=MAX_KERNELS).zip(&timeline.kernels) {
            self.text(&format!("timeline.kernel{number}.name"), &kernel.name);
            self.share(format!("timeline.kernel{number}.time_share"), Some(kernel.share));
            self.number(format!("timeline.kernel{number}.mean_us"), micros(kernel.times.mean_ns()), "µs");
        }
    }

    fn kernel(&mut self, number: usize, kernel: &KernelProfile) {
        let name = |metric: &str| format!("kernel{number}.{metric}");
        self.text(&name("name"), &kernel.name);
        for (metric, share) in [
            ("time_share", kernel.time_share),
            ("compute_share", kernel.compute_share),
            ("dram_share", kernel.dram_share),
            ("l2_share", kernel.l2_share),
            ("l1_share", kernel.l1_share),
            ("tensor_share", kernel.tensor_share),
            ("issue_share", kernel.issue_share),
            ("occupancy", kernel.occupancy),
            ("occupancy_limit", kernel.occupancy_limit),
            ("l2_hit_rate", kernel.l2_hit_rate),
            ("l1_hit_rate", kernel.l1_hit_rate),
        ] {
            self.share(name(metric), share);
        }
        for (metric, value) in [
            ("waves", kernel.waves),
            ("registers_per_thread", kernel.registers_per_thread),
            ("sectors_per_load", kernel.sectors_per_load),
            ("bank_conflicts", kernel.bank_conflicts),
            ("dram_bytes", kernel.dram_bytes),
        ] {
            self.number(name(metric), value, "");
        }
        for stall in kernel.stalls.iter().take(MAX_STALLS) {
            self.share(name(&format!("stall.{}", stall.reason)), Some(stall.share));
        }
    }

    fn compiler(&mut self, attempt: &Attempt) {
        if attempt.build.as_ref().is_some_and(|build| build.cuda.is_some()) {
            return;
        }
        let report = attempt.profile.as_ref().map(|profile| &profile.compiler);
        let Some(report) = report.or(attempt.build.as_ref().map(|build| &build.report)) else { return };
        // A program in Python has no report of a compiler: zeros would look as if they had been counted.
        if *report == CompilerReport::default() {
            return;
        }
        self.count("compiler.instructions", report.instructions);
        self.count("compiler.wide_vector_instructions", report.wide_vector_instructions);
        self.count("compiler.fma_instructions", report.fma_instructions);
        self.number("compiler.vectorized_loops", count_of(report.vectorized_loops.len()), "");
        self.number("compiler.missed_loops", count_of(report.missed_loops.len()), "");
        if let Some(found) = &report.inner_loop {
            self.count("inner_loop.instructions", found.instructions);
            self.count("inner_loop.arithmetic", found.arithmetic);
            self.count("inner_loop.loads", found.loads);
            self.count("inner_loop.stores", found.stores);
            self.count("inner_loop.shuffles", found.shuffles);
            self.count("inner_loop.stack_accesses", found.stack_accesses);
        }
        let calls = report.scalar_math_calls.join(", ");
        self.text("compiler.scalar_math_calls", if calls.is_empty() { "none" } else { &calls });
    }

    fn kernels_as_built(&mut self, attempt: &Attempt) {
        let Some(cuda) = attempt.build.as_ref().and_then(|build| build.cuda.as_ref()) else { return };
        for (number, kernel) in (1..=MAX_KERNELS).zip(&cuda.kernels) {
            let name = |metric: &str| format!("built{number}.{metric}");
            self.text(&name("name"), &kernel.name);
            self.count(name("registers"), u64::from(kernel.registers));
            self.count(name("spill_bytes"), kernel.spill_store_bytes.saturating_add(kernel.spill_load_bytes));
            if let Some(sass) = &kernel.sass {
                self.count(name("instructions"), sass.instructions);
                self.count(name("tensor_core"), sass.tensor_core);
                self.count(name("global_loads"), sass.global_loads);
                self.count(name("loads_128"), sass.loads_128);
                self.count(name("barriers"), sass.barriers);
            }
        }
    }
}

fn count_of(length: usize) -> Option<f64> {
    u32::try_from(length).ok().map(f64::from)
}

#[expect(clippy::cast_precision_loss, reason = "a metric is shown with four digits")]
fn to_f64(count: u64) -> f64 {
    count as f64
}

fn line(name: &str, value: &Value) -> String {
    match value {
        Value::Number(number, "") => format!("{name} = {}", shown(*number)),
        Value::Number(number, unit) => format!("{name} = {} {unit}", shown(*number)),
        Value::Text(text) => format!("{name} = {text}"),
    }
}

/// Whole numbers as they are, others with four digits.
fn shown(number: f64) -> String {
    if number.fract() == 0.0 && number.abs() < 1e9 { format!("{number:.0}") } else { significant(number) }
}

/// Whether a claimed value is the known one: as a number but for rounding, as a text but for case.
fn agrees(known: &Value, claimed: &str) -> bool {
    match known {
        Value::Text(text) => text.eq_ignore_ascii_case(claimed.trim_matches('`')),
        Value::Number(number, unit) => first_number(claimed).is_some_and(|claimed| {
            // A share may be told as a fraction, too.
            let as_told = [Some(claimed), (*unit == "%").then_some(claimed * 100.0)];
            as_told.into_iter().flatten().any(|claimed| {
                let off = (claimed - number).abs();
                off <= TOLERANCE * number.abs() || off <= if number.abs() >= 10.0 { 0.5 } else { 0.05 }
            })
        }),
    }
}

fn first_number(text: &str) -> Option<f64> {
    let begin = text.find(|c: char| c.is_ascii_digit())?;
    let is_negative = text.get(..begin).is_some_and(|before| before.ends_with('-'));
    let number: String = text
        .get(begin..)?
        .chars()
        .filter(|c| *c != '_' && *c != ',')
        .take_while(|c| c.is_ascii_digit() || matches!(c, '.' | 'e' | 'E' | '+' | '-'))
        .collect();
    let number = number.trim_end_matches(|c: char| !c.is_ascii_digit());
    let magnitude: f64 = number.parse().ok()?;
    Some(if is_negative { -magnitude } else { magnitude })
}

#[cfg(test)]
mod tests {
    use nightshift_protocol::attempt::Stage;
    use nightshift_protocol::profile::Profile;

    use super::*;

    fn evidence() -> Evidence {
        let mut evidence = Evidence::default();
        evidence.number("speedup", Some(1.834), "");
        evidence.share("roofline_share", Some(0.75));
        evidence.count("compiler.instructions", 3_210);
        evidence.text("roofline_bound", "memory");
        evidence.number("unknown", None, "");
        evidence
    }

    #[test]
    fn a_metric_is_listed_with_its_unit_and_kept_with_its_own_value() {
        let evidence = evidence();
        assert_eq!(
            evidence.lines(),
            ["speedup = 1.834", "roofline_share = 75 %", "compiler.instructions = 3210", "roofline_bound = memory"]
        );
        for claim in ["roofline_share", "`roofline_share` = 75 %", "roofline_share = 0.75", "roofline_share = 74.9"] {
            assert_eq!(evidence.resolve(claim).as_deref(), Ok("roofline_share = 75 %"), "{claim}");
        }
        assert_eq!(evidence.resolve("compiler.instructions = 3,210").as_deref(), Ok("compiler.instructions = 3210"));
        assert_eq!(evidence.resolve("roofline_bound = Memory").as_deref(), Ok("roofline_bound = memory"));
        assert_eq!(evidence.resolve("speedup = 1.83x").as_deref(), Ok("speedup = 1.834"));
    }

    #[test]
    fn what_no_compiler_reported_is_no_zero() {
        let mut attempt = Attempt::new(1, 1, 1, Stage::Draft);
        attempt.profile = Some(Profile { roofline_bound: "memory".to_owned(), ..Profile::default() });
        assert_eq!(Evidence::of(&attempt).lines(), ["roofline_bound = memory"]);
    }

    #[test]
    fn a_metric_that_was_not_measured_and_a_value_that_was_not_observed_are_refused() {
        let evidence = evidence();
        for (claim, message) in [
            ("dram_share = 97 %", "is not in the evidence"),
            ("unknown", "is not in the evidence"),
            ("speedup = 2.5", "is not what was measured: speedup = 1.834"),
            ("roofline_bound = compute", "is not what was measured: roofline_bound = memory"),
            ("speedup = fast", "is not what was measured"),
        ] {
            assert!(evidence.resolve(claim).is_err_and(|problem| problem.contains(message)), "{claim}");
        }
    }
}
