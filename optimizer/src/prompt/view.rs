//! What a template sees: plain values, bounded, with units in their names or texts.

use nightshift_protocol::attempt::{Attempt, CheckReport, Diagnosis};
use nightshift_protocol::attempt_memory::Correction;
use nightshift_protocol::baseline::{Baseline, BaselineKind};
use nightshift_protocol::gpu_text::significant;
use nightshift_protocol::machine::CoreFacts;
use nightshift_protocol::measurement::{CompilerReport, InnerLoop, LoopNote, Measurement};
use nightshift_protocol::plan::{Plan, PlanVersion, Subtask, TensorContract};
use nightshift_protocol::profile::Arithmetic;
use nightshift_protocol::profile::Profile;
use nightshift_protocol::step::PreparedTask;
use nightshift_protocol::task::Target;
use nightshift_protocol::tune::TuneReport;
use nightshift_protocol::verdict::{CheckCase, Severity};
use serde::Serialize;

use super::format::clipped;
use super::gpu::{DeviceView, GpuView};

/// Most messages of a compiler in a prompt.
const MAX_COMPILE_ERRORS: usize = 20;
/// Most failed calls in a prompt.
const MAX_FAILED_CASES: usize = 8;
/// Most notes about loops in a prompt, of each kind.
const MAX_LOOP_NOTES: usize = 12;
/// Words of programs that use vectors themselves, by intrinsics or by types of the compiler.
const VECTORS_BY_HAND: [&str; 4] = ["_mm", "vector_size", "arm_neon.h", "arm_sve.h"];
/// Most variants of a search that are told.
const MAX_TUNED_VARIANTS: usize = 32;
/// Most findings in a prompt.
const MAX_FINDINGS: usize = 20;
/// Most bytes of what a program printed.
const MAX_PRINTED_BYTES: usize = 4_000;
/// Most bytes of a single foreign line.
const MAX_LINE_BYTES: usize = 500;

pub(super) const MIB: u64 = 1 << 20;
const KIB: u64 = 1 << 10;

#[derive(Serialize)]
pub(crate) struct MachineView {
    processor: String,
    cores: u32,
    features: String,
    memory_mib: u64,
    last_level_cache_kib: Option<u64>,
    /// Caches, threads and clock of a core, in words; empty where nothing is known.
    core: String,
    compiler: String,
    flags: String,
    baseline_ms: Option<String>,
    baselines: Vec<String>,
    fastest_baseline: Option<&'static str>,
    warnings: Vec<String>,
    device: Option<DeviceView>,
}

impl MachineView {
    pub(crate) fn new(prepared: &PreparedTask, target: Target) -> Self {
        let machine = &prepared.machine;
        let toolchain = &prepared.reference.toolchain;
        Self {
            processor: machine.processor.clone(),
            cores: machine.cores,
            features: machine.features.join(", "),
            memory_mib: machine.memory_bytes / MIB,
            last_level_cache_kib: machine.last_level_cache_bytes.map(|bytes| bytes / KIB),
            core: machine.core.as_ref().map_or_else(String::new, core),
            compiler: toolchain.version.clone(),
            flags: toolchain.flags.join(" "),
            baseline_ms: Some(prepared.baseline_median_ns).filter(|ns| *ns > 0.0).map(milliseconds),
            baselines: prepared.baselines.iter().filter_map(baseline).collect(),
            fastest_baseline: prepared
                .fastest_baseline()
                .map(|fastest| fastest.kind)
                .filter(|kind| *kind != BaselineKind::Reference)
                .map(BaselineKind::label),
            warnings: prepared.warnings.iter().take(MAX_FINDINGS).map(|finding| line(&finding.message)).collect(),
            device: (target == Target::Cuda).then(|| DeviceView::new(prepared)).flatten(),
        }
    }
}

