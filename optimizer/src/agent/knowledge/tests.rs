use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use async_trait::async_trait;
use minijinja::Environment;
use nightshift_engine::store::{BoundFrom, LessonRecord, NoteRecord, RetrievalRecord, ScoreRecord};
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::attempt::Bound;
use nightshift_protocol::budget::Amount;
use nightshift_protocol::campaign::{KnowledgeUse, RunInput};
use nightshift_protocol::id::RunId;
use nightshift_protocol::model_call::ModelCallSummary;
use nightshift_protocol::step::{PreparedTask, StepInput};
use nightshift_protocol::task::TaskSpec;
use nightshift_protocol::time::TimestampMs;
use serde_json::{Value, json};

use super::*;
use crate::agent::AnsweredCall;
use crate::knowledge::note;
use crate::rollout::guard::LESSONS_HEADING;

/// A store that holds what a test puts into it, and counts searches.
#[derive(Default)]
struct Shelf {
    notes: Mutex<Vec<NoteRecord>>,
    lessons: Mutex<Vec<LessonRecord>>,
    pinned: Mutex<BTreeMap<String, Value>>,
    searches: Mutex<u32>,
}

#[async_trait]
impl KnowledgeStore for Shelf {
    async fn replace_notes(&self, _: &str, notes: Vec<NoteRecord>, _: TimestampMs) -> Result<u64, StoreError> {
        *self.notes.lock().unwrap() = notes;
        Ok(1)
    }

    async fn search_notes(&self, _: &[String], _: u32) -> Result<Vec<NoteRecord>, StoreError> {
        *self.searches.lock().unwrap() += 1;
        Ok(self.notes.lock().unwrap().clone())
    }

    async fn record_lesson(&self, lesson: LessonRecord) -> Result<(), StoreError> {
        self.lessons.lock().unwrap().push(lesson);
        Ok(())
    }

    async fn find_lessons(&self, query: LessonQuery) -> Result<Vec<LessonRecord>, StoreError> {
        let all = self.lessons.lock().unwrap().clone();
        Ok(all.into_iter().filter(|lesson| query.except_run.as_ref() != Some(&lesson.run)).collect())
    }

    async fn pin_retrieval(&self, _: &RunId, key: &str, items: Value, _: TimestampMs) -> Result<Value, StoreError> {
        Ok(self.pinned.lock().unwrap().entry(key.to_owned()).or_insert(items).clone())
    }

    async fn find_retrieval(&self, _: &RunId, step_key: &str) -> Result<Option<Value>, StoreError> {
        Ok(self.pinned.lock().unwrap().get(step_key).cloned())
    }

    async fn list_retrievals(
        &self,
        _: &RunId,
        _: Option<u32>,
        _: Option<&str>,
        _: u32,
    ) -> Result<Vec<RetrievalRecord>, StoreError> {
        Ok(Vec::new())
    }

    async fn put_scores(&self, _: Vec<ScoreRecord>) -> Result<(), StoreError> {
        Ok(())
    }

    async fn list_scores(&self, _: &RunId) -> Result<Vec<ScoreRecord>, StoreError> {
        Ok(Vec::new())
    }
}

/// Nothing but the shelf.
struct Ports(Shelf);

#[async_trait]
impl AgentPorts for Ports {
    async fn get_artifact(&self, hash: &ArtifactHash) -> Result<Vec<u8>, StepFailure> {
        Err(StepFailure::fatal("artifact.not_found", hash.to_string()))
    }

    async fn put_artifact(&self, bytes: Vec<u8>) -> Result<ArtifactHash, StepFailure> {
        Ok(ArtifactHash::of(&bytes))
    }

    async fn find_call(&self, _: &RunId, _: &str, _: u32, _: &str) -> Result<Option<ModelCallSummary>, StepFailure> {
        Ok(None)
    }

    async fn record_call(&self, _: AnsweredCall<'_>) -> Result<(), StepFailure> {
        Ok(())
    }

    async fn reserve_call(&self, _: &[Amount]) -> Result<(), StepFailure> {
        Ok(())
    }

    async fn settle_call(&self, _: &[Amount], _: &[Amount]) -> Result<(), StepFailure> {
        Ok(())
    }

    fn knowledge(&self) -> Option<(&dyn KnowledgeStore, TimestampMs)> {
        Some((&self.0, TimestampMs(7)))
    }
}

fn of_json<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn run(number: u32) -> RunId {
    format!("run_{number:032x}").parse().unwrap()
}

fn spec() -> TaskSpec {
    of_json(json!({
        "schema": 1, "name": "t", "title": "Softmax", "description": "", "target": "cpu", "reference": "r.cpp",
        "inputs": [], "outputs": [], "tolerance": { "atol": 1e-6, "rtol": 1e-5 },
        "operators": [{ "name": "rows", "class": "softmax" }],
    }))
}

