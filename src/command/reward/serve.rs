//! `nightshift reward serve`: rewards for a trainer, over HTTP.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::routing::{get, post};
use axum::{Json, Router};
use nightshift_client::Client;
use nightshift_optimizer::model::parse_chain;
use nightshift_protocol::api::{ControlAction, CreateCampaign};
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::campaign::{CAMPAIGN_SCHEMA, CampaignSpec, CampaignTask, KnowledgeUse, ModelChoice};
use nightshift_protocol::error::ExitCode;
use nightshift_protocol::id::RunId;
use nightshift_protocol::models::{AgentRole, ModelPlan, RoleModel};
use nightshift_protocol::score::RewardFormula;
use nightshift_protocol::task::{TaskBundle, TaskGoal};
use nightshift_server::{ApiFailure, Body, guarded, listen};
use secrecy::{ExposeSecret, SecretString};
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::args::ServeRewards;
use crate::command::run::{OWN_ADDRESS, task};
use crate::compose::{self, Unfinished};
use crate::connect::{Purpose, Session};
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::reward_call::{self, RewardCall, RewardItem, RewardReply, RewardResult};

/// Largest body of a call, in bytes.
const MAX_BODY_BYTES: usize = 64 * 1024 * 1024;
/// Largest reply of a model, and largest program before it, in bytes.
const MAX_COMPLETION_BYTES: usize = 1024 * 1024;
/// How long one look at a run waits for something to happen.
const LOOK_MS: u64 = 20_000;

/// What every call needs.
struct Scorer {
    client: Client,
    /// Tasks by name and by id.
    tasks: BTreeMap<String, Arc<ServedTask>>,
    formula: RewardFormula,
    /// The judge model and its fallbacks; empty without a judge.
    judge: Vec<ModelChoice>,
    allow_unsandboxed: bool,
    slots: Semaphore,
    max_batch: usize,
    timeout: Duration,
    token: Option<SecretString>,
}

struct ServedTask {
    bundle: TaskBundle,
    id: ArtifactHash,
}

pub(super) async fn run(context: &Context, args: ServeRewards) -> Result<ExitCode> {
    let token = context.config().server.token.clone();
    if !args.bind.ip().is_loopback() && token.is_none() {
        return Err(Failure::new("auth.required", "callers from other machines could run programs here")
            .hint("set server.token, which callers then have to send, or listen on 127.0.0.1"));
    }
    let judge = judge(context, args.judge_model.as_deref()).await?;
    let session = Session::open(context, Purpose::Drive { bind: OWN_ADDRESS, unfinished: Unfinished::GoOn }).await?;
    let done = tokio::select! {
        done = serve(context, &session, args, judge, token) => done,
        failure = session.own_failed() => Err(failure),
    };
    let closed = session.close().await;
    done?;
    closed?;
    Ok(ExitCode::Ok)
}

/// The judge that was asked for, then those who stand in. One that cannot be asked at all is refused now: later, no program
/// would get a reward.
async fn judge(context: &Context, text: Option<&str>) -> Result<Vec<ModelChoice>> {
    let Some(text) = text else { return Ok(Vec::new()) };
    let mut chain = parse_chain(text).map_err(|error| Failure::new("usage.invalid_model", error.to_string()))?;
    // The scripts of these runs hold the program alone.
    chain.retain(|model| !model.is_scripted());
    if context.config().server.url.is_none() {
        for model in &chain {
            compose::check_model(context, model)?;
            compose::note_silent_endpoint(context, model).await?;
        }
    }
    Ok(chain)
}

