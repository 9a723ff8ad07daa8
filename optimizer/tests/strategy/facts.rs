//! Made-up results of steps, complete in every field.

use std::collections::BTreeSet;

use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::attempt::{AgentTool, Bound, BuildReport, CheckReport, Diagnosis, Route, TurnReply};
use nightshift_protocol::attempt_memory::Correction;
use nightshift_protocol::campaign::{ModelChoice, RunInput};
use nightshift_protocol::cuda_build::{CudaBuild, KernelBuild, SassCounts};
use nightshift_protocol::machine::{MachineFacts, SandboxReport, Toolchain};
use nightshift_protocol::measurement::{CompilerMessage, CompilerReport, Interval, Measurement};
use nightshift_protocol::model_call::{ModelCallSummary, StopCause};
use nightshift_protocol::plan::{Contract, Plan, Subtask};
use nightshift_protocol::profile::Profile;
use nightshift_protocol::profile::{SanitizeReport, SanitizerOutcome, SanitizerRun, SanitizerTool};
use nightshift_protocol::rubric::{JudgeOpinion, RewardBreakdown, Rubric, RubricScores, Skill};
use nightshift_protocol::step::{PreparedTask, StepOutput};
use nightshift_protocol::task::{Target, TaskGoal};
use nightshift_protocol::verdict::{CheckCase, Finding, ProcessEnd, Severity, WorstElement};

pub(crate) fn hash(text: &str) -> ArtifactHash {
    ArtifactHash::of(text.as_bytes())
}

pub(crate) fn run_input(goal: TaskGoal) -> RunInput {
    RunInput {
        schema: 1,
        task_name: "row_softmax".to_owned(),
        task: hash("task"),
        target: Target::Cpu,
        model: ModelChoice::Scripted,
        models: nightshift_protocol::models::ModelPlan::default(),
        scripted_replies: Some(hash("replies")),
        knowledge: nightshift_protocol::campaign::KnowledgeUse::default(),
        strategy: "stitch".to_owned(),
        goal,
        rules: nightshift_optimizer::strategy::RULES,
        sandbox_required: false,
        gates: BTreeSet::new(),
        labels: BTreeSet::new(),
        compute_capability: None,
        device_memory_bytes: None,
        torch: false,
        precision: Some(nightshift_protocol::task::PrecisionPolicy::Tf32),
    }
}

/// A run of a program on a GPU.
pub(crate) fn cuda_run_input(goal: TaskGoal) -> RunInput {
    RunInput { target: Target::Cuda, ..run_input(goal) }
}

fn toolchain() -> Toolchain {
    Toolchain {
        program: "c++".to_owned(),
        path: "/usr/bin/c++".to_owned(),
        version: "c++ 12.2.0".to_owned(),
        flags: vec!["-O3".to_owned()],
        fingerprint: "f".repeat(64),
    }
}

fn machine() -> MachineFacts {
    MachineFacts {
        host: "night".to_owned(),
        os: "linux".to_owned(),
        processor: "a processor".to_owned(),
        cores: 2,
        features: vec!["avx2".to_owned()],
        memory_bytes: 1 << 33,
        last_level_cache_bytes: None,
        core: None,
        cpp_toolchain: Some(toolchain()),
        cuda_toolchain: None,
        gpus: Vec::new(),
        sandbox: SandboxReport::default(),
    }
}

pub(crate) fn build(library: Option<&str>) -> BuildReport {
    let messages = if library.is_some() {
        Vec::new()
    } else {
        vec![CompilerMessage {
            file: "candidate.cpp".to_owned(),
            line: 12,
            column: 5,
            severity: "error".to_owned(),
            message: "'sum' was not declared in this scope".to_owned(),
        }]
    };
    BuildReport {
        library: library.map(hash),
        end: if library.is_some() { ProcessEnd::Finished } else { ProcessEnd::Exited { status: 1 } },
        messages,
        log: hash("log"),
        toolchain: toolchain(),
        build_key: "k".to_owned(),
        cached: false,
        duration_ms: 900,
        report: CompilerReport::default(),
        cuda: None,
        sandbox: SandboxReport::default(),
    }
}

pub(crate) fn prepared() -> PreparedTask {
    PreparedTask {
        reference: build(Some("reference")),
        reference_library: hash("reference"),
        truth_library: hash("truth"),
        baseline_median_ns: 1.25e6,
        reference_normalized_error: 0.01,
        warnings: Vec::new(),
        machine: machine(),
        profile: None,
        baselines: Vec::new(),
        cost: Vec::new(),
    }
}

fn call() -> ModelCallSummary {
    ModelCallSummary {
        model: "scripted".to_owned(),
        scripted: true,
        prompt_version: "v".to_owned(),
        prompt: hash("prompt"),
        reply: hash("reply"),
        input_tokens: None,
        output_tokens: None,
        price_microusd: None,
        reasoning: None,
        cached_input_tokens: None,
        cache_write_tokens: None,
        reasoning_tokens: None,
        latency_ms: 1,
        stop: StopCause::default(),
        turn: 1,
        role: None,
        fell_back: Vec::new(),
    }
}