fn prepared() -> PreparedTask {
    let sandbox = serde_json::to_value(nightshift_protocol::machine::SandboxReport::default()).unwrap();
    let hash = ArtifactHash::of(b"x");
    let toolchain = json!({ "program": "c++", "path": "", "version": "", "flags": [], "fingerprint": "" });
    of_json(json!({
        "reference": {
            "library": hash, "end": serde_json::to_value(nightshift_protocol::verdict::ProcessEnd::Finished).unwrap(), "messages": [], "log": hash, "toolchain": toolchain,
            "build_key": "", "cached": false, "duration_ms": 1,
            "report": serde_json::to_value(nightshift_protocol::measurement::CompilerReport::default()).unwrap(),
            "sandbox": sandbox,
        },
        "reference_library": hash, "truth_library": hash, "baseline_median_ns": 1.0,
        "reference_normalized_error": 0.0, "warnings": [],
        "machine": {
            "host": "h", "os": "o", "processor": "here", "cores": 1, "features": [], "memory_bytes": 1,
            "last_level_cache_bytes": null, "cpp_toolchain": null, "gpus": [], "sandbox": sandbox,
        },
    }))
}

fn run_input(knowledge: KnowledgeUse) -> RunInput {
    let mut input: RunInput = of_json(json!({
        "schema": 1, "task_name": "t", "task": ArtifactHash::of(b"t"), "target": "cpu",
        "model": { "provider": "scripted" }, "strategy": "stitch", "goal": {}, "sandbox_required": false,
    }));
    input.knowledge = knowledge;
    input
}

fn note(id: &str) -> NoteRecord {
    let [mut note]: [NoteRecord; 1] =
        note::parse(note::USER, id, "---\ntitle: T\nbound: memory\n---\nText.").unwrap().try_into().unwrap();
    note.title = id.to_owned();
    note
}

fn lesson(number: u32) -> LessonRecord {
    LessonRecord {
        run: run(number),
        attempt: 2,
        task: "other".to_owned(),
        operator_class: "softmax".to_owned(),
        bound: "memory".to_owned(),
        bound_from: BoundFrom::Diagnosis,
        device: "here".to_owned(),
        change: "kept the row in registers".to_owned(),
        gain_ppm: 1_500_000,
        certain: true,
        at: TimestampMs(1),
    }
}

async fn ask(ports: &Ports, usage: KnowledgeUse, step_key: &str) -> Retrieved {
    let (input, prepared, spec) = (run_input(usage), prepared(), spec());
    let of_step = StepInput::PrepareTask { task: ArtifactHash::of(b"t") };
    let run = run(1);
    let step = AgentStep { run: &run, step_key, input: &of_step, run_input: &input };
    let question = Question { spec: &spec, prepared: &prepared, subtask: None, bound: Some(Bound::Memory), said: "" };
    retrieve(ports, &step, question).await.unwrap()
}

#[tokio::test]
async fn a_step_that_is_tried_again_is_given_what_its_first_try_was_given() {
    let ports = Ports(Shelf::default());
    ports.0.replace_notes("", vec![note("first.md")], TimestampMs(1)).await.unwrap();
    ports.0.record_lesson(lesson(2)).await.unwrap();
    let first = ask(&ports, KnowledgeUse::default(), "plan").await;
    assert_eq!((first.notes.len(), first.lessons.len()), (1, 1));
    ports.0.replace_notes("", vec![note("second.md")], TimestampMs(1)).await.unwrap();
    ports.0.record_lesson(lesson(3)).await.unwrap();
    assert_eq!(ask(&ports, KnowledgeUse::default(), "plan").await, first);
    assert_eq!(*ports.0.searches.lock().unwrap(), 1, "nothing is searched for again");
    assert_eq!(ask(&ports, KnowledgeUse::default(), "replan1").await.notes[0].title, "second.md");
}

#[tokio::test]
async fn a_run_is_not_offered_its_own_lessons() {
    let ports = Ports(Shelf::default());
    ports.0.record_lesson(lesson(1)).await.unwrap();
    assert!(ask(&ports, KnowledgeUse::default(), "plan").await.lessons.is_empty());
}

#[tokio::test]
async fn a_campaign_may_do_without_either() {
    let ports = Ports(Shelf::default());
    ports.0.replace_notes("", vec![note("first.md")], TimestampMs(1)).await.unwrap();
    ports.0.record_lesson(lesson(2)).await.unwrap();
    let seen: BTreeSet<(bool, bool)> = [
        ask(&ports, KnowledgeUse { notes: true, lessons: false }, "a").await,
        ask(&ports, KnowledgeUse { notes: false, lessons: true }, "b").await,
        ask(&ports, KnowledgeUse::NONE, "c").await,
    ]
    .map(|given| (given.notes.is_empty(), given.lessons.is_empty()))
    .into();
    assert_eq!(seen, BTreeSet::from([(false, true), (true, false), (true, true)]));
}