async fn serve(
    context: &Context,
    session: &Session,
    args: ServeRewards,
    judge: Vec<ModelChoice>,
    token: Option<SecretString>,
) -> Result<()> {
    let client = session.client.clone();
    let mut tasks = BTreeMap::new();
    for text in &args.tasks {
        let loaded = task(text)?;
        let bytes = serde_json::to_vec(&loaded.bundle)
            .map_err(|error| Failure::new("internal.json", format!("the task cannot be written: {error}")))?;
        let id = client.put_artifact(&bytes).await?;
        let known = Arc::new(ServedTask { bundle: loaded.bundle, id });
        tasks.insert(known.id.to_string(), known.clone());
        tasks.insert(known.bundle.spec.name.clone(), known);
    }
    let scorer = Arc::new(Scorer {
        client,
        tasks,
        formula: args.formula,
        judge,
        allow_unsandboxed: args.allow_unsandboxed,
        slots: Semaphore::new(usize::try_from(args.parallel).unwrap_or(1)),
        max_batch: usize::try_from(args.max_batch).unwrap_or(1),
        timeout: Duration::from_secs(args.timeout_s),
        token,
    });
    let (listener, listens) = listen(args.bind).await.map_err(|error| Failure::from(error.to_api_error()))?;
    let address = format!("http://{listens}");
    if context.output.is_json() {
        context.output.json(&json!({ "address": address, "formula": args.formula.as_str() }))?;
    } else {
        context.output.text(&format!("rewards: POST {address}/v1/rewards (formula {})", args.formula.as_str()))?;
        context.output.note("Ctrl-C ends");
    }
    let stop = context.interrupt.clone();
    axum::serve(listener, guarded(router(scorer), listens))
        .with_graceful_shutdown(async move { stop.cancelled().await })
        .await
        .map_err(|error| Failure::new("server.ended", format!("serving rewards ended: {error}")))
}

fn router(scorer: Arc<Scorer>) -> Router {
    Router::new()
        .route("/v1/rewards", post(rewards))
        .route("/health", get(health))
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .with_state(scorer)
}

async fn health() -> Json<serde_json::Value> {
    Json(json!({ "status": "ok" }))
}

async fn rewards(
    State(scorer): State<Arc<Scorer>>,
    headers: HeaderMap,
    call: std::result::Result<Body<RewardCall>, ApiFailure>,
) -> std::result::Result<Json<RewardReply>, ApiFailure> {
    if !scorer.may_call(&headers) {
        let message = "send the server's token as a bearer token";
        return Err(ApiFailure::new(StatusCode::UNAUTHORIZED, "auth.wrong_token", message));
    }
    let Body(call) = call?;
    if call.items.len() > scorer.max_batch {
        let message = format!("a call has at most {} items: send several calls", scorer.max_batch);
        return Err(ApiFailure::new(StatusCode::PAYLOAD_TOO_LARGE, "request.too_large", message));
    }
    let mut results = futures::future::join_all(call.items.iter().map(|item| scorer.score(item))).await;
    reward_call::compare(&call.items, &mut results);
    Ok(Json(RewardReply { results }))
}

impl Scorer {
    /// Compares hashes, so that the time it takes says nothing about the token.
    fn may_call(&self, headers: &HeaderMap) -> bool {
        let Some(token) = &self.token else { return true };
        let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let given = given.and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default();
        ArtifactHash::of(given.as_bytes()) == ArtifactHash::of(token.expose_secret().as_bytes())
    }

    async fn score(&self, item: &RewardItem) -> RewardResult {
        let Some(known) = self.tasks.get(&item.task) else {
            // Each task is there twice: by its name and by its id.
            let names: BTreeSet<&str> = self.tasks.values().map(|known| known.bundle.spec.name.as_str()).collect();
            let names = names.into_iter().collect::<Vec<_>>().join(", ");
            let message = format!("there is no task `{}` here; start the server with it (known: {names})", item.task);
            return RewardResult::failed("task.not_found", message);
        };
        if item.completion.len().max(item.before.as_ref().map_or(0, String::len)) > MAX_COMPLETION_BYTES {
            let message = format!("a completion and its `before` have at most {MAX_COMPLETION_BYTES} bytes each");
            return RewardResult::failed("request.too_large", message);
        }
        let Ok(_slot) = self.slots.acquire().await else {
            return RewardResult::failed("server.ended", "the server is ending");
        };
        match self.carry_out(known, item).await {
            Ok(result) => result,
            Err(failure) => RewardResult::failed(&failure.error.code, failure.error.message),
        }
    }

