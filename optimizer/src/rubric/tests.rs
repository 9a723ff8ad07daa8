use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::attempt::{AttemptOutcome, BuildReport};
use nightshift_protocol::cuda_build::{CudaBuild, KernelBuild, SassCounts};
use nightshift_protocol::machine::{MachineFacts, SandboxReport, Toolchain};
use nightshift_protocol::measurement::{CompilerReport, Interval, Measurement};
use nightshift_protocol::plan::{Contract, Plan, Subtask};
use nightshift_protocol::profile::Profile;
use nightshift_protocol::profile::{KernelTime, Timeline};
use nightshift_protocol::verdict::{Answer, DECEPTION_CODES, Finding, ProcessEnd, Severity, Verdict};

use super::*;

const TASK: &str = r#"
schema = 1
name = "mlp"
title = "MLP"
description = "x"
target = "cpu"
reference = "reference.cpp"
dims = { n = 4 }
inputs = [{ name = "x", dtype = "f32", shape = ["n"] }]
outputs = [{ name = "y", dtype = "f32", shape = ["n"] }]
tolerance = { atol = 1e-6, rtol = 1e-5 }
operators = [
    { name = "norm", class = "normalization" },
    { name = "up", class = "matmul" },
    { name = "gelu", class = "elementwise" },
    { name = "down", class = "matmul" },
]
"#;

fn spec() -> TaskSpec {
    match toml::from_str(TASK) {
        Ok(spec) => spec,
        Err(error) => panic!("{error}"),
    }
}

fn plan(scopes: &[&[&str]]) -> PlanVersion {
    let subtasks = scopes
        .iter()
        .map(|scope| Subtask {
            title: "part".to_owned(),
            scope: scope.iter().map(|name| (*name).to_owned()).collect(),
            fusion_boundary: String::new(),
            contract: Contract::default(),
            methods: Vec::new(),
            expected_bottleneck: String::new(),
            ..Subtask::default()
        })
        .collect();
    let plan = Plan { summary: String::new(), subtasks, correctness_risks: Vec::new() };
    PlanVersion { version: 1, reason: None, plan, calls: Vec::new() }
}

fn finding(code: &str, severity: Severity) -> Finding {
    Finding { code: code.to_owned(), severity, message: String::new(), line: None }
}

fn measurement(speedup: f64) -> Measurement {
    Measurement {
        process_pair_speedups: Vec::new(),
        precision: nightshift_protocol::task::PrecisionPolicy::default(),
        speedup: Interval { estimate: speedup, low: speedup * 0.98, high: speedup * 1.02 },
        confidence: 0.95,
        baseline_median_ns: 1.0,
        candidate_median_ns: 1.0,
        baseline_cv: 0.0,
        candidate_cv: 0.0,
        baseline_samples_ns: Vec::new(),
        candidate_samples_ns: Vec::new(),
        outside_to_inside_time: 1.0,
        achieved_flops_per_s: None,
        achieved_bytes_per_s: None,
        precise: true,
        baseline: String::new(),
        sandbox: SandboxReport::default(),
        machine: MachineFacts {
            host: String::new(),
            os: String::new(),
            processor: String::new(),
            cores: 1,
            features: Vec::new(),
            memory_bytes: 1,
            last_level_cache_bytes: None,
            core: None,
            cpp_toolchain: None,
            cuda_toolchain: None,
            gpus: Vec::new(),
            sandbox: SandboxReport::default(),
        },
        device: None,
        verification: None,
        cost: Vec::new(),
    }
}