#[tokio::test]
async fn notes_and_lessons_are_shown_under_headings_that_the_guard_of_training_rows_knows() {
    let ports = Ports(Shelf::default());
    ports.0.replace_notes("", vec![note("first.md")], TimestampMs(1)).await.unwrap();
    ports.0.record_lesson(lesson(2)).await.unwrap();
    let given = ask(&ports, KnowledgeUse::default(), "plan").await;
    let template = include_str!("../../../../prompts/shared/knowledge.md");
    let render = |given: &Retrieved| {
        let values = json!({ "knowledge": given });
        Environment::new().render_str(template, minijinja::value::Serde(values)).unwrap()
    };
    let text = render(&given);
    assert!(text.contains(LESSONS_HEADING) && text.contains("first.md"), "{text}");
    assert!(text.contains("1.50x") && text.contains("kept the row in registers"), "{text}");
    assert_eq!(render(&Retrieved::default()).trim(), "");
}

/// A correct attempt that ran so many times faster than the reference, surely.
fn timed(stage: &str, speedup: f64, modification: Option<&str>) -> nightshift_protocol::attempt::Attempt {
    let sandbox = serde_json::to_value(nightshift_protocol::machine::SandboxReport::default()).unwrap();
    let mut attempt: nightshift_protocol::attempt::Attempt = of_json(json!({
        "number": 2, "plan_version": 1, "subtask": 1, "stage": stage, "outcome": "correct_faster",
        "verdict": serde_json::to_value(nightshift_protocol::verdict::Verdict::default()).unwrap(),
        "findings": [], "calls": [],
        "measurement": {
            "speedup": { "estimate": speedup, "low": speedup * 0.98, "high": speedup * 1.02 }, "confidence": 0.95,
            "baseline_median_ns": 1.0, "candidate_median_ns": 1.0, "baseline_cv": 0.0, "candidate_cv": 0.0,
            "baseline_samples_ns": [], "candidate_samples_ns": [], "outside_to_inside_time": 1.0,
            "achieved_flops_per_s": null, "achieved_bytes_per_s": null, "precise": true, "baseline": "reference",
            "sandbox": sandbox, "machine": serde_json::to_value(prepared().machine).unwrap(),
        },
    }));
    attempt.modification = modification.map(|text| of_json(json!({ "text": text, "from": 1, "diagnosed_on": 1 })));
    attempt
}

/// What an attempt teaches after a program of this speedup: the change, its gain, and whether it is sure.
fn taught(attempt: &nightshift_protocol::attempt::Attempt, before: Option<f64>) -> Option<(String, u64, bool)> {
    let plan = of_json(json!({
        "version": 1, "calls": [],
        "plan": {
            "summary": "s",
            "subtasks": [{
                "title": "rows", "scope": ["rows"], "fusion_boundary": "all", "methods": ["keep the row"],
                "expected_bottleneck": "memory",
            }],
        },
    }));
    let interval = |estimate: f64| nightshift_protocol::measurement::Interval {
        estimate,
        low: estimate * 0.98,
        high: estimate * 1.02,
    };
    let spec = spec();
    let modification = None;
    let parent_speedup = before.map(interval);
    let lesson = Lesson { spec: &spec, plan: &plan, attempt, modification, parent_speedup, parent_bound: None };
    let record = lesson.record(&run(1), TimestampMs(1))?;
    assert_eq!((record.operator_class.as_str(), record.bound.as_str()), ("softmax", "memory"));
    assert_eq!(record.bound_from, BoundFrom::Plan, "no profile shows it: the plan expected it");
    let diagnosed = Lesson { parent_bound: Some(Bound::Latency), ..lesson }.record(&run(1), TimestampMs(1))?;
    assert_eq!(
        (diagnosed.bound.as_str(), diagnosed.bound_from),
        ("latency", BoundFrom::Diagnosis),
        "evidence counts more"
    );
    assert_eq!((record.device.as_str(), record.task.as_str()), ("here", "t"));
    Some((record.change, record.gain_ppm, record.certain))
}

#[test]
fn an_attempt_teaches_what_its_change_brought() {
    let first = "first program, against the reference: keep the row".to_owned();
    assert_eq!(taught(&timed("draft", 2.0, None), None), Some((first.clone(), 2_000_000, true)));
    assert_eq!(
        taught(&timed("repair_correctness", 2.0, None), None),
        Some((first, 2_000_000, true)),
        "once it is right"
    );
    let tiles = |speedup| timed("optimize", speedup, Some("tiles"));
    assert_eq!(taught(&tiles(3.0), Some(2.0)), Some(("tiles".to_owned(), 1_500_000, true)));
    assert_eq!(taught(&tiles(1.0), Some(2.0)), Some(("tiles".to_owned(), 500_000, true)), "losses teach, too");
    assert_eq!(taught(&tiles(2.01), Some(2.0)), Some(("tiles".to_owned(), 1_005_000, false)), "within the noise");
    assert_eq!(taught(&tiles(2.0), None), None, "nothing to compare with");
    assert_eq!(taught(&timed("optimize", 2.0, None), Some(1.0)), None, "the change is not described");
    let mut wrong = tiles(3.0);
    wrong.outcome = nightshift_protocol::attempt::AttemptOutcome::Incorrect;
    assert_eq!(taught(&wrong, Some(2.0)), None);
}
