//! Renders every prompt on recorded steps, for `nightshift prompts check` and the snapshot tests.
//!
//! The steps run as in a campaign, with a scripted model whose replies cannot be used. So the same code as in a
//! campaign renders every prompt and every repair request. Nothing is sent and nothing is stored.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use nightshift_engine::store::KnowledgeStore;
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::budget::Amount;
use nightshift_protocol::campaign::{ModelChoice, RunInput};
use nightshift_protocol::id::RunId;
use nightshift_protocol::model_call::ModelCallSummary;
use nightshift_protocol::models::ModelPlan;
use nightshift_protocol::step::{StepFailure, StepInput};
use nightshift_protocol::time::TimestampMs;
use rust_embed::RustEmbed;
use serde::Deserialize;

use self::shelf::{RecordedRetrieval, Shelf};
use super::conversation::call_name;
use super::{AgentPorts, AgentStep, Agents, AgentsConfig, AnsweredCall};
use crate::model::Catalog;
use crate::prompt::{PromptProblem, Prompts, place_of};

mod shelf;

/// Every reply of the model: no program, no plan, no diagnosis, no rating.
const UNUSABLE: &str = "I would rather talk about something else.";
/// Number of turns with this reply. A plan has two tries of two turns.
const TURNS: u32 = 4;
/// The run of a rehearsal. Nothing is stored for it.
const NO_RUN: &str = "run_00000000000000000000000000000000";
/// Codes of failures that a prompt causes.
const OF_PROMPTS: [&str; 2] = ["config.prompt_template", "task.prompt_too_large"];

#[derive(RustEmbed)]
#[folder = "fixtures/prompts"]
struct Recorded;

/// A step as a campaign recorded it, with the artifacts that its prompt is made from.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Recording {
    step_key: String,
    run_input: RunInput,
    input: StepInput,
    artifacts: BTreeMap<ArtifactHash, String>,
    /// Notes and lessons that it was given; none where the campaign did without.
    #[serde(default)]
    retrieved: Option<RecordedRetrieval>,
}

/// The prompts of one recorded step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RehearsedStep {
    /// Name of the recording.
    pub name: String,
    /// Content hash of the templates.
    pub version: String,
    /// System and user part, and the request for a repair after a reply that cannot be used.
    pub transcript: String,
}

/// The result of a rehearsal.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rehearsal {
    /// The rendered steps, in the order of their recordings' names.
    pub steps: Vec<RehearsedStep>,
    /// What is wrong, each problem once.
    pub problems: Vec<PromptProblem>,
}

/// Renders every prompt on the recorded steps that ship with the program.
pub async fn rehearse(prompts: Prompts) -> Result<Rehearsal, StepFailure> {
    let keys = Arc::new(|_: &str| None);
    let config = AgentsConfig { prompts: prompts.watched(), ..AgentsConfig::new(Catalog::default(), keys)? };
    let agents = Agents::new(config);
    let mut rehearsal = Rehearsal::default();
    let mut files: Vec<String> = Recorded::iter().map(std::borrow::Cow::into_owned).collect();
    files.sort();
    for file in &files {
        let Some(name) = file.strip_suffix(".json") else { continue };
        let recording = Recorded::get(file).ok_or("it is gone".to_owned());
        let recording = recording
            .and_then(|data| serde_json::from_slice::<Recording>(&data.data).map_err(|error| error.to_string()));
        match recording {
            Err(message) => rehearsal.problems.push(unusable(name, message)),
            Ok(recording) => match one(&agents, name, recording).await {
                Ok(step) => rehearsal.steps.push(step),
                Err(problem) => rehearsal.problems.push(problem),
            },
        }
    }
    // A template that cannot be rendered also counts as unused. It is reported only once.
    let told: Vec<String> = rehearsal.problems.iter().map(|problem| problem.template.clone()).collect();
    let further = agents.config.prompts.problems().into_iter().filter(|found| !told.contains(&found.template));
    rehearsal.problems.extend(further);
    rehearsal.problems.sort();
    rehearsal.problems.dedup();
    Ok(rehearsal)
}