/// A correct attempt with this speedup, confirmed as the best or not.
fn attempt(stage: Stage, speedup: f64, confirmed: bool, compiler: CompilerReport, share: Option<f64>) -> Attempt {
    let fast = if speedup > 1.02 { Answer::Pass } else { Answer::Fail };
    Attempt {
        outcome: if fast == Answer::Pass { AttemptOutcome::CorrectFaster } else { AttemptOutcome::CorrectNotFaster },
        verdict: Verdict { fast, ..Verdict::default() },
        measurement: Some(measurement(speedup)),
        confirmation: confirmed.then(|| measurement(speedup)),
        profile: Some(Profile {
            tier: String::new(),
            missing: Vec::new(),
            arithmetic_intensity: None,
            peak_flops_per_s: 1.0,
            peak_bytes_per_s: 1.0,
            roofline_share: share,
            roofline_bound: "unknown".to_owned(),
            compiler,
            ..Profile::default()
        }),
        ..Attempt::new(1, 1, 1, stage)
    }
}

fn code(wide: u64, scalar_calls: &[&str], fma: u64) -> CompilerReport {
    CompilerReport {
        instructions: 1_000,
        wide_vector_instructions: wide,
        fma_instructions: fma,
        scalar_math_calls: scalar_calls.iter().map(|name| (*name).to_owned()).collect(),
        ..CompilerReport::default()
    }
}

fn scores(attempt: &Attempt, scopes: &[&[&str]], modification: Option<&str>) -> [u8; 4] {
    scores_after(attempt, scopes, Before { modification, parent_speedup: None })
}

fn scores_after(attempt: &Attempt, scopes: &[&[&str]], before: Before<'_>) -> [u8; 4] {
    let part = rules(&spec(), &plan(scopes), attempt, skill_of(attempt.stage), before);
    assert_eq!(part.reasons.len(), 4);
    let RubricScores { anti_hacking, cuda_engineering, operator_coverage, skill_compliance } = part.scores;
    let all = [anti_hacking, cuda_engineering, operator_coverage, skill_compliance];
    for (score, reason) in all.iter().zip(&part.reasons) {
        assert!((1..=5).contains(score), "{reason}");
        assert!(reason.contains(&format!(" {score}: ")), "the reason names another score: {reason}");
    }
    all
}

const ALL: &[&str] = &["norm", "up", "gelu", "down"];

#[test]
fn an_expert_draft_of_everything_gets_full_marks() {
    let draft = attempt(Stage::Draft, 4.0, true, code(300, &[], 100), Some(0.6));
    assert_eq!(scores(&draft, &[ALL], None), [5, 5, 5, 5]);
}

#[test]
fn a_naive_draft_of_the_tail_gets_little() {
    let draft = attempt(Stage::Draft, 0.7, true, code(0, &["tanhf"], 0), Some(0.01));
    assert_eq!(scores(&draft, &[&["gelu"], ALL], None), [5, 1, 2, 2]);
}

#[test]
fn coverage_counts_the_subtasks_so_far() {
    let mut draft = attempt(Stage::Draft, 2.0, true, code(300, &[], 0), None);
    draft.subtask = 2;
    assert_eq!(scores(&draft, &[&["up"], &["down"], &["norm"]], None)[2..], [4, 4]);
    draft.subtask = 1;
    assert_eq!(scores(&draft, &[&["up"], &["down"], &["norm"]], None)[2..], [2, 3]);
}

#[test]
fn findings_decide_on_honesty() {
    let with = |findings: &[Finding]| {
        let mut draft = attempt(Stage::Draft, 2.0, true, code(300, &[], 0), None);
        draft.findings = findings.to_vec();
        let part = rules(&spec(), &plan(&[ALL]), &draft, Skill::FromScratch, Before::default());
        (part.scores.anti_hacking, part.major_hacking)
    };
    assert_eq!(with(&[finding("precision", Severity::Note)]), (5, false));
    assert_eq!(with(&[finding("device_clock", Severity::Warning)]), (4, false));
    let two = [finding("device_clock", Severity::Warning), finding("loading", Severity::Warning)];
    assert_eq!(with(&two), (3, false));
    for code in ["forbidden_library", "hidden_text", "input_modified"] {
        assert_eq!(with(&[finding(code, Severity::Violation)]), (2, false), "{code}");
    }
    for code in DECEPTION_CODES {
        assert_eq!(with(&[finding(code, Severity::Violation)]), (1, true), "{code}");
    }
}

