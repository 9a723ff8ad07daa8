//! What each agent is told about a GPU, a program for it, and what its profilers saw.

use nightshift_protocol::attempt::{Attempt, Stage};
use nightshift_protocol::attempt_memory::AttemptMemory;
use nightshift_protocol::step::{CodeRequest, PreparedTask, StepInput, StepOutput};
use nightshift_protocol::task::TaskBundle;
use serde_json::{Value, json};

use crate::fixture::{Bench, agents, attempt, bundle, of_json, plan, plan_version, prepared};
use nightshift_optimizer::model::Catalog;

const PROGRAM: &str = "__global__ void softmax_rows(const float *x, float *y, int cols) {}\n";
const REPLY: &str = "```cpp\nint x;\n```";
const KERNEL: &str = "softmax_rows(float const*, float*, int)";

fn cuda_bundle() -> TaskBundle {
    let mut bundle = serde_json::to_value(bundle()).unwrap();
    bundle["spec"]["target"] = json!("cuda");
    bundle["spec"]["reference"] = json!("reference.cu");
    bundle["spec"]["libraries"] = json!(["cublaslt", "cccl"]);
    of_json(bundle)
}

fn bench(replies: &[(&str, &str)]) -> Bench {
    let mut bench = Bench::scripted(replies);
    bench.task = bench.memory.keep(&serde_json::to_vec(&cuda_bundle()).unwrap());
    bench
}

fn built() -> Value {
    json!({
        "arch": "sm_90a",
        "kernels": [{
            "name": KERNEL, "symbol": "_Z12softmax_rowsPKfPfi", "registers": 40, "barriers": 1, "shared_bytes": 4096,
            "stack_bytes": 0, "spill_store_bytes": 16, "spill_load_bytes": 24, "max_block_threads": 256,
            "sass": {"instructions": 412, "tensor_core": 0, "global_loads": 9, "loads_128": 8, "shared_loads": 6,
                     "special_function": 3},
            "occupancy": {"max_warps": 64, "warps_by_registers": 48, "blocks_by_shared_memory": 32,
                          "of_block": {"block_threads": 256, "blocks": 6, "warps": 48, "limited_by": "registers"}},
        }],
        "libraries": [],
    })
}

fn times(count: u64, mean_ns: u64) -> Value {
    json!({"count": count, "total_ns": count * mean_ns, "min_ns": mean_ns, "max_ns": 2 * mean_ns})
}

/// A profile by nsys and ncu, with so many kernels.
fn profile(kernels: usize) -> Value {
    let timed = |i: usize| {
        let name = if i == 0 { KERNEL.to_owned() } else { format!("tail_{i}(float*)") };
        json!({"name": name, "times": times(20, 12_100), "share": if i == 0 { 0.62 } else { 0.01 }, "grid": [2048, 1, 1],
            "block": [256, 1, 1], "registers_per_thread": 40, "shared_bytes": 4096})
    };
    json!({
        "tier": "nsys+ncu+compiler_report+analytic_roofline", "missing": [], "arithmetic_intensity": 0.5,
        "peak_flops_per_s": 6.7e13, "peak_bytes_per_s": 4.8e12, "roofline_share": 0.41, "roofline_bound": "memory",
        "compiler": {"vectorized_loops": [], "missed_loops": [], "instructions": 0, "wide_vector_instructions": 0,
            "fma_instructions": 0, "scalar_math_calls": [], "library_bytes": 1},
        "bound": {"bound": "launch", "evidence": ["the device idles for 38 % of a call"]},
        "timeline": {
            "calls": 10, "span_ns": 390_000, "busy_ns": 242_000, "overlap_ns": 0, "host_share": 0.38,
            "kernels": (0..kernels).map(timed).collect::<Vec<_>>(),
            "copies": [{"direction": "device_to_device", "times": times(10, 3_000), "bytes": 1_048_576}],
            "api": [{"name": "cudaLaunchKernel", "times": times(20, 4_200)}],
            "gaps": {"between": times(10, 9_000), "before_first": times(10, 5_000)},
            "launches": {"host": times(20, 4_200), "until_start": times(20, 5_100), "graphs": 0},
            "streams": [{"stream": 7, "kernels": 20, "copies": 10, "busy_ns": 242_000}],
        },
        "kernels": (0..kernels).map(|i| json!({
            "name": timed(i)["name"], "launches": 1, "time_share": 0.62,
            "bound": {"bound": "memory", "evidence": ["DRAM throughput 78 % of peak"]},
            "dram_share": 0.78, "compute_share": 0.22, "tensor_share": 0.0, "occupancy": 0.71, "occupancy_limit": 0.75,
            "occupancy_limited_by": "registers", "sectors_per_load": 4.0, "l2_hit_rate": 0.12,
            "stalls": [{"reason": "long_scoreboard", "warps": 9.1, "share": 0.61}],
        })).collect::<Vec<_>>(),
        "tiers": [
            {"purpose": "timeline", "tool": "nsys", "used": true},
            {"purpose": "kernels", "tool": "ncu", "used": true},
        ],
    })
}