async fn one(agents: &Agents, name: &str, recording: Recording) -> Result<RehearsedStep, PromptProblem> {
    let Recording { step_key, mut run_input, input, artifacts, retrieved } = recording;
    let script: BTreeMap<String, &str> = (1..=TURNS).map(|turn| (call_name(&step_key, turn), UNUSABLE)).collect();
    let script = serde_json::to_vec(&script).unwrap_or_default();
    let script_hash = ArtifactHash::of(&script);
    let shelf = retrieved.map(Shelf::of).transpose().map_err(|message| unusable(name, message))?;
    let ports = Stage { shelf, ..Stage::default() };
    {
        let mut kept = ports.artifacts.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend(artifacts.into_iter().map(|(hash, text)| (hash, text.into_bytes())));
        kept.insert(script_hash.clone(), script);
    }
    run_input.model = ModelChoice::Scripted;
    run_input.models = ModelPlan::default();
    run_input.scripted_replies = Some(script_hash);
    let run: RunId = NO_RUN.parse().map_err(|_| unusable(name, "no run can be named".to_owned()))?;
    let step = AgentStep { run: &run, step_key: &step_key, input: &input, run_input: &run_input };
    let done = agents.carry_out(&ports, step).await;
    let asked = ports.asked.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Err(failure) = done
        && (asked.is_empty() || OF_PROMPTS.contains(&failure.code.as_str()))
    {
        let (template, line) = match place_of(&failure.message) {
            Some((template, line)) => (template, Some(line)),
            None => (name.to_owned(), None),
        };
        return Err(PromptProblem { template, line, message: format!("{} (with `{name}`)", failure.message) });
    }
    // The second turn holds the first one, the reply and the request for a repair.
    let shown = asked.get(1).or_else(|| asked.first());
    let (version, transcript) = shown.cloned().ok_or_else(|| unusable(name, "no prompt was made of it".to_owned()))?;
    Ok(RehearsedStep { name: name.to_owned(), version, transcript })
}

/// Returns the problem of a recording that cannot be used.
fn unusable(recording: &str, message: String) -> PromptProblem {
    PromptProblem { template: recording.to_owned(), line: None, message }
}

/// Holds artifacts, and the version and transcript of each turn.
#[derive(Default)]
struct Stage {
    artifacts: Mutex<BTreeMap<ArtifactHash, Vec<u8>>>,
    asked: Mutex<Vec<(String, String)>>,
    shelf: Option<Shelf>,
}

#[async_trait]
impl AgentPorts for Stage {
    async fn get_artifact(&self, hash: &ArtifactHash) -> Result<Vec<u8>, StepFailure> {
        let found = self.artifacts.lock().unwrap_or_else(PoisonError::into_inner).get(hash).cloned();
        found.ok_or_else(|| StepFailure::fatal("artifact.not_found", format!("the recording lacks {hash}")))
    }

    async fn put_artifact(&self, bytes: Vec<u8>) -> Result<ArtifactHash, StepFailure> {
        let hash = ArtifactHash::of(&bytes);
        self.artifacts.lock().unwrap_or_else(PoisonError::into_inner).insert(hash.clone(), bytes);
        Ok(hash)
    }

    async fn find_call(
        &self,
        _run: &RunId,
        _step_key: &str,
        _turn: u32,
        _request_hash: &str,
    ) -> Result<Option<ModelCallSummary>, StepFailure> {
        Ok(None)
    }

    async fn record_call(&self, call: AnsweredCall<'_>) -> Result<(), StepFailure> {
        let transcript = String::from_utf8_lossy(&call.prompt).into_owned();
        let asked = (call.summary.prompt_version.clone(), transcript);
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).push(asked);
        Ok(())
    }

    async fn reserve_call(&self, _estimate: &[Amount]) -> Result<(), StepFailure> {
        Ok(())
    }

    async fn settle_call(&self, _released: &[Amount], _used: &[Amount]) -> Result<(), StepFailure> {
        Ok(())
    }

    fn knowledge(&self) -> Option<(&dyn KnowledgeStore, TimestampMs)> {
        self.shelf.as_ref().map(|shelf| (shelf as &dyn KnowledgeStore, TimestampMs(0)))
    }
}