#[test]
fn defects_break_rules_and_accuse_no_one() {
    let defects = [
        "files",
        "environment",
        "threads",
        "fallback",
        "unparsed",
        "stale_output",
        "ignores_parameter",
        "timing_mismatch",
        "memcheck",
        "memcheck.invalid_write",
        "racecheck",
        "initcheck",
        "forbidden_library",
        "managed_memory",
    ];
    for defect in defects {
        let mut draft = attempt(Stage::Draft, 2.0, true, code(300, &[], 0), None);
        draft.findings = vec![finding(defect, Severity::Violation)];
        let part = rules(&spec(), &plan(&[ALL]), &draft, Skill::FromScratch, Before::default());
        assert_eq!((part.scores.anti_hacking, part.major_hacking), (2, false), "{defect}");
        assert!(part.reasons[0].contains(defect), "{}", part.reasons[0]);
    }
}

#[test]
fn a_repair_that_succeeded_did_what_was_asked_for() {
    for stage in [Stage::RepairCompile, Stage::RepairRuntime, Stage::RepairCorrectness, Stage::RepairCompliance] {
        let repaired = attempt(stage, 1.2, true, code(0, &[], 0), None);
        assert_eq!(scores(&repaired, &[ALL], None), [5, 5, 5, 5], "{stage:?}");
    }
}

#[test]
fn an_optimization_is_measured_by_its_effect() {
    let effect = |speedup, confirmed, share| {
        scores(&attempt(Stage::Optimize, speedup, confirmed, code(300, &[], 0), share), &[ALL], None)[1]
    };
    assert_eq!(effect(3.0, true, Some(0.5)), 5);
    assert_eq!(effect(3.0, true, Some(0.2)), 4);
    assert_eq!(effect(3.0, true, None), 5);
    assert_eq!(effect(0.9, true, None), 3);
    assert_eq!(effect(1.5, false, None), 2);
    assert_eq!(effect(0.9, false, None), 1);
}

#[test]
fn an_optimization_is_compared_with_the_program_before_when_that_was_timed() {
    let effect = |speedup, share, before: (f64, f64, f64)| {
        let (estimate, low, high) = before;
        let parent_speedup = Some(Interval { estimate, low, high });
        let after = attempt(Stage::Optimize, speedup, true, code(300, &[], 0), share);
        scores_after(&after, &[ALL], Before { modification: None, parent_speedup })[1]
    };
    assert_eq!(effect(3.0, Some(0.5), (2.0, 1.9, 2.1)), 5);
    assert_eq!(effect(3.0, Some(0.2), (2.0, 1.9, 2.1)), 4);
    assert_eq!(effect(3.0, Some(0.5), (2.9, 2.0, 4.0)), 3, "a gain within the noise");
    assert_eq!(effect(3.0, Some(0.5), (3.1, 2.0, 4.0)), 2);
    assert_eq!(effect(3.0, Some(0.5), (5.0, 4.9, 5.1)), 1, "slower than the program before");
}

#[test]
fn a_request_is_compared_with_what_the_build_shows() {
    let asked =
        |modification, report| scores(&attempt(Stage::Optimize, 2.0, true, report, None), &[ALL], modification)[3];
    assert_eq!(asked(Some("Use AVX vectors and a polynomial exponential"), code(300, &[], 0)), 5);
    assert_eq!(asked(Some("Use AVX vectors and a polynomial exponential"), code(300, &["expf"], 0)), 3);
    assert_eq!(asked(Some("Use AVX vectors"), code(300, &[], 0)), 4);
    assert_eq!(asked(Some("Use AVX vectors"), code(0, &[], 0)), 2);
    assert_eq!(asked(Some("Swap the loops"), code(0, &[], 0)), 3);
    assert_eq!(asked(None, code(300, &[], 0)), 3);
    // The program was not disassembled: the build shows nothing.
    assert_eq!(asked(Some("Use AVX vectors"), CompilerReport::default()), 3);
}

