//! Scores of attempts that are computed after the run: by another formula, or by newer rules.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use nightshift_engine::store::ScoreRecord;
use nightshift_optimizer::reward::recompute::rescore;
use nightshift_protocol::id::RunId;
use nightshift_protocol::score::{AttemptScore, Rescore, RewardFormula, RunScores};
use nightshift_protocol::task::TaskBundle;

use crate::actor::Actor;
use crate::error::ApiFailure;
use crate::extract::{Body, IdPath};
use crate::shared::Shared;

/// Lists the stored scores of a run.
pub(crate) async fn list(
    State(shared): State<Arc<Shared>>,
    IdPath(id): IdPath<RunId>,
) -> Result<Json<RunScores>, ApiFailure> {
    let records = shared.store.knowledge.list_scores(&id).await?;
    let scores = records.into_iter().map(read).collect::<Result<Vec<AttemptScore>, _>>()?;
    Ok(Json(RunScores { run: id, scores }))
}

/// Computes the scores of a run's attempts again from the stored evidence, and stores them.
pub(crate) async fn recompute(
    State(shared): State<Arc<Shared>>,
    IdPath(id): IdPath<RunId>,
    actor: Actor,
    Body(wish): Body<Rescore>,
) -> Result<Json<RunScores>, ApiFailure> {
    let formulas = if wish.formulas.is_empty() { RewardFormula::ALL.to_vec() } else { wish.formulas };
    let record = shared.store.runs.load_run(&id).await?;
    let scores = match &record.state {
        Some(state) if !state.is_null() => {
            let view = (shared.view)(state)?;
            let bytes = shared.store.artifacts.get_artifact(&view.task).await?;
            let bundle: TaskBundle = serde_json::from_slice(&bytes)
                .map_err(|error| ApiFailure::internal("task.unreadable", format!("the stored task: {error}")))?;
            rescore(&bundle.spec, &view, &formulas, shared.clock.now())
        }
        // The run has no attempts yet.
        _ => Vec::new(),
    };
    let records = scores.iter().map(|score| written(&id, score)).collect::<Result<Vec<_>, _>>()?;
    let stored = shared.store.knowledge.put_scores(records).await;
    shared.store_health.note(&stored);
    stored?;
    tracing::info!(run.id = %id, scores = scores.len(), by = actor.name(), "scores of a run were computed again");
    Ok(Json(RunScores { run: id, scores }))
}

fn written(run: &RunId, score: &AttemptScore) -> Result<ScoreRecord, ApiFailure> {
    Ok(ScoreRecord {
        run: run.clone(),
        attempt: score.attempt,
        formula: score.scored.formula.as_str().to_owned(),
        score: serde_json::to_value(score).map_err(|error| ApiFailure::internal("internal.json", error.to_string()))?,
        at: score.at,
    })
}

fn read(record: ScoreRecord) -> Result<AttemptScore, ApiFailure> {
    serde_json::from_value(record.score)
        .map_err(|error| ApiFailure::internal("run.unreadable", format!("a stored score cannot be read: {error}")))
}
