//! `POST /campaigns`: the whole request is validated before anything is stored.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use nightshift_engine::store::{NewCampaign, NewRun, StoreError};
use nightshift_optimizer::strategy::{
    MAX_ATTEMPTS, MAX_CANDIDATES_PER_ROUND, MAX_FIX_TURNS, MAX_TURNS, initial_digest, is_known, known_names,
    min_candidates, with_candidates,
};
use nightshift_optimizer::task_file::{FORM_UNVERIFIED, run_input, unverified_form};
use nightshift_protocol::api::{CampaignCreated, CreateCampaign};
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::campaign::{CAMPAIGN_SCHEMA, CampaignSpec, CampaignTask, RunInput};
use nightshift_protocol::id::{CampaignId, RunId};
use nightshift_protocol::task::{TASK_SCHEMA, TaskBundle, TaskGoal};
use nightshift_protocol::tunable::MAX_CONFIGURATIONS;
use serde_json::json;

use crate::agents::AgentExecutor;
use crate::api::examine_limits::{examine_budget, examine_schedule, examine_weight};
use crate::api::examine_models;
use crate::api::idempotency::{digest, idempotency_key};
use crate::api::run_control::examine_priority;
use crate::driving::Driving;
use crate::error::ApiFailure;
use crate::extract::Body;
use crate::shared::Shared;

/// Maximum number of tasks per campaign.
pub const MAX_TASKS: usize = 1_000;
/// Maximum length of a campaign's name.
const MAX_CAMPAIGN_NAME_CHARS: usize = 200;
/// Maximum length of a task's name.
const MAX_TASK_NAME_CHARS: usize = 64;
/// Maximum size of a task bundle, in bytes.
const MAX_BUNDLE_BYTES: usize = 4 * 1024 * 1024;

/// Creates a campaign with its runs.
pub(crate) async fn create(
    State(shared): State<Arc<Shared>>,
    State(driving): State<Arc<Driving>>,
    State(agents): State<Arc<dyn AgentExecutor>>,
    headers: HeaderMap,
    Body(request): Body<CreateCampaign>,
) -> Result<(StatusCode, Json<CampaignCreated>), ApiFailure> {
    let key = idempotency_key(&headers)?;
    examine(&request.spec)?;
    examine_models::known(&request.spec, &*agents)?;
    let mut runs = Vec::with_capacity(request.spec.tasks.len());
    for task in &request.spec.tasks {
        let input = accept_task(&shared, &request.spec, task).await?;
        runs.push(NewRun {
            id: RunId::from_uuid(shared.new_uuid()),
            digest: stored(&initial_digest(&input))?,
            input: stored(&input)?,
        });
    }
    let idempotency = match key {
        None => None,
        Some(key) => Some((key, digest(&request)?)),
    };
    let new = NewCampaign {
        id: CampaignId::from_uuid(shared.new_uuid()),
        name: request.spec.name.clone(),
        spec: stored(&request.spec)?,
        at: shared.clock.now(),
        idempotency,
        budget: request.spec.budget,
        schedule: request.spec.schedule.clone(),
        priority: request.spec.priority,
        weight: request.spec.weight,
        // The owner needs no search for runs without an owner.
        owner: driving.server_lease.current(),
        runs,
    };
    let mut result = shared.store.campaigns.create_campaign(new.clone()).await;
    // This server was declared dead and does not know it yet. The first server that looks acquires its runs.
    if matches!(&result, Err(StoreError::NotFound { noun: "server", .. })) {
        result = shared.store.campaigns.create_campaign(NewCampaign { owner: None, ..new }).await;
    }
    shared.store_health.note_error(&result);
    let created = result?;
    if !created.existed {
        tracing::info!(campaign.id = %created.id, campaign.runs = created.runs.len(), "a campaign was created");
    }
    let status = if created.existed { StatusCode::OK } else { StatusCode::CREATED };
    Ok((status, Json(CampaignCreated { campaign: created.id, runs: created.runs, existed: created.existed })))
}