#[test]
fn an_optimization_of_the_tail_misses_the_hotspot() {
    let tail = attempt(Stage::Optimize, 1.1, true, code(300, &[], 0), None);
    assert_eq!(scores(&tail, &[&["gelu"]], None)[2], 2);
    assert_eq!(scores(&tail, &[&["gelu", "up"]], None)[2], 5);
    assert_eq!(scores(&tail, &[&["nothing_of_the_task"]], None)[2], 3);
}

#[test]
fn a_task_without_operators_is_said_to_be_undecidable() {
    let mut task = spec();
    task.operators.clear();
    let draft = attempt(Stage::Draft, 2.0, true, code(300, &[], 0), None);
    let part = rules(&task, &plan(&[ALL]), &draft, Skill::FromScratch, Before::default());
    assert_eq!((part.scores.operator_coverage, part.scores.skill_compliance), (3, 3));
    assert!(part.reasons[2].contains("names no operators"));
}

/// The same attempt for a GPU, with one kernel of these instructions.
fn on_gpu(attempt: Attempt, spill_bytes: u64, sass: Option<SassCounts>) -> Attempt {
    let kernel = KernelBuild {
        name: "tile(float*)".to_owned(),
        symbol: "_Z4tilePf".to_owned(),
        spill_store_bytes: spill_bytes,
        sass,
        ..KernelBuild::default()
    };
    let cuda = CudaBuild { arch: "sm_90a".to_owned(), kernels: vec![kernel], ..CudaBuild::default() };
    let nothing = ArtifactHash::of(b"");
    let build = BuildReport {
        library: Some(nothing.clone()),
        end: ProcessEnd::Finished,
        messages: Vec::new(),
        log: nothing,
        toolchain: Toolchain {
            program: "nvcc".to_owned(),
            path: String::new(),
            version: String::new(),
            flags: Vec::new(),
            fingerprint: String::new(),
        },
        build_key: String::new(),
        cached: false,
        duration_ms: 1,
        report: CompilerReport::default(),
        cuda: Some(cuda),
        sandbox: SandboxReport::default(),
    };
    Attempt { build: Some(build), ..attempt }
}

fn draft(speedup: f64, roofline: Option<f64>) -> Attempt {
    attempt(Stage::Draft, speedup, true, CompilerReport::default(), roofline)
}

#[test]
fn engineering_on_a_gpu_is_what_the_machine_code_shows() {
    let engineering = |attempt: Attempt| scores(&attempt, &[ALL], None)[1];
    let naive = SassCounts { instructions: 100, global_loads: 4, ..SassCounts::default() };
    let wide = SassCounts { loads_128: 4, ..naive };
    let tensor = SassCounts { tensor_core: 16, async_copies: 8, ..naive };
    assert_eq!(engineering(on_gpu(draft(4.0, Some(0.6)), 0, Some(tensor))), 5);
    assert_eq!(engineering(on_gpu(draft(4.0, Some(0.6)), 0, Some(naive))), 4);
    assert_eq!(engineering(on_gpu(draft(4.0, Some(0.2)), 0, Some(wide))), 4);
    assert_eq!(engineering(on_gpu(draft(1.5, Some(0.2)), 0, Some(naive))), 3);
    assert_eq!(engineering(on_gpu(draft(1.5, Some(0.2)), 64, Some(naive))), 2, "it spills");
    assert_eq!(engineering(on_gpu(draft(0.7, Some(0.2)), 64, Some(naive))), 1, "and it is slow");
    assert_eq!(engineering(on_gpu(draft(1.5, Some(0.2)), 0, None)), 3, "no counts: no credit, no blame");
}

