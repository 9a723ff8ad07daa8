//! A task with everything that is known about it, and a store in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use nightshift_optimizer::agent::{
    AgentPorts, AgentStep, Agents, AgentsConfig, AnsweredCall, budget_exhausted, budget_wait,
};
use nightshift_optimizer::model::Catalog;
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::attempt::Attempt;
use nightshift_protocol::budget::{Amount, BudgetLine, Resource};
use nightshift_protocol::campaign::{ModelChoice, RunInput};
use nightshift_protocol::id::RunId;
use nightshift_protocol::model_call::ModelCallSummary;
use nightshift_protocol::plan::{Plan, PlanVersion};
use nightshift_protocol::step::{PreparedTask, StepFailure, StepInput, StepOutput};
use nightshift_protocol::task::{Target, TaskBundle, TaskGoal};
use serde_json::{Value, json};

use crate::server::{MODEL, key};

#[derive(Default)]
struct Kept {
    artifacts: BTreeMap<ArtifactHash, Vec<u8>>,
    calls: BTreeMap<(String, u32, String), ModelCallSummary>,
    purse: Purse,
    /// Names of the next operations that fail, each once.
    failing: Vec<&'static str>,
    /// The same, from the next reservation on.
    failing_once_reserved: Vec<&'static str>,
    /// What was looked for last.
    looked_for: Option<(String, u32, String)>,
    /// The answer that another process commits while the next reservation is made.
    answered_elsewhere: Option<ModelCallSummary>,
}

/// What a campaign has: no caps unless a test sets them.
#[derive(Default, Clone)]
pub(crate) struct Purse {
    pub(crate) lines: BTreeMap<Resource, BudgetLine>,
}

impl Purse {
    fn line(&mut self, resource: Resource) -> &mut BudgetLine {
        self.lines.entry(resource).or_insert(BudgetLine { resource, cap: None, used: 0, reserved: 0 })
    }

    fn reserve(&mut self, amounts: &[Amount]) -> Result<(), StepFailure> {
        for wanted in amounts {
            let line = self.line(wanted.resource);
            if line.is_exhausted_for(wanted.amount) {
                return Err(budget_exhausted(line));
            }
            if !line.fits(wanted.amount) {
                return Err(budget_wait(line));
            }
        }
        for wanted in amounts {
            self.line(wanted.resource).reserved += wanted.amount;
        }
        Ok(())
    }

    fn settle(&mut self, released: &[Amount], used: &[Amount]) {
        for back in released {
            let line = self.line(back.resource);
            line.reserved = line.reserved.checked_sub(back.amount).unwrap();
        }
        for spent in used {
            self.line(spent.resource).used += spent.amount;
        }
    }
}

/// A store in memory that can be told to fail.
#[derive(Default)]
pub(crate) struct Memory(Mutex<Kept>);

impl Memory {
    pub(crate) fn keep(&self, bytes: &[u8]) -> ArtifactHash {
        let hash = ArtifactHash::of(bytes);
        self.0.lock().unwrap().artifacts.insert(hash.clone(), bytes.to_vec());
        hash
    }

    pub(crate) fn text(&self, hash: &ArtifactHash) -> String {
        String::from_utf8(self.0.lock().unwrap().artifacts[hash].clone()).unwrap()
    }

    pub(crate) fn calls(&self) -> usize {
        self.0.lock().unwrap().calls.len()
    }

    /// Used up and set aside, of one resource.
    pub(crate) fn spent(&self, resource: Resource) -> (u64, u64) {
        let line = *self.0.lock().unwrap().purse.line(resource);
        (line.used, line.reserved)
    }

    /// Sets a cap, and what parallel work has set aside.
    pub(crate) fn cap(&self, resource: Resource, cap: u64, reserved: u64) {
        let mut kept = self.0.lock().unwrap();
        let line = kept.purse.line(resource);
        (line.cap, line.reserved) = (Some(cap), reserved);
    }

    pub(crate) fn fail_once(&self, operation: &'static str) {
        self.0.lock().unwrap().failing.push(operation);
    }