/// A plan with a subtask for each target.
pub(crate) fn planned(targets: &[Option<f64>]) -> StepOutput {
    let subtasks = targets
        .iter()
        .enumerate()
        .map(|(i, target)| Subtask {
            title: format!("part {}", i + 1),
            scope: vec!["softmax".to_owned()],
            fusion_boundary: "none".to_owned(),
            contract: Contract::default(),
            methods: vec!["tiles".to_owned()],
            expected_bottleneck: "memory".to_owned(),
            target_speedup: *target,
            ..Subtask::default()
        })
        .collect();
    let plan = Plan { summary: "in parts".to_owned(), subtasks, correctness_risks: Vec::new() };
    StepOutput::Planned { plan, calls: vec![call()] }
}

/// The source of an attempt, as its fix turn left it; turn 0 is the first answer.
pub(crate) fn source(number: u32, turn: usize) -> ArtifactHash {
    hash(&if turn == 0 { format!("source {number}") } else { format!("source {number}, fixed {turn} times") })
}

pub(crate) fn code_written(number: u32, turn: usize, findings: Vec<Finding>) -> StepOutput {
    StepOutput::CodeWritten { source: source(number, turn), findings, tunables: Vec::new(), calls: vec![call()] }
}

/// A turn of an agent session that uses a tool on a program.
pub(crate) fn turn_with(tool: AgentTool, number: u32, version: usize, findings: Vec<Finding>) -> StepOutput {
    turn(TurnReply { source: Some(source(number, version)), findings, ..TurnReply::of(tool) })
}

/// A turn whose reply could not be used.
pub(crate) fn unusable_turn() -> StepOutput {
    turn(TurnReply { tool: None, problem: Some("no tool".to_owned()), ..TurnReply::of(AgentTool::Read) })
}

pub(crate) fn turn(turn: TurnReply) -> StepOutput {
    StepOutput::TurnTaken { turn: Box::new(turn), calls: vec![call()] }
}

pub(crate) fn no_code() -> StepOutput {
    StepOutput::NoCode {
        code: "reply.no_code".to_owned(),
        message: "the reply holds no code block".to_owned(),
        calls: vec![call()],
    }
}

pub(crate) fn violation() -> Finding {
    Finding {
        code: "files".to_owned(),
        severity: Severity::Violation,
        message: "`fopen` reaches for files".to_owned(),
        line: Some(7),
    }
}

fn case(wrong_elements: u64) -> CheckCase {
    CheckCase {
        shape: "default".to_owned(),
        inputs: "declared".to_owned(),
        passed: wrong_elements == 0,
        wrong_elements,
        elements: 4_096,
        worst: Some(WorstElement {
            tensor: "out".to_owned(),
            index: vec![3, 7],
            candidate: Some(0.25),
            truth: 0.5,
            normalized_error: Some(if wrong_elements == 0 { 0.1 } else { 9_000.0 }),
        }),
        reference_normalized_error: 0.01,
        allowed_error: Some(0.64),
    }
}

/// Checks that ended in this way, with this many wrong elements.
pub(crate) fn checked(end: ProcessEnd, wrong_elements: u64) -> StepOutput {
    let cases = if end == ProcessEnd::Finished { vec![case(wrong_elements)] } else { Vec::new() };
    StepOutput::Checked {
        report: Box::new(CheckReport {
            end,
            cases,
            error_histogram: vec![0; 9],
            deterministic: Some(true),
            findings: Vec::new(),
            printed: String::new(),
            cost: Vec::new(),
        }),
    }
}

/// What a machine says whose sanitizer gives up.
pub(crate) fn unsanitized(thorough: bool) -> StepOutput {
    let StepOutput::Sanitized { mut report } = sanitized(thorough, false) else { unreachable!("it is that") };
    for run in &mut report.tools {
        run.outcome = SanitizerOutcome::Unavailable;
        run.reason = Some("it was still running after 45000 ms".to_owned());
    }
    StepOutput::Sanitized { report }
}

/// A build whose kernel reads shared memory.
pub(crate) fn built_with_shared_memory() -> StepOutput {
    let sass = SassCounts { shared_loads: 8, ..SassCounts::default() };
    let kernels = vec![KernelBuild { sass: Some(sass), ..KernelBuild::default() }];
    let cuda = CudaBuild { arch: "sm_90a".to_owned(), kernels, libraries: Vec::new(), uncounted: None };
    StepOutput::Built { report: Box::new(BuildReport { cuda: Some(cuda), ..build(Some("library 1")) }) }
}

/// What a machine says where looking for races takes too long: after so many milliseconds, or without having begun.
pub(crate) fn too_slow_for_races(wall_ms: u64) -> StepOutput {
    let StepOutput::Sanitized { mut report } = sanitized(true, false) else { unreachable!("it is that") };
    for run in report.tools.iter_mut().filter(|run| run.tool == SanitizerTool::Racecheck) {
        run.outcome = SanitizerOutcome::Unavailable;
        (run.code, run.wall_ms) = (Some("profile.tool_too_slow".to_owned()), wall_ms);
        run.reason = Some("it was still running after 30000 ms".to_owned());
    }
    StepOutput::Sanitized { report }
}