fn cuda_prepared(profile: Option<Value>) -> PreparedTask {
    let mut stored = serde_json::to_value(prepared()).unwrap();
    stored["reference"]["cuda"] = built();
    stored["machine"]["gpus"] = json!([{
        "index": 0, "name": "NVIDIA H200", "uuid": "GPU-1", "compute_capability": "9.0",
        "memory_bytes": 150_754_820_096_u64, "driver_version": "580.65.06", "cuda_driver_version": "13.0",
        "sm_clock_max_mhz": 1_980, "multiprocessors": 132, "l2_bytes": 62_914_560, "memory_bytes_per_s": 4_814_000_000_000_u64,
    }]);
    if let Some(profile) = profile {
        stored["profile"] = profile;
    }
    of_json(stored)
}

fn cuda_attempt(bench: &Bench, outcome: &str, profile: Option<Value>) -> Attempt {
    let mut stored = serde_json::to_value(attempt(&bench.memory, outcome, PROGRAM)).unwrap();
    stored["build"]["cuda"] = built();
    stored["build"]["messages"][0]["file"] = json!("candidate.cu");
    stored["verdict"]["custom_kernel_time_share"] = json!(0.62);
    if let Some(profile) = profile {
        stored["profile"] = profile;
    }
    of_json(stored)
}

/// The prompt that the Coder got.
async fn told(bench: &Bench, stage: Stage, parent: Option<Attempt>) -> String {
    let input = StepInput::WriteCode {
        task: bench.task.clone(),
        prepared: Box::new(cuda_prepared(None)),
        request: Box::new(CodeRequest {
            stage,
            plan: plan_version(),
            subtask: 1,
            parent: parent.map(Box::new),
            modification: None,
            method: None,
            near: None,
            candidate: None,
            fix_turn: 0,
            session: None,
            history: Vec::new(),
            memory: AttemptMemory::default(),
            hints: Vec::new(),
        }),
    };
    let output = bench.carry_out(&agents(Catalog::default()), "a", &input).await.unwrap();
    let StepOutput::CodeWritten { calls, .. } = output else { panic!("{output:?}") };
    bench.memory.text(&calls[0].prompt)
}

fn assert_told(prompt: &str, parts: &[&str]) {
    for part in parts {
        assert!(prompt.contains(part), "`{part}` is missing in:\n{prompt}");
    }
}

#[tokio::test]
async fn the_coder_is_told_the_device_the_libraries_and_the_rules_of_a_gpu() {
    let bench = bench(&[("a", REPLY)]);
    let prompt = told(&bench, Stage::Draft, None).await;
    assert_told(
        &prompt,
        &[
            "You write CUDA C++ programs",
            "of NVIDIA's libraries cublaslt, cccl: others are not linked",
            "All work goes to `stream`",
            "Never launch on the default stream",
            "Libraries beside the CUDA runtime that a program may use: cublaslt, cccl",
            "- GPU: NVIDIA H200, compute capability 9.0; programs are built for `sm_90a`",
            "- Device memory: 140 GiB at 4814 GB/s; L2 cache: 60 MiB",
            "- Multiprocessors: 132, at up to 1980 MHz",
            "- Host: Fast CPU 9000, 2 cores usable",
        ],
    );
    assert!(!prompt.contains("instruction sets") && !prompt.contains("Use one thread:"), "{prompt}");
}

#[tokio::test]
async fn every_stage_of_the_coder_can_be_told_of_a_program_for_a_gpu() {
    for (stage, outcome) in [
        (Stage::Draft, "correct_faster"),
        (Stage::RepairCompile, "compile_failed"),
        (Stage::RepairRuntime, "crashed"),
        (Stage::RepairCorrectness, "incorrect"),
        (Stage::RepairCompliance, "not_compliant"),
        (Stage::Optimize, "correct_faster"),
    ] {
        let bench = bench(&[("a", REPLY)]);
        let parent = cuda_attempt(&bench, outcome, outcome.starts_with("correct").then(|| profile(2)));
        let prompt = told(&bench, stage, Some(parent)).await;
        assert_told(&prompt, &[PROGRAM, "NVIDIA H200", "NS_EXPORT int ns_run"]);
    }
}

