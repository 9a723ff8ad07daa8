//! What the generated world is made of: tasks, models, machines, and the results of single steps, as they are stored.

use std::collections::BTreeMap;

use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::task::Target;
use serde_json::{Value, json};

use super::dice::Dice;
use super::profile;
use super::source::{IDEAS, ISSUES, VARIANTS, reply, source};
use crate::examples;
use crate::failure::{Failure, Result};

/// When the first campaign began: 2025-01-01.
pub(super) const EPOCH_MS: i64 = 1_735_689_600_000;
/// Sizes in which each example appears.
const SIZES: [&str; 4] = ["small", "wide", "tall", "large"];
/// Compiler output, and a placeholder for a library, which is never loaded.
const LOG: &[u8] = b"ptxas info    : Compiling entry function for 'sm_90'\n";
const LIBRARY: &[u8] = b"a library that was never built\n";
/// Timing samples of a measurement.
const SAMPLES: u32 = 12;

/// A model: its name, what a million tokens cost in dollars (in, out), and how good it is, 0 to 1.
pub(super) struct Model {
    pub(super) endpoint: &'static str,
    pub(super) name: &'static str,
    prices: (f64, f64),
    pub(super) skill: f64,
}

impl Model {
    /// One of any name.
    pub(super) const fn of(endpoint: &'static str, name: &'static str) -> Self {
        Self { endpoint, name, prices: (0.1, 0.3), skill: 0.5 }
    }
}

pub(super) const MODELS: [Model; 5] = [
    Model { endpoint: "vllm", name: "coder-32b", prices: (0.1, 0.3), skill: 0.45 },
    Model { endpoint: "vllm", name: "stitch-8b", prices: (0.02, 0.06), skill: 0.35 },
    Model { endpoint: "openai", name: "large", prices: (1.25, 10.0), skill: 0.75 },
    Model { endpoint: "openai", name: "small", prices: (0.25, 2.0), skill: 0.5 },
    Model { endpoint: "anthropic", name: "thinker", prices: (3.0, 15.0), skill: 0.85 },
];

/// GPUs, and how fast each is beside the first.
const GPUS: [(&str, f64); 3] = [("NVIDIA H200", 1.0), ("NVIDIA H100 80GB HBM3", 0.8), ("NVIDIA A100-SXM4-80GB", 0.45)];

/// A task with its artifacts.
pub(super) struct Task {
    pub(super) name: String,
    pub(super) target: Target,
    pub(super) bundle: ArtifactHash,
    pub(super) sources: Vec<(ArtifactHash, String)>,
    pub(super) replies: Vec<(ArtifactHash, String)>,
    /// How much faster it can become.
    pub(super) potential: f64,
    pub(super) baseline_ns: f64,
}

/// Everything.
pub(super) struct World {
    pub(super) tasks: Vec<Task>,
    bundles: Vec<Vec<u8>>,
    pub(super) prompt: ArtifactHash,
    pub(super) log: ArtifactHash,
    pub(super) library: ArtifactHash,
    pub(super) trace: ArtifactHash,
    trace_bytes: Vec<u8>,
}

const PROMPT: &[u8] = b"The prompt of a generated attempt is not kept.\n";

impl World {
    pub(super) fn new() -> Result<Self> {
        let (mut tasks, mut bundles) = (Vec::new(), Vec::new());
        for target in [Target::Cuda, Target::Cpu] {
            for example in examples::of_target(target)? {
                for size in SIZES {
                    let mut bundle = example.bundle.clone();
                    bundle.spec.name = format!("{}_{size}", bundle.spec.name);
                    let name = bundle.spec.name.clone();
                    let bytes = serde_json::to_vec(&bundle)
                        .map_err(|error| Failure::new("internal.json", format!("a task cannot be written: {error}")))?;
                    let texts = |text: fn(&str, u32) -> String| -> Vec<(ArtifactHash, String)> {
                        let texts = (0..VARIANTS).map(|variant| text(&name, variant));
                        texts.map(|text| (ArtifactHash::of(text.as_bytes()), text)).collect()
                    };
                    let (sources, replies) = (texts(source), texts(reply));
                    let mut dice = Dice::new(0, u64::try_from(tasks.len()).unwrap_or(0));
                    tasks.push(Task {
                        target,
                        bundle: ArtifactHash::of(&bytes),
                        sources,
                        replies,
                        potential: 1.2 + 6.0 * dice.unit() * dice.unit(),
                        baseline_ns: dice.between(2e4, 4e6),
                        name,
                    });
                    bundles.push(bytes);
                }
            }
        }
        let trace_bytes = profile::trace();
        Ok(Self {
            tasks,
            bundles,
            prompt: ArtifactHash::of(PROMPT),
            log: ArtifactHash::of(LOG),
            library: ArtifactHash::of(LIBRARY),
            trace: ArtifactHash::of(&trace_bytes),
            trace_bytes,
        })
    }