fn core(core: &CoreFacts) -> String {
    let known = [
        core.max_clock_mhz.map(|mhz| format!("up to {mhz} MHz")),
        core.l1_bytes.map(|bytes| format!("{} KiB of first-level cache for data", bytes / KIB)),
        core.l2_bytes.map(|bytes| format!("{} KiB of second-level cache", bytes / KIB)),
        core.threads.map(|threads| format!("{threads} hardware threads")),
    ];
    known.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Another way to run the reference, where it was measured.
fn baseline(baseline: &Baseline) -> Option<String> {
    let measured = baseline.measurement.as_ref()?;
    let (time, speedup) = (milliseconds(measured.candidate_median_ns), significant(measured.speedup.estimate));
    Some(format!("{}: {time} ms, {speedup} times as fast as the reference", baseline.kind.label()))
}

#[derive(Serialize)]
pub(crate) struct PlanView {
    version: u32,
    #[serde(flatten)]
    plan: Plan,
}

impl PlanView {
    pub(crate) fn new(version: &PlanVersion) -> Self {
        Self { version: version.version, plan: version.plan.clone() }
    }
}

#[derive(Serialize)]
pub(crate) struct SubtaskView {
    title: String,
    scope: Vec<String>,
    fusion_boundary: String,
    methods: Vec<String>,
    expected_bottleneck: String,
    risk: String,
    target_speedup: Option<String>,
    contract: Vec<String>,
}

impl SubtaskView {
    pub(crate) fn new(subtask: &Subtask) -> Self {
        let border = |direction: &'static str, tensors: &[TensorContract]| -> Vec<String> {
            tensors
                .iter()
                .map(|t| format!("{direction} `{}`: {} [{}], {}", t.name, t.dtype, t.shape.join(", "), t.layout))
                .collect()
        };
        let mut contract = border("in", &subtask.contract.inputs);
        contract.extend(border("out", &subtask.contract.outputs));
        Self {
            title: subtask.title.clone(),
            scope: subtask.scope.clone(),
            fusion_boundary: subtask.fusion_boundary.clone(),
            methods: subtask.methods.clone(),
            expected_bottleneck: subtask.expected_bottleneck.clone(),
            risk: subtask.risk.clone(),
            target_speedup: subtask.target_speedup.map(significant),
            contract,
        }
    }
}

#[derive(Serialize)]
pub(crate) struct AttemptView {
    number: u32,
    outcome: &'static str,
    source: Option<String>,
    compile_end: String,
    compile_errors: Vec<CompileErrorView>,
    end: String,
    printed: String,
    passed_cases: usize,
    total_cases: usize,
    failed_cases: Vec<String>,
    deterministic: Option<bool>,
    findings: Vec<FindingView>,
    /// How much of the allowed error it uses.
    precision: Option<String>,
    measurement: Option<MeasurementView>,
    /// What the search over its tunables found, one line for each variant.
    tuning: Vec<String>,
    profile: Option<ProfileView>,
    compiler: Option<CompilerView>,
    gpu: Option<GpuView>,
    diagnosis: Option<Diagnosis>,
    correction: Option<Correction>,
}

#[derive(Serialize)]
struct CompileErrorView {
    place: String,
    severity: String,
    message: String,
    source_line: String,
}

#[derive(Serialize)]
struct FindingView {
    severity: &'static str,
    code: String,
    message: String,
    line: Option<u32>,
}

#[derive(Serialize)]
struct MeasurementView {
    speedup: String,
    interval: String,
    candidate_ms: String,
    baseline_ms: String,
    gflops: Option<String>,
    gbytes: Option<String>,
}

#[derive(Serialize)]
struct ProfileView {
    tier: String,
    missing: Vec<String>,
    peak_gflops: String,
    peak_arithmetic: Option<&'static str>,
    peak_gbytes: String,
    roofline_bound: String,
    roofline_share: Option<String>,
    arithmetic_intensity: Option<String>,
}

#[derive(Serialize)]
struct CompilerView {
    instructions: u64,
    wide_vector_instructions: u64,
    fma_instructions: u64,
    scalar_math_calls: Vec<String>,
    vectorized: Vec<LoopNote>,
    missed: Vec<LoopNote>,
    inner_loop: Option<InnerLoopView>,
}