#[tokio::test]
async fn a_compile_error_of_a_kernel_is_told_by_its_line() {
    let bench = bench(&[("a", REPLY)]);
    let mut parent = cuda_attempt(&bench, "compile_failed", None);
    parent.build.as_mut().unwrap().messages[0].line = 1;
    let prompt = told(&bench, Stage::RepairCompile, Some(parent)).await;
    assert_told(
        &prompt,
        &["candidate.cu, line 1, column 5: error: expected ';'", "The line reads: `__global__ void softmax_rows"],
    );
}

#[tokio::test]
async fn an_optimization_is_told_what_was_built_and_what_ran() {
    let bench = bench(&[("a", REPLY)]);
    let parent = cuda_attempt(&bench, "correct_faster", Some(profile(2)));
    let prompt = told(&bench, Stage::Optimize, Some(parent)).await;
    assert_told(
        &prompt,
        &[
            "Kernels of its own take 62 % of the time of all kernels",
            "`softmax_rows(float const*, float*, int)`: 40 registers; 4096 bytes of static shared memory; spills 16 \
             bytes out and 24 bytes in; blocks of 256 threads: 48 of 64 warps resident, limited by registers",
            "machine code: 412 instructions, 0 on tensor cores, 9 global loads, 8 of 16 bytes, 6 shared loads, 3 special \
             functions",
            "As a whole it is bound by launch: the device idles for 38 % of a call.",
            "Under the profiler, one call takes 39.00 µs on average over 10 calls, from its begin to its end: the device works in 62 % of it, the host alone has 38 %",
            "62 % of the kernels' time, 2 a call, 12.10 µs each; grid 2048x1x1, block 256x1x1",
            "Copies `device_to_device`: 1 a call, 3.000 µs each, 1048576 bytes in all",
            "Launching on the host: 2 a call, 4.200 µs each; 5.100 µs until a kernel begins",
            "bound by memory (DRAM throughput 78 % of peak)",
            "device memory 78 %, multiprocessors 22 %, tensor pipe 0 %",
            "occupancy 71 % (limit 75 % by registers)",
            "warps wait for: long_scoreboard 61 %",
            "By the roofline of the task's own numbers: bound by memory, 41 % of that limit reached.",
        ],
    );
    // Words for a processor would mislead.
    assert!(!prompt.contains("with one thread") && !prompt.contains("wide vectors"), "{prompt}");
}

#[tokio::test]
async fn a_tool_that_was_missing_is_said_to_be_missing() {
    let bench = bench(&[("a", REPLY)]);
    let mut seen = profile(0);
    seen["tiers"][1] = json!({"purpose": "kernels", "tool": "ncu", "used": false,
        "reason": "no permission for performance counters", "remedy": "ask the operator"});
    let prompt = told(&bench, Stage::Optimize, Some(cuda_attempt(&bench, "correct_faster", Some(seen)))).await;
    assert_told(&prompt, &["- ncu: not used: no permission for performance counters"]);
    assert!(!prompt.contains("Hardware counters") && !prompt.contains("ask the operator"), "{prompt}");
}

#[tokio::test]
async fn a_race_is_told_with_its_place() {
    let bench = bench(&[("a", REPLY)]);
    let mut stored = serde_json::to_value(cuda_attempt(&bench, "runtime_failed", None)).unwrap();
    stored["findings"] = json!([{"code": "racecheck", "severity": "violation", "message": "A race.", "line": 19}]);
    stored["sanitize"] = json!({
        "tools": [
            {"tool": "memcheck", "outcome": "clean", "errors": 0, "wall_ms": 900},
            {"tool": "racecheck", "outcome": "errors", "errors": 2, "wall_ms": 1200, "issues": [{
                "kind": "Race between write and read", "is_error": true, "count": 2, "kernel": KERNEL, "line": 19,
                "thread": [0, 0, 0], "block": [3, 0, 0], "details": ["the other access is at line 23"],
            }]},
        ],
        "findings": [{"code": "racecheck", "severity": "violation", "message": "A race.", "line": 19}],
    });
    let prompt = told(&bench, Stage::RepairRuntime, Some(of_json(stored))).await;
    assert_told(
        &prompt,
        &[
            "compute-sanitizer found errors",
            "- memcheck: nothing found",
            "- racecheck: Race between write and read in `softmax_rows(float const*, float*, int)`, line 19, 2 times, first \
             by thread [0, 0, 0] of block [3, 0, 0]; the other access is at line 23",
            "barriers that not all threads reach",
        ],
    );
    assert!(!prompt.contains("What happened: finished"), "{prompt}");
}