    async fn carry_out(&self, known: &ServedTask, item: &RewardItem) -> Result<RewardResult> {
        let unwritable = |error: serde_json::Error| Failure::new("internal.json", error.to_string());
        let spec = &known.bundle.spec;
        let reply = reward_call::reply(item, spec.form)?;
        let script = reward_call::script(spec, &reply.text).map_err(unwritable)?;
        let script = self.client.put_artifact(&serde_json::to_vec(&script).map_err(unwritable)?).await?;
        let judge = self.judge.iter().map(ModelChoice::label).collect::<Vec<_>>().join(",");
        let first_key = reward_call::key(&known.id, &script, &judge, self.allow_unsandboxed);
        let request = CreateCampaign { spec: self.campaign(known, script) };
        let until = Instant::now() + self.timeout;
        let mut key = first_key.clone();
        loop {
            let created = self.client.create_campaign(&request, &key).await?;
            let Some(run) = created.runs.first() else {
                return Err(Failure::new("reward.not_scored", "the campaign has no run"));
            };
            if let Ok(over) = tokio::time::timeout_at(until, self.watch(run)).await {
                over?;
            } else {
                // The caller no longer waits, so a failed cancellation is ignored.
                let _ = self.client.control_run(run, ControlAction::Cancel).await;
                let message =
                    format!("it was not scored within {} s: raise --timeout-s, or add workers", self.timeout.as_secs());
                return Ok(RewardResult::failed("reward.timed_out", message));
            }
            let detail = self.client.run(run).await?;
            if !(created.existed && reward_call::is_without_answer(&detail)) {
                let mut result = RewardResult::of(spec, &detail, item.skill, self.formula, !self.judge.is_empty());
                if let Some(problem) = &reply.problem {
                    result.explain(problem);
                }
                return Ok(result);
            }
            // An earlier call cancelled it, or the machine was at fault.
            key = format!("{first_key}-after-{run}");
        }
    }

    /// Waits until a run is over.
    async fn watch(&self, run: &RunId) -> Result<()> {
        let mut after = 0;
        loop {
            let page = self.client.run_events(run, after, LOOK_MS).await?;
            after = page.events.last().map_or(after, |event| event.seq);
            if page.status.is_final() {
                return Ok(());
            }
        }
    }

    /// One attempt, nothing repaired, nothing tuned, nothing learned.
    fn campaign(&self, known: &ServedTask, script: ArtifactHash) -> CampaignSpec {
        let mut models = ModelPlan::default();
        if let [judge, fallback @ ..] = self.judge.as_slice() {
            let (model, fallback) = (Some(judge.clone()), Some(fallback.to_vec()));
            models.roles.insert(AgentRole::Judge, RoleModel { model, fallback, ..RoleModel::default() });
        }
        CampaignSpec {
            schema: CAMPAIGN_SCHEMA,
            name: format!("reward: {}", known.bundle.spec.name),
            model: ModelChoice::Scripted,
            models,
            knowledge: KnowledgeUse::NONE,
            untrusted_replies: true,
            strategy: "stitch".to_owned(),
            goal: TaskGoal {
                max_attempts: Some(1),
                max_replans: Some(0),
                max_fix_turns: Some(0),
                max_variants: Some(0),
                ..TaskGoal::default()
            },
            allow_unsandboxed: self.allow_unsandboxed,
            budget: nightshift_protocol::budget::BudgetCaps::default(),
            schedule: None,
            priority: 0,
            weight: 1,
            gates: BTreeSet::new(),
            labels: BTreeSet::new(),
            tasks: vec![CampaignTask {
                name: known.bundle.spec.name.clone(),
                bundle: known.id.clone(),
                scripted_replies: Some(script),
            }],
        }
    }
}