#[derive(Serialize)]
struct InnerLoopView {
    counts: String,
    /// Its first instructions, and how many follow.
    assembly: String,
}

impl AttemptView {
    /// `source` is the text of the attempt's program.
    pub(crate) fn new(attempt: &Attempt, source: Option<String>) -> Self {
        let build = attempt.build.as_ref();
        let check = attempt.check.as_ref();
        let cases = check.map(|check| check.cases.as_slice()).unwrap_or_default();
        let measured = attempt.published();
        let gpu = GpuView::new(attempt);
        let uses_vectors =
            source.as_deref().is_some_and(|source| VECTORS_BY_HAND.iter().any(|word| source.contains(word)));
        let compiler = attempt.profile.as_ref().map(|profile| &profile.compiler).or(build.map(|build| &build.report));
        Self {
            number: attempt.number,
            outcome: attempt.outcome.as_str(),
            compile_end: build.map_or_else(String::new, |build| build.end.describe()),
            compile_errors: compile_errors(attempt, source.as_deref()),
            source,
            end: check.map_or_else(|| "it did not come to its end".to_owned(), |check| check.end.describe()),
            printed: check.map_or_else(String::new, |check| clipped(check.printed.trim_end(), MAX_PRINTED_BYTES)),
            passed_cases: cases.iter().filter(|case| case.passed).count(),
            total_cases: cases.len(),
            failed_cases: cases.iter().filter(|case| !case.passed).take(MAX_FAILED_CASES).map(failed_case).collect(),
            deterministic: check.and_then(|check| check.deterministic),
            findings: attempt
                .findings
                .iter()
                // A fix turn without a program says nothing about the program that is shown.
                .filter(|finding| attempt.source.is_none() || !finding.code.starts_with("reply."))
                .take(MAX_FINDINGS)
                .map(|finding| FindingView {
                    severity: severity(finding.severity),
                    code: line(&finding.code),
                    message: line(&finding.message),
                    line: finding.line,
                })
                .collect(),
            precision: check.and_then(CheckReport::precision).map(|text| line(&text)),
            measurement: measured.map(measurement),
            tuning: tuning(attempt),
            profile: attempt.profile.as_ref().map(profile),
            compiler: compiler
                .filter(|report| gpu.is_none() && **report != CompilerReport::default())
                .map(|report| compiler_view(report, uses_vectors)),
            gpu,
            diagnosis: attempt.diagnosis.clone(),
            correction: attempt.correction.clone(),
        }
    }
}

fn tuning(attempt: &Attempt) -> Vec<String> {
    let lines = attempt.tuning.as_ref().map(TuneReport::lines).unwrap_or_default();
    lines.iter().take(MAX_TUNED_VARIANTS).map(|text| line(text)).collect()
}

fn compile_errors(attempt: &Attempt, source: Option<&str>) -> Vec<CompileErrorView> {
    let Some(build) = attempt.build.as_ref().filter(|build| build.library.is_none()) else { return Vec::new() };
    let lines: Vec<&str> = source.map(|source| source.lines().collect()).unwrap_or_default();
    build
        .messages
        .iter()
        .take(MAX_COMPILE_ERRORS)
        .map(|message| {
            let index = usize::try_from(message.line).unwrap_or(usize::MAX).checked_sub(1);
            CompileErrorView {
                place: match (message.line, message.column) {
                    (0, _) => message.file.clone(),
                    (line, 0) => format!("{}, line {line}", message.file),
                    (line, column) => format!("{}, line {line}, column {column}", message.file),
                },
                severity: message.severity.clone(),
                message: line(&message.message),
                source_line: index
                    .and_then(|index| lines.get(index))
                    .map_or_else(String::new, |text| line(text.trim())),
            }
        })
        .collect()
}