    /// Commits this answer to the question, as another process would, while the next reservation is made.
    pub(crate) fn answer_elsewhere(&self, answer: ModelCallSummary) {
        self.0.lock().unwrap().answered_elsewhere = Some(answer);
    }

    pub(crate) fn fail_once_reserved(&self, operation: &'static str) {
        self.0.lock().unwrap().failing_once_reserved.push(operation);
    }

    fn fault(&self, operation: &'static str) -> Result<(), StepFailure> {
        let mut kept = self.0.lock().unwrap();
        match kept.failing.iter().position(|failing| *failing == operation) {
            None => Ok(()),
            Some(position) => {
                kept.failing.remove(position);
                Err(StepFailure::retriable("store.failed", operation))
            }
        }
    }
}

#[async_trait]
impl AgentPorts for Memory {
    async fn get_artifact(&self, hash: &ArtifactHash) -> Result<Vec<u8>, StepFailure> {
        self.fault("get_artifact")?;
        let found = self.0.lock().unwrap().artifacts.get(hash).cloned();
        found.ok_or_else(|| StepFailure::fatal("artifact.not_found", hash.to_string()))
    }

    async fn put_artifact(&self, bytes: Vec<u8>) -> Result<ArtifactHash, StepFailure> {
        self.fault("put_artifact")?;
        Ok(self.keep(&bytes))
    }

    async fn find_call(
        &self,
        _run: &RunId,
        step_key: &str,
        turn: u32,
        request_hash: &str,
    ) -> Result<Option<ModelCallSummary>, StepFailure> {
        self.fault("find_call")?;
        let key = (step_key.to_owned(), turn, request_hash.to_owned());
        let mut kept = self.0.lock().unwrap();
        let found = kept.calls.get(&key).cloned();
        kept.looked_for = Some(key);
        Ok(found)
    }

    async fn record_call(&self, call: AnsweredCall<'_>) -> Result<(), StepFailure> {
        self.fault("record_call")?;
        assert_eq!(self.keep(&call.prompt), call.summary.prompt);
        assert_eq!(self.keep(&call.reply), call.summary.reply);
        assert_eq!(call.reasoning.as_deref().map(|reasoning| self.keep(reasoning)), call.summary.reasoning);
        let key = (call.step_key.to_owned(), call.summary.turn, call.request_hash.to_owned());
        let mut kept = self.0.lock().unwrap();
        kept.calls.insert(key, call.summary.clone());
        kept.purse.settle(&call.released, &call.used);
        Ok(())
    }

    async fn budget(&self, _run: &RunId) -> Result<Vec<BudgetLine>, StepFailure> {
        Ok(self.0.lock().unwrap().purse.lines.values().copied().collect())
    }

    async fn reserve_call(&self, estimate: &[Amount]) -> Result<(), StepFailure> {
        self.fault("reserve_call")?;
        let mut kept = self.0.lock().unwrap();
        let failing = std::mem::take(&mut kept.failing_once_reserved);
        kept.failing.extend(failing);
        if let Some(answer) = kept.answered_elsewhere.take() {
            let question = kept.looked_for.clone().unwrap();
            kept.calls.insert(question, answer);
        }
        kept.purse.reserve(estimate)
    }

    async fn settle_call(&self, released: &[Amount], used: &[Amount]) -> Result<(), StepFailure> {
        self.fault("settle_call")?;
        self.0.lock().unwrap().purse.settle(released, used);
        Ok(())
    }
}

/// A step that is carried out for one task.
pub(crate) struct Bench {
    pub(crate) memory: Memory,
    pub(crate) task: ArtifactHash,
    pub(crate) run_input: RunInput,
    run: RunId,
}

impl Bench {
    pub(crate) fn scripted(replies: &[(&str, &str)]) -> Self {
        let mut bench = Self::live();
        let script: BTreeMap<&str, &str> = replies.iter().copied().collect();
        bench.run_input.model = ModelChoice::Scripted;
        bench.run_input.scripted_replies = Some(bench.memory.keep(&serde_json::to_vec(&script).unwrap()));
        bench
    }