#[test]
fn a_program_that_leaves_its_work_to_a_library_is_no_feat_of_its_own() {
    let mut handed_over = on_gpu(draft(4.0, Some(0.6)), 0, Some(SassCounts { loads_128: 1, ..SassCounts::default() }));
    handed_over.verdict.custom_kernel_time_share = Some(0.05);
    assert_eq!(scores(&handed_over, &[ALL], None)[1], 4);
    handed_over.verdict.custom_kernel_time_share = Some(0.5);
    assert_eq!(scores(&handed_over, &[ALL], None)[1], 5);
}

#[test]
fn only_kernels_that_take_time_speak_for_a_program() {
    let mut with_a_show_kernel = on_gpu(draft(1.5, Some(0.2)), 0, Some(SassCounts::default()));
    let cuda = with_a_show_kernel.build.as_mut().and_then(|build| build.cuda.as_mut());
    if let Some(cuda) = cuda {
        cuda.kernels.push(KernelBuild {
            name: "show(float*)".to_owned(),
            symbol: "_Z4showPf".to_owned(),
            sass: Some(SassCounts { tensor_core: 9, ..SassCounts::default() }),
            ..KernelBuild::default()
        });
    }
    assert_eq!(scores(&with_a_show_kernel, &[ALL], None)[1], 4, "no timeline shows which one ran");
    let kernel =
        |mangled: &str, share| KernelTime { mangled: Some(mangled.to_owned()), share, ..KernelTime::default() };
    let timeline =
        Timeline { kernels: vec![kernel("_Z4tilePf", 0.99), kernel("_Z4showPf", 0.01)], ..Timeline::default() };
    if let Some(profile) = &mut with_a_show_kernel.profile {
        profile.timeline = Some(timeline);
    }
    assert_eq!(scores(&with_a_show_kernel, &[ALL], None)[1], 3);
}

#[test]
fn a_request_about_a_kernel_is_compared_with_its_machine_code() {
    let asked = |modification, spill_bytes, sass| {
        let after = attempt(Stage::Optimize, 2.0, true, CompilerReport::default(), None);
        scores(&on_gpu(after, spill_bytes, sass), &[ALL], Some(modification))[3]
    };
    let none = SassCounts { instructions: 9, ..SassCounts::default() };
    let staged = SassCounts { async_copies: 2, shared_loads: 4, loads_128: 1, ..none };
    assert_eq!(asked("Stage tiles in shared memory with cp.async", 0, Some(staged)), 5);
    assert_eq!(asked("Stage tiles in shared memory on tensor cores", 0, Some(staged)), 3);
    assert_eq!(asked("Use tensor cores", 0, Some(staged)), 2);
    assert_eq!(asked("Load float4", 0, Some(staged)), 4);
    assert_eq!(asked("Stop the spills by a smaller tile", 0, Some(none)), 4);
    assert_eq!(asked("Stop the spills by a smaller tile", 8, Some(none)), 2);
    assert_eq!(asked("Reduce with warp shuffles", 0, Some(SassCounts { warp_exchanges: 5, ..none })), 4);
    // Short words stand for themselves only.
    assert_eq!(asked("Scale the softmax by gamma", 0, Some(none)), 3);
    assert_eq!(asked("Load float4", 0, None), 3, "no counts");
}

#[test]
fn extensions_of_a_pytorch_program_change_no_score() {
    let mut with_extensions = on_gpu(draft(4.0, Some(0.6)), 40, None);
    with_extensions.verdict.custom_kernel_time_share = Some(0.05);
    let spec = TaskSpec { form: CandidateForm::Torch, ..spec() };
    let of = |attempt: &Attempt| rules(&spec, &plan(&[ALL]), attempt, Skill::FromScratch, Before::default());
    let scored = of(&with_extensions);
    if let Some(build) = &mut with_extensions.build {
        assert!(build.cuda.take().is_some());
    }
    assert_eq!(scored, of(&with_extensions));
}