fn failed_case(case: &CheckCase) -> String {
    let widened = if case.is_widened() { ", which is widened for the reference's own error" } else { "" };
    let worst = case.worst.as_ref().map_or_else(String::new, |worst| {
        let got = worst.candidate.map_or_else(|| "a value that is not finite".to_owned(), |value| value.to_string());
        let error = worst
            .normalized_error
            .map_or_else(String::new, |error| format!(" (error {} times the tolerance{widened})", significant(error)));
        format!("; worst: `{}`{:?} is {got}, right is {}{error}", worst.tensor, worst.index, worst.truth)
    });
    format!(
        "shape `{}`, inputs `{}`: {} of {} elements wrong{worst}",
        case.shape, case.inputs, case.wrong_elements, case.elements
    )
}

fn severity(severity: Severity) -> &'static str {
    match severity {
        Severity::Note => "note",
        Severity::Warning => "warning",
        Severity::Violation => "violation",
    }
}

fn measurement(measurement: &Measurement) -> MeasurementView {
    let speedup = measurement.speedup;
    MeasurementView {
        speedup: format!("{:.3}", speedup.estimate),
        interval: format!(
            "{} % interval {:.3} to {:.3}{}",
            significant_percent(measurement.confidence),
            speedup.low,
            speedup.high,
            if measurement.precise { "" } else { ", not as precise as wanted" }
        ),
        candidate_ms: milliseconds(measurement.candidate_median_ns),
        baseline_ms: milliseconds(measurement.baseline_median_ns),
        gflops: measurement.achieved_flops_per_s.map(giga),
        gbytes: measurement.achieved_bytes_per_s.map(giga),
    }
}

fn profile(profile: &Profile) -> ProfileView {
    ProfileView {
        tier: profile.tier.clone(),
        missing: profile.missing.iter().take(MAX_FINDINGS).map(|text| line(text)).collect(),
        peak_gflops: giga(profile.peak_flops_per_s),
        peak_arithmetic: profile.peak_arithmetic.map(Arithmetic::as_str),
        peak_gbytes: giga(profile.peak_bytes_per_s),
        roofline_bound: profile.roofline_bound.clone(),
        roofline_share: profile.roofline_share.map(significant_percent),
        arithmetic_intensity: profile.arithmetic_intensity.map(significant),
    }
}

/// Leaves out the remarks of the vectorizer for a program that uses vectors itself.
fn compiler_view(report: &CompilerReport, uses_vectors: bool) -> CompilerView {
    let most = if uses_vectors { 0 } else { MAX_LOOP_NOTES };
    let notes = |notes: &[LoopNote]| -> Vec<LoopNote> {
        notes.iter().take(most).map(|note| LoopNote { line: note.line, message: line(&note.message) }).collect()
    };
    CompilerView {
        instructions: report.instructions,
        wide_vector_instructions: report.wide_vector_instructions,
        fma_instructions: report.fma_instructions,
        scalar_math_calls: report.scalar_math_calls.iter().take(MAX_LOOP_NOTES).cloned().collect(),
        vectorized: notes(&report.vectorized_loops),
        missed: notes(&report.missed_loops),
        inner_loop: report.inner_loop.as_ref().map(inner_loop),
    }
}

fn inner_loop(found: &InnerLoop) -> InnerLoopView {
    let mut assembly = found.assembly.iter().map(|text| line(text)).collect::<Vec<_>>();
    let shown = u64::try_from(assembly.len()).unwrap_or(u64::MAX);
    if let Some(more) = found.instructions.checked_sub(shown).filter(|more| *more > 0) {
        assembly.push(format!("; {more} more"));
    }
    InnerLoopView {
        counts: format!(
            "{} instructions in `{}`: {} of floating-point arithmetic, {} loads, {} stores, {} shuffles, {} accesses to the stack",
            found.instructions,
            line(&found.function),
            found.arithmetic,
            found.loads,
            found.stores,
            found.shuffles,
            found.stack_accesses
        ),
        assembly: assembly.join("\n"),
    }
}

fn line(text: &str) -> String {
    let flat: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    clipped(&flat, MAX_LINE_BYTES).replace('\n', " ")
}

fn milliseconds(ns: f64) -> String {
    significant(ns / 1e6)
}

fn giga(value: f64) -> String {
    significant(value / 1e9)
}

fn significant_percent(share: f64) -> String {
    format!("{:.0}", share * 100.0)
}