    /// Everything that is stored under its hash.
    pub(super) fn artifacts(&self) -> impl Iterator<Item = Vec<u8>> {
        let texts = self.tasks.iter().flat_map(|task| task.sources.iter().chain(&task.replies));
        let texts = texts.map(|(_, text)| text.clone().into_bytes());
        texts
            .chain(self.bundles.iter().cloned())
            .chain([PROMPT, LOG, LIBRARY, self.trace_bytes.as_slice()].map(<[u8]>::to_vec))
    }
}

/// Makes the results of single steps of one run.
pub(super) struct Maker<'w> {
    pub(super) world: &'w World,
    pub(super) task: &'w Task,
    pub(super) model: &'w Model,
    pub(super) dice: Dice,
    machine: Value,
    toolchain: Value,
    speed: f64,
}

impl<'w> Maker<'w> {
    pub(super) fn new(world: &'w World, task: &'w Task, model: &'w Model, mut dice: Dice) -> Self {
        let toolchain = json!({
            "program": "nvcc", "path": "/usr/local/cuda/bin/nvcc", "version": "nvcc 13.0", "flags": ["-O3", "-arch=sm_90"],
            "fingerprint": ArtifactHash::of(b"nvcc 13.0").as_str(),
        });
        let gpu = dice.weighted(&[0.6, 0.3, 0.1]);
        let (name, speed) = GPUS[gpu.min(GPUS.len() - 1)];
        let gpus = match task.target {
            Target::Cuda => json!([{
                "index": 0, "name": name, "uuid": format!("GPU-{gpu}"), "compute_capability": "9.0",
                "memory_bytes": 150_754_820_096_u64, "driver_version": "580.65.06", "cuda_driver_version": "13.0",
            }]),
            Target::Cpu => json!([]),
        };
        let machine = json!({
            "host": "night", "os": "linux", "processor": "AMD EPYC 9654 96-Core Processor", "cores": 16,
            "features": ["avx2", "fma"], "memory_bytes": 137_438_953_472_u64, "last_level_cache_bytes": null,
            "cpp_toolchain": null, "gpus": gpus, "sandbox": sandbox(),
        });
        Self { world, task, model, dice, machine, toolchain, speed }
    }

    /// The answered calls of a step.
    pub(super) fn calls(&mut self, role: &str, variant: u32) -> Value {
        let input = 2_000 + self.dice.below(9_000);
        let output = 300 + self.dice.below(4_000);
        let (in_price, out_price) = self.model.prices;
        let reply = self.task.replies.get(place(variant)).map(|(hash, _)| hash);
        json!([{
            "model": format!("{}/{}", self.model.endpoint, self.model.name), "scripted": false, "prompt_version": "generated",
            "prompt": self.world.prompt, "reply": reply, "input_tokens": input, "output_tokens": output,
            "price_microusd": microusd(input, in_price) + microusd(output, out_price),
            "latency_ms": 2_000 + self.dice.below(40_000), "turn": 1, "stop": "end", "role": role,
        }])
    }

    pub(super) fn source(&self, variant: u32) -> Option<&ArtifactHash> {
        self.task.sources.get(place(variant)).map(|(hash, _)| hash)
    }