/// What the sanitizer says of a program with a race, or without one.
pub(crate) fn sanitized(thorough: bool, has_race: bool) -> StepOutput {
    let race = has_race.then(|| Finding {
        code: "racecheck".to_owned(),
        severity: Severity::Violation,
        message: "racecheck: a race between a write and a read in `sum`".to_owned(),
        line: Some(19),
    });
    let run = |tool: SanitizerTool| {
        let found = has_race && tool == SanitizerTool::Racecheck;
        SanitizerRun {
            tool,
            outcome: if found { SanitizerOutcome::Errors } else { SanitizerOutcome::Clean },
            code: None,
            reason: None,
            remedy: None,
            errors: u64::from(found),
            warnings: 0,
            issues: Vec::new(),
            not_listed: 0,
            wall_ms: 900,
        }
    };
    let tools = [SanitizerTool::Memcheck, SanitizerTool::Racecheck, SanitizerTool::Initcheck];
    let wanted = tools.into_iter().filter(|tool| thorough || *tool != SanitizerTool::Initcheck);
    let report = SanitizeReport { tools: wanted.map(run).collect(), findings: race.into_iter().collect(), log: None };
    StepOutput::Sanitized { report: Box::new(report) }
}

/// A speedup with an interval of three percent to each side.
pub(crate) fn measured(speedup: f64) -> StepOutput {
    StepOutput::Measured { measurement: Box::new(measurement(speedup)), findings: Vec::new() }
}

pub(crate) fn measurement(speedup: f64) -> Measurement {
    Measurement {
        process_pair_speedups: Vec::new(),
        precision: nightshift_protocol::task::PrecisionPolicy::default(),
        speedup: Interval { estimate: speedup, low: speedup * 0.97, high: speedup * 1.03 },
        confidence: 0.95,
        baseline_median_ns: 1.25e6,
        candidate_median_ns: 1.25e6 / speedup,
        baseline_cv: 0.01,
        candidate_cv: 0.02,
        baseline_samples_ns: vec![1_250_000, 1_250_100],
        candidate_samples_ns: vec![1_000_000, 1_000_001],
        outside_to_inside_time: 1.01,
        achieved_flops_per_s: None,
        achieved_bytes_per_s: Some(0.1 + 0.2),
        precise: true,
        baseline: "reference.cpp, -O3".to_owned(),
        sandbox: SandboxReport::default(),
        machine: machine(),
        device: None,
        verification: None,
        cost: Vec::new(),
    }
}

pub(crate) fn profiled() -> StepOutput {
    StepOutput::Profiled {
        profile: Box::new(Profile {
            tier: "compiler_report+analytic_roofline".to_owned(),
            missing: Vec::new(),
            arithmetic_intensity: Some(0.25),
            peak_flops_per_s: 1e10,
            peak_bytes_per_s: 1e10,
            roofline_share: Some(0.4),
            roofline_bound: "memory".to_owned(),
            ..Profile::default()
        }),
    }
}

pub(crate) fn diagnosed(number: u32, route: Option<Route>) -> StepOutput {
    StepOutput::Diagnosed {
        diagnosis: route.map(|route| Diagnosis {
            bound: Bound::Memory,
            critical_issue: format!("issue {number}"),
            modification: format!("modification {number}"),
            metrics: Vec::new(),
            unsupported: Vec::new(),
            expected_gain: Some(1.3),
            route,
            repeat_reason: None,
        }),
        correction: None,
        unavailable: route.is_none().then(|| "the reply was no JSON".to_owned()),
        calls: vec![call()],
    }
}

/// What to mend in an attempt that failed.
pub(crate) fn corrected(number: u32) -> StepOutput {
    StepOutput::Diagnosed {
        diagnosis: None,
        correction: Some(Correction {
            critical_issue: format!("cause {number}"),
            why_it_matters: "it breaks the rest".to_owned(),
            minimal_fix: format!("fix {number}"),
        }),
        unavailable: None,
        calls: vec![call()],
    }
}

pub(crate) fn judged() -> StepOutput {
    let scores = RubricScores { anti_hacking: 5, cuda_engineering: 4, operator_coverage: 4, skill_compliance: 3 };
    StepOutput::Judged {
        rubric: Rubric {
            skill: Skill::FromScratch,
            rules: scores,
            rule_reasons: Vec::new(),
            rule_major_hacking: false,
            judge: JudgeOpinion::Rated { scores, major_hacking: false, reasons: Vec::new() },
        },
        reward: RewardBreakdown {
            version: 1,
            correct: true,
            major_hacking: false,
            speedup: 1.5,
            rubric_total: Some(16),
            lambda: 1.0,
            base: 1.8,
            reward: 2.25,
        },
        calls: vec![call()],
    }
}