/// Validates the request without the bundles of the tasks.
fn examine(spec: &CampaignSpec) -> Result<(), ApiFailure> {
    let invalid = |code: &str, message: String| Err(ApiFailure::bad(code, message));
    if spec.schema != CAMPAIGN_SCHEMA {
        return invalid(
            "campaign.unsupported_schema",
            format!("schema {} of a campaign is not known: this server reads schema {CAMPAIGN_SCHEMA}", spec.schema),
        );
    }
    if !(1..=MAX_CAMPAIGN_NAME_CHARS).contains(&spec.name.trim().chars().count())
        || spec.name.chars().any(char::is_control)
    {
        return invalid(
            "campaign.invalid_name",
            format!("a campaign's name has 1 to {MAX_CAMPAIGN_NAME_CHARS} characters and no control characters"),
        );
    }
    if !is_known(&spec.strategy) {
        return invalid(
            "campaign.unknown_strategy",
            format!("the strategy `{}` is not known: this server has {}", spec.strategy, known_names()),
        );
    }
    if !(1..=MAX_TASKS).contains(&spec.tasks.len()) {
        return invalid(
            "campaign.task_count",
            format!("a campaign has 1 to {MAX_TASKS} tasks, not {}", spec.tasks.len()),
        );
    }
    examine_models::well_formed(spec)?;
    examine_goal("the campaign", &spec.goal)?;
    let fewest = min_candidates(&spec.strategy);
    if spec.goal.candidates_per_round.is_some_and(|candidates| candidates < fewest) {
        return invalid(
            "campaign.invalid_goal",
            format!(
                "the goal of the campaign: `candidates_per_round` must be from {fewest} to {MAX_CANDIDATES_PER_ROUND} for \
                 the strategy `{}`, whose candidates are compared",
                spec.strategy
            ),
        );
    }
    let takers = with_candidates();
    if spec.goal.candidates_per_round.is_some() && !takers.contains(&spec.strategy.as_str()) {
        return invalid(
            "campaign.invalid_goal",
            format!(
                "the goal of the campaign: `candidates_per_round` belongs to the strategies {}, and this one is `{}`",
                takers.join(" and "),
                spec.strategy
            ),
        );
    }
    examine_budget(&spec.budget)?;
    if let Some(schedule) = &spec.schedule {
        examine_schedule(schedule)?;
    }
    examine_priority(spec.priority)?;
    examine_weight(spec.weight)?;
    let mut names = BTreeSet::new();
    for task in &spec.tasks {
        let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
        if !(1..=MAX_TASK_NAME_CHARS).contains(&task.name.chars().count()) || !task.name.chars().all(fits) {
            return invalid(
                "campaign.invalid_task_name",
                format!(
                    "`{}` is no name of a task: 1 to {MAX_TASK_NAME_CHARS} lower-case letters, digits, `-` and `_`",
                    task.name.chars().take(MAX_TASK_NAME_CHARS).collect::<String>()
                ),
            );
        }
        if !names.insert(task.name.as_str()) {
            return invalid("campaign.duplicate_task", format!("the task `{}` is named twice", task.name));
        }
    }
    Ok(())
}