    pub(super) fn build(&mut self, compiles: bool) -> Value {
        let line = 8 + self.dice.below(30);
        let messages = if compiles {
            json!([])
        } else {
            let names = ["tile", "warp_sum", "columns", "stride"];
            let name = self.dice.pick(&names).copied().unwrap_or("tile");
            json!([{ "file": "candidate.cu", "line": line, "column": 9, "severity": "error",
                     "message": format!("identifier \"{name}\" is undefined") }])
        };
        json!({
            "library": compiles.then_some(&self.world.library),
            "end": if compiles { json!({"kind": "finished"}) } else { json!({"kind": "exited", "status": 2}) },
            "messages": messages, "log": self.world.log, "toolchain": self.toolchain,
            "build_key": "generated", "cached": false, "duration_ms": 700 + self.dice.below(900),
            "report": compiler_report(), "sandbox": sandbox(),
        })
    }

    /// `end` is how its process ended.
    pub(super) fn check(&mut self, passes: bool, end: &Value) -> Value {
        let wrong = if passes { 0 } else { 1 + self.dice.below(4_000) };
        let error = if passes { self.dice.between(0.01, 0.6) } else { self.dice.between(2.0, 9e3) };
        let histogram = if passes {
            json!([900, 2_000, 800, 300, 80, 16, 0, 0, 0])
        } else {
            json!([500, 900, 600, 400, 300, 200, 100, 96, 1_000])
        };
        json!({
            "end": end, "cases": [{
                "shape": "default", "inputs": "declared", "passed": passes, "wrong_elements": wrong, "elements": 4_096,
                "worst": { "tensor": "out", "index": [3, 7], "candidate": 0.25, "truth": 0.5, "normalized_error": error },
                "reference_normalized_error": 0.01,
            }],
            "error_histogram": histogram, "deterministic": true, "findings": [], "printed": "",
        })
    }

    pub(super) fn measurement(&mut self, speedup: f64) -> Value {
        let baseline = self.task.baseline_ns / self.speed;
        let candidate = baseline / speedup;
        let width = self.dice.between(0.004, 0.03);
        let mut samples = |median: f64| -> Vec<u64> {
            (0..SAMPLES).map(|_| whole(median * self.dice.between(1.0 - width, 1.0 + width))).collect()
        };
        json!({
            "speedup": { "estimate": speedup, "low": speedup * (1.0 - width), "high": speedup * (1.0 + width) },
            "confidence": 0.95, "baseline_median_ns": baseline, "candidate_median_ns": candidate,
            "baseline_cv": width, "candidate_cv": width,
            "baseline_samples_ns": samples(baseline), "candidate_samples_ns": samples(candidate),
            "outside_to_inside_time": 1.01, "achieved_flops_per_s": null, "achieved_bytes_per_s": 1e12 * speedup,
            "precise": true, "baseline": "reference, -O3", "sandbox": sandbox(), "machine": self.machine,
        })
    }

    pub(super) fn profile(&mut self) -> Value {
        json!({
            "tier": "compiler_report+analytic_roofline", "missing": ["kernel metrics: ncu was not there"],
            "arithmetic_intensity": 0.25, "peak_flops_per_s": 6.7e13, "peak_bytes_per_s": 4.8e12,
            "roofline_share": self.dice.between(0.1, 0.9), "roofline_bound": "memory", "compiler": compiler_report(),
        })
    }

    /// A profile by all tools, where the task is for a GPU.
    pub(super) fn full_profile(&mut self, speedup: f64) -> Value {
        let mut made = self.profile();
        if self.task.target == Target::Cuda {
            let call_ns = self.task.baseline_ns / self.speed / speedup;
            profile::fill(&mut made, &mut self.dice, &self.task.name, call_ns, &self.world.trace);
        }
        made
    }

    pub(super) fn diagnosis(&mut self) -> Value {
        let (bound, issue) = ISSUES[self.dice.weighted(&[0.55, 0.12, 0.2, 0.09, 0.04]).min(ISSUES.len() - 1)];
        let idea = self.dice.pick(&IDEAS).copied().unwrap_or(IDEAS[0]);
        json!({
            "bound": bound, "critical_issue": issue, "modification": idea,
            "metrics": [format!("roofline_share = {:.2}", self.dice.between(0.1, 0.9))],
            "expected_gain": self.dice.between(1.05, 1.8), "route": "optimize",
        })
    }