    pub(crate) fn live() -> Self {
        let memory = Memory::default();
        let task = memory.keep(&serde_json::to_vec(&bundle()).unwrap());
        let run_input = RunInput {
            schema: 1,
            task_name: "row_softmax".to_owned(),
            task: task.clone(),
            target: Target::Cpu,
            model: ModelChoice::Live { endpoint: "fake".to_owned(), model: MODEL.to_owned() },
            models: nightshift_protocol::models::ModelPlan::default(),
            scripted_replies: None,
            knowledge: nightshift_protocol::campaign::KnowledgeUse::default(),
            strategy: "stitch".to_owned(),
            goal: TaskGoal::default(),
            rules: nightshift_optimizer::strategy::RULES,
            sandbox_required: true,
            gates: BTreeSet::new(),
            labels: BTreeSet::new(),
            compute_capability: None,
            device_memory_bytes: None,
            torch: false,
            precision: None,
        };
        Self { memory, task, run_input, run: format!("run_{:032x}", 7).parse().unwrap() }
    }

    pub(crate) async fn carry_out(
        &self,
        agents: &Agents,
        step_key: &str,
        input: &StepInput,
    ) -> Result<StepOutput, StepFailure> {
        let step = AgentStep { run: &self.run, step_key, input, run_input: &self.run_input };
        Box::pin(agents.carry_out(&self.memory, step)).await
    }
}

pub(crate) fn config(catalog: Catalog) -> AgentsConfig {
    AgentsConfig::new(catalog, Arc::new(key)).unwrap()
}

pub(crate) fn agents(catalog: Catalog) -> Agents {
    Agents::new(config(catalog))
}

pub(crate) fn of_json<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

pub(crate) fn bundle() -> TaskBundle {
    of_json(json!({
        "spec": {
            "schema": 1,
            "name": "row_softmax",
            "title": "Softmax of rows",
            "description": "y = softmax(x) over the last extent.",
            "target": "cpu",
            "reference": "reference.cpp",
            "dims": {"rows": 64, "cols": 1000},
            "inputs": [{"name": "x", "dtype": "f32", "shape": ["rows", "cols"]}],
            "params": [{"name": "bias", "dtype": "f32", "shape": [1000]}],
            "outputs": [{"name": "y", "dtype": "f32", "shape": ["rows", "cols"]}],
            "tolerance": {"atol": 1e-6, "rtol": 1e-5},
            "operators": [{"name": "softmax", "class": "softmax"}],
            "variants": [{"name": "narrow", "dims": {"cols": 3}}],
        },
        "reference_source": "#include \"nightshift.h\"\n// the reference\n",
    }))
}

fn machine() -> Value {
    json!({
        "host": "h", "os": "Linux", "processor": "Fast CPU 9000", "cores": 2, "features": ["avx2", "fma"],
        "memory_bytes": 8_589_934_592_u64, "last_level_cache_bytes": 1_048_576, "cpp_toolchain": null,
        "sandbox": {"means": [], "isolates_files": true, "isolates_network": true},
    })
}

fn build(library: bool) -> Value {
    let hash = ArtifactHash::of(b"library");
    json!({
        "library": library.then_some(&hash), "end": {"kind": "finished"},
        "messages": [{"file": "candidate.cpp", "line": 2, "column": 5, "severity": "error", "message": "expected ';'"}],
        "log": hash, "toolchain": {"program": "c++", "path": "/usr/bin/c++", "version": "compiler 14.2",
        "flags": ["-O3", "-march=native"], "fingerprint": "f"}, "build_key": "k", "cached": false, "duration_ms": 900,
        "report": {"vectorized_loops": [{"line": 3, "message": "vectorized with 32 bytes"}],
            "missed_loops": [{"line": 9, "message": "control flow"}], "instructions": 321,
            "wide_vector_instructions": 120, "fma_instructions": 7, "scalar_math_calls": ["expf"],
            "library_bytes": 20_000},
        "sandbox": {"means": [], "isolates_files": true, "isolates_network": true},
    })
}