fn examine_goal(whose: &str, goal: &TaskGoal) -> Result<(), ApiFailure> {
    let invalid =
        |message: String| Err(ApiFailure::bad("campaign.invalid_goal", format!("the goal of {whose}: {message}")));
    if goal.target_speedup.is_some_and(|target| !target.is_finite() || target <= 0.0) {
        return invalid("`target_speedup` must be above 0".to_owned());
    }
    if goal.max_attempts.is_some_and(|attempts| !(1..=MAX_ATTEMPTS).contains(&attempts)) {
        return invalid(format!("`max_attempts` must be from 1 to {MAX_ATTEMPTS}"));
    }
    if goal.candidates_per_round.is_some_and(|candidates| !(1..=MAX_CANDIDATES_PER_ROUND).contains(&candidates)) {
        return invalid(format!("`candidates_per_round` must be from 1 to {MAX_CANDIDATES_PER_ROUND}"));
    }
    if goal.max_fix_turns.is_some_and(|turns| turns > MAX_FIX_TURNS) {
        return invalid(format!("`max_fix_turns` must be from 0 to {MAX_FIX_TURNS}"));
    }
    if goal.max_turns.is_some_and(|turns| !(1..=MAX_TURNS).contains(&turns)) {
        return invalid(format!("`max_turns` must be from 1 to {MAX_TURNS}"));
    }
    if goal.max_variants.is_some_and(|variants| variants > MAX_CONFIGURATIONS) {
        return invalid(format!("`max_variants` must be from 0 to {MAX_CONFIGURATIONS}"));
    }
    if goal.min_gain.is_some_and(|gain| !gain.is_finite() || gain < 0.0) {
        return invalid("`min_gain` must not be negative".to_owned());
    }
    Ok(())
}

/// Returns the input of a task's run. Checks that all artifacts of the run exist and can be read.
async fn accept_task(shared: &Shared, spec: &CampaignSpec, task: &CampaignTask) -> Result<RunInput, ApiFailure> {
    let bytes = artifact(shared, task, "bundle", &task.bundle).await?;
    if bytes.len() > MAX_BUNDLE_BYTES {
        return Err(refused(task, "task.too_large", &format!("its bundle has more than {MAX_BUNDLE_BYTES} bytes")));
    }
    let bundle: TaskBundle = serde_json::from_slice(&bytes)
        .map_err(|error| refused(task, "task.malformed", &format!("its bundle cannot be read: {error}")))?;
    if bundle.spec.schema != TASK_SCHEMA {
        return Err(refused(
            task,
            "task.unsupported_schema",
            &format!("schema {} is not known: this server reads schema {TASK_SCHEMA}", bundle.spec.schema),
        ));
    }
    if let Some(message) = unverified_form(&bundle.spec) {
        return Err(refused(task, FORM_UNVERIFIED, &message));
    }
    bundle.spec.all_shapes().map_err(|error| refused(task, "task.invalid_shape", &error.to_string()))?;
    examine_goal(&format!("task `{}`", task.name), &bundle.spec.goal)?;
    if spec.models.needs_script(&spec.model) {
        let Some(replies) = &task.scripted_replies else {
            return Err(refused(task, "campaign.replies_missing", "the scripted model needs its replies"));
        };
        let replies = artifact(shared, task, "scripted replies", replies).await?;
        serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(&replies).map_err(|error| {
            refused(task, "campaign.replies_malformed", &format!("its scripted replies are no JSON object: {error}"))
        })?;
    }
    Ok(run_input(spec, task, &bundle.spec))
}

async fn artifact(
    shared: &Shared,
    task: &CampaignTask,
    what: &str,
    hash: &ArtifactHash,
) -> Result<Vec<u8>, ApiFailure> {
    match shared.store.artifacts.get_artifact(hash).await {
        Ok(bytes) => Ok(bytes),
        Err(StoreError::NotFound { .. }) => Err(refused(
            task,
            "campaign.artifact_missing",
            &format!("its {what} {hash} was not uploaded: PUT it to /api/v1/artifacts/{hash} first"),
        )),
        Err(error) => Err(error.into()),
    }
}

fn refused(task: &CampaignTask, code: &str, message: &str) -> ApiFailure {
    ApiFailure::bad(code, format!("task `{}`: {message}", task.name)).with_details(json!({ "task": task.name }))
}

fn stored<T: serde::Serialize>(value: &T) -> Result<serde_json::Value, ApiFailure> {
    serde_json::to_value(value).map_err(|error| unwritable(&error))
}

fn unwritable(error: &serde_json::Error) -> ApiFailure {
    ApiFailure::bad("request.invalid", format!("the request cannot be stored: {error}"))
}