    /// The rubric, and the sum of the judge's scores; sometimes no judge answers.
    pub(super) fn rubric(&mut self, is_draft: bool) -> (Value, Option<u32>) {
        let mut score = |skew: f64| 5 - u32::try_from(self.dice.below(4)).unwrap_or(0).min(whole32(skew));
        let scores = [score(1.0), score(3.0), score(2.0), score(3.0)];
        let named = json!({
            "anti_hacking": scores[0], "cuda_engineering": scores[1], "operator_coverage": scores[2], "skill_compliance": scores[3],
        });
        let is_there = self.dice.unit() > 0.02;
        let judge = if is_there {
            json!({ "state": "rated", "scores": named, "major_hacking": false, "reasons": ["The change does what was asked."] })
        } else {
            json!({ "state": "judge_unavailable", "reason": "the reply was no JSON" })
        };
        let rubric = json!({
            "skill": if is_draft { "from_scratch" } else { "refinement" }, "rules": named,
            "rule_reasons": ["no finding"], "rule_major_hacking": false, "judge": judge,
        });
        (rubric, is_there.then(|| scores.iter().sum()))
    }

    pub(super) fn prepared(&mut self) -> Value {
        let reference = self.build(true);
        json!({
            "reference": reference, "reference_library": self.world.library, "truth_library": self.world.library,
            "baseline_median_ns": self.task.baseline_ns / self.speed, "reference_normalized_error": 0.01, "warnings": [],
            "machine": self.machine,
        })
    }

    pub(super) fn plan(&mut self) -> Value {
        let first = self.dice.pick(&IDEAS).copied().unwrap_or(IDEAS[0]);
        json!({
            "summary": format!("Make {} use the bandwidth of the memory.", self.task.name),
            "subtasks": [{
                "title": "The whole program", "scope": [self.task.name], "fusion_boundary": "none",
                "contract": { "inputs": [], "outputs": [] }, "methods": [first], "expected_bottleneck": "memory",
                "risk": "rounding", "target_speedup": null,
            }],
            "correctness_risks": ["rounding of long sums"],
        })
    }
}

/// What an attempt that failed is rewarded with.
pub(super) fn no_reward() -> Value {
    json!({ "version": 1, "correct": false, "major_hacking": false, "speedup": 0.0, "rubric_total": null, "lambda": 1.0,
            "base": 0.3, "reward": 0.0 })
}

/// What a right one is rewarded with.
pub(super) fn reward(speedup: f64, total: Option<u32>) -> Value {
    let base = 0.3 + speedup;
    let share = total.map_or(0.0, |total| (f64::from(total) - 4.0) / 16.0);
    json!({ "version": 1, "correct": true, "major_hacking": false, "speedup": speedup, "rubric_total": total, "lambda": 0.7,
            "base": base, "reward": base + 0.7 * share })
}

fn sandbox() -> Value {
    json!({ "isolates_files": true, "isolates_network": true, "means": [] })
}

fn compiler_report() -> Value {
    json!({ "vectorized_loops": [], "missed_loops": [], "instructions": 420, "wide_vector_instructions": 64,
            "fma_instructions": 32, "scalar_math_calls": [], "library_bytes": 24_576 })
}

pub(super) fn place(variant: u32) -> usize {
    usize::try_from(variant % VARIANTS).unwrap_or(0)
}

/// What tokens cost, when a million of them costs so many dollars.
fn microusd(tokens: u64, dollars: f64) -> u64 {
    whole(f64::from(u32::try_from(tokens).unwrap_or(u32::MAX)) * dollars)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small and never negative")]
fn whole(number: f64) -> u64 {
    number.round() as u64
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small and never negative")]
fn whole32(number: f64) -> u32 {
    number.round() as u32
}

/// Scores of outcomes by how good a model is: the better, the fewer fail.
pub(super) fn outcome_weights(skill: f64) -> BTreeMap<&'static str, f64> {
    let bad = 1.0 - skill;
    BTreeMap::from([
        ("no_code", 0.03 * bad),
        ("not_compliant", 0.05 * bad),
        ("compile_failed", 0.45 * bad),
        ("crashed", 0.12 * bad),
        ("timed_out", 0.04 * bad),
        ("memory_exceeded", 0.02 * bad),
        ("runtime_failed", 0.05 * bad),
        ("incorrect", 0.35 * bad),
        ("correct", skill),
    ])
}