pub(crate) fn prepared() -> PreparedTask {
    let hash = ArtifactHash::of(b"library");
    of_json(json!({
        "reference": build(true), "reference_library": hash, "truth_library": hash,
        "baseline_median_ns": 12_345_678.0, "reference_normalized_error": 0.01,
        "warnings": [{"code": "w", "severity": "note", "message": "The rows are short."}], "machine": machine(),
    }))
}

pub(crate) fn plan() -> Plan {
    of_json(json!({
        "summary": "The exponential takes the time.",
        "subtasks": [
            {"title": "Fuse the passes", "scope": ["softmax"], "fusion_boundary": "one pass over each row",
             "contract": {"inputs": [{"name": "x", "dtype": "f32", "shape": ["rows", "cols"], "layout": "row_major"}],
                          "outputs": []},
             "methods": ["vectorize the exponential"], "expected_bottleneck": "compute", "risk": "long rows",
             "target_speedup": 2.5},
            {"title": "Tune the tail", "scope": ["softmax"], "fusion_boundary": "none"},
        ],
        "correctness_risks": ["overflow of the exponential"],
    }))
}

pub(crate) fn plan_version() -> PlanVersion {
    PlanVersion { version: 1, reason: None, plan: plan(), calls: Vec::new() }
}

fn measurement() -> Value {
    json!({
        "speedup": {"estimate": 1.834, "low": 1.801, "high": 1.866}, "confidence": 0.95,
        "baseline_median_ns": 12_345_678.0, "candidate_median_ns": 6_700_000.0, "baseline_cv": 0.01,
        "candidate_cv": 0.01, "baseline_samples_ns": [1], "candidate_samples_ns": [1], "outside_to_inside_time": 1.01,
        "achieved_flops_per_s": 3.2e9, "achieved_bytes_per_s": 7.5e9, "precise": true, "baseline": "reference",
        "sandbox": {"means": [], "isolates_files": true, "isolates_network": true}, "machine": machine(),
    })
}

/// An attempt of subtask 1 with evidence of every kind; it compiled unless said otherwise.
pub(crate) fn attempt(memory: &Memory, outcome: &str, source: &str) -> Attempt {
    let source = memory.keep(source.as_bytes());
    let correct = outcome.starts_with("correct");
    let compiled = outcome != "compile_failed";
    of_json(json!({
        "number": 3, "plan_version": 1, "subtask": 1, "stage": "optimize", "parent": 2, "outcome": outcome,
        "source": source,
        "verdict": {"compiled": "pass", "numerically_correct": "pass", "contract_compliant": "pass", "fast": "pass",
                    "custom_kernel_time_share": null},
        "findings": [{"code": "f", "severity": "warning", "message": "It looks odd.", "line": 4}],
        "build": build(compiled),
        "check": compiled.then(|| json!({
            "end": if outcome == "crashed" {
                json!({"kind": "crashed", "signal": 11, "signal_name": "SIGSEGV"})
            } else {
                json!({"kind": "finished"})
            },
            "cases": [{"shape": "narrow", "inputs": "declared", "passed": correct, "wrong_elements": 3, "elements": 9,
                "worst": {"tensor": "y", "index": [1, 2], "candidate": null, "truth": 0.25, "normalized_error": correct.then_some(0.02)},
                "reference_normalized_error": 0.01, "allowed_error": 0.64}],
            "error_histogram": [], "deterministic": correct, "findings": [], "printed": "segfault soon ```\n",
        })),
        "measurement": correct.then(measurement), "confirmation": null,
        "profile": correct.then(|| json!({
            "tier": "compiler_report+analytic_roofline", "missing": ["ncu: no GPU"], "arithmetic_intensity": 0.5,
            "peak_flops_per_s": 4e10, "peak_bytes_per_s": 1e10, "roofline_share": 0.75, "roofline_bound": "memory",
            "compiler": build(true)["report"],
        })),
        "diagnosis": correct.then(|| json!({
            "bound": "compute", "critical_issue": "expf is scalar.", "modification": "Inline a polynomial.",
            "metrics": [], "expected_gain": 1.5, "route": "optimize",
        })),
        "rubric": null, "reward": null, "calls": [], "route": null,
    }))
}