#[tokio::test]
async fn the_planner_is_told_what_the_reference_does_on_the_device() {
    let plan_text = serde_json::to_string(&plan()).unwrap();
    let bench = bench(&[("plan", &plan_text), ("replan2", &plan_text)]);
    let prepared = Box::new(cuda_prepared(Some(profile(1))));
    let inputs = [
        ("plan", StepInput::Plan { task: bench.task.clone(), prepared: prepared.clone(), hints: Vec::new() }),
        (
            "replan2",
            StepInput::Replan {
                task: bench.task.clone(),
                prepared,
                previous: Box::new(plan_version()),
                reason: "no gain".to_owned(),
                best: None,
                history: Vec::new(),
                memory: AttemptMemory::default(),
                hints: Vec::new(),
            },
        ),
    ];
    for (key, input) in inputs {
        let output = bench.carry_out(&agents(Catalog::default()), key, &input).await.unwrap();
        let StepOutput::Planned { calls, .. } = output else { panic!("{output:?}") };
        assert_told(
            &bench.memory.text(&calls[0].prompt),
            &[
                "## The reference under the profilers",
                "`softmax_rows(float const*, float*, int)`: 62 % of the kernels' time",
                "Plan for the GPU that is described",
                "NVIDIA H200",
            ],
        );
    }
}

#[tokio::test]
async fn verifier_and_judge_are_told_in_the_words_of_a_gpu() {
    let diagnosis = json!({"bound": "launch", "critical_issue": "Two launches.", "modification": "Fuse them.",
        "metrics": [], "expected_gain": 1.5, "route": "optimize"});
    let rating = json!({"anti_hacking": 5, "cuda_engineering": 3, "operator_coverage": 4, "skill_compliance": 4,
        "major_hacking": false, "reasons": ["fine"]});
    let (diagnosis, rating) = (diagnosis.to_string(), rating.to_string());
    let bench = bench(&[("d", &diagnosis), ("j", &rating)]);
    let attempt = Box::new(Attempt { stage: Stage::Draft, ..cuda_attempt(&bench, "correct_faster", Some(profile(2))) });
    let input = StepInput::Diagnose {
        task: bench.task.clone(),
        prepared: Box::new(cuda_prepared(None)),
        plan: Box::new(plan_version()),
        attempt: attempt.clone(),
        history: Vec::new(),
        memory: AttemptMemory::default(),
        hints: Vec::new(),
    };
    let output = bench.carry_out(&agents(Catalog::default()), "d", &input).await.unwrap();
    let StepOutput::Diagnosed { diagnosis: Some(_), calls, .. } = output else { panic!("{output:?}") };
    assert_told(
        &bench.memory.text(&calls[0].prompt),
        &["Read the timeline first", "one call takes 39.00 µs", "warps wait for: long_scoreboard 61 %"],
    );
    let input = StepInput::Judge {
        task: bench.task.clone(),
        plan: Box::new(plan_version()),
        attempt,
        parent_source: None,
        modification: None,
        parent_speedup: None,
        parent_bound: None,
    };
    let output = bench.carry_out(&agents(Catalog::default()), "j", &input).await.unwrap();
    let StepOutput::Judged { calls, .. } = output else { panic!("{output:?}") };
    assert_told(
        &bench.memory.text(&calls[0].prompt),
        &["how well the machine is used", "coalesced accesses of 16 bytes"],
    );
}

#[tokio::test]
async fn what_a_prompt_tells_of_a_profile_is_bounded() {
    let small = bench(&[("a", REPLY)]);
    let parent = cuda_attempt(&small, "correct_faster", Some(profile(1)));
    let little = told(&small, Stage::Optimize, Some(parent)).await.len();
    let large = bench(&[("a", REPLY)]);
    let parent = cuda_attempt(&large, "correct_faster", Some(profile(5_000)));
    let prompt = told(&large, Stage::Optimize, Some(parent)).await;
    assert_told(&prompt, &["4990 more kernels with smaller shares"]);
    assert!(prompt.len() < little + 8_000, "{} after {little}", prompt.len());
}
