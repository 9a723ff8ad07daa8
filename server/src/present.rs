//! Converts stored records to API types.

use nightshift_engine::event::EventRecord;
use nightshift_engine::store::{CampaignRecord, ReadingRecord, RunRecord, StepRecord, WorkerRecord};
use nightshift_protocol::api::{CampaignSummary, EventView, RunDigest, RunSummary, StepView, WorkerView};
use nightshift_protocol::budget::{BudgetLine, Resource};
use nightshift_protocol::campaign::CampaignSpec;
use nightshift_protocol::machine::Offers;
use nightshift_protocol::run::RunStatus;
use nightshift_protocol::step::StepKind;

use crate::error::ApiFailure;
use crate::waiting::waits_at;

/// Returns the request that created the campaign.
pub(crate) fn campaign_spec(record: &CampaignRecord) -> Result<CampaignSpec, ApiFailure> {
    serde_json::from_value(record.spec.clone())
        .map_err(|error| unreadable("campaign.unreadable", "campaign", record.id.as_str(), &error))
}

/// Returns a campaign for a list, without its totals.
pub(crate) fn campaign_summary(record: &CampaignRecord) -> Result<CampaignSummary, ApiFailure> {
    let spec = campaign_spec(record)?;
    Ok(CampaignSummary {
        id: record.id.clone(),
        name: record.name.clone(),
        model: spec.models.label(&spec.model),
        scripted: spec.models.is_scripted(&spec.model),
        created_at: record.created_at,
        runs: record.runs,
        schedule: record.schedule.clone(),
        priority: record.priority,
        weight: record.weight,
        ended_at: None,
        cost_usd: None,
        unpriced_attempts: 0,
        best_speedup: None,
        best_speedup_over_fastest: None,
        geometric_mean: None,
        geometric_mean_over_fastest: None,
        solved: 0,
        solved_over_fastest: 0,
        handover: None,
        targets: Vec::new(),
    })
}

/// Returns the budget with the elapsed wall time, which is computed from the clock and not stored.
pub(crate) fn with_wall_time(mut budget: Vec<BudgetLine>, elapsed_ms: u64) -> Vec<BudgetLine> {
    for line in budget.iter_mut().filter(|line| line.resource == Resource::WallMs) {
        line.used = elapsed_ms;
    }
    budget
}

/// Returns a run for a list.
pub(crate) fn run_summary(record: RunRecord) -> Result<RunSummary, ApiFailure> {
    let mut digest: RunDigest = serde_json::from_value(record.digest)
        .map_err(|error| unreadable("run.unreadable", "run", record.id.as_str(), &error))?;
    if record.status == RunStatus::Running
        && let Some(gate) = record.awaits.first()
    {
        digest.activity = waits_at(gate, &record.id);
    }
    Ok(RunSummary {
        id: record.id,
        campaign: record.campaign,
        status: record.status,
        created_at: record.created_at,
        finished_at: record.finished_at,
        digest,
        failure: record.failure,
        priority: record.priority,
        awaits: record.awaits,
        owner: record.owner,
    })
}

/// Returns a step, with the reason why it waits.
pub(crate) fn step_view(record: StepRecord, waiting_for: Option<String>) -> Result<StepView, ApiFailure> {
    let kind = StepKind::parse(&record.kind)
        .ok_or_else(|| ApiFailure::internal("step.unreadable", format!("unknown kind of step `{}`", record.kind)))?;
    Ok(StepView {
        id: record.id,
        run: record.run,
        key: record.key,
        kind,
        status: record.status,
        tries: record.tries,
        epoch: record.epoch,
        worker: record.worker,
        scheduled_at: record.scheduled_at,
        started_at: record.started_at,
        finished_at: record.finished_at,
        failure: record.failure,
        waiting_for,
    })
}

/// Returns an entry of a run's log.
pub(crate) fn event_view(record: &EventRecord) -> Result<EventView, ApiFailure> {
    let body = serde_json::to_value(&record.event)
        .map_err(|error| ApiFailure::internal("run.unreadable", format!("an event cannot be written: {error}")))?;
    Ok(EventView {
        seq: record.seq,
        at: record.at,
        kind: record.event.kind().to_owned(),
        step_key: record.event.step_key().map(str::to_owned),
        body,
    })
}

/// Returns a worker for a list.
pub(crate) fn worker_view(
    record: WorkerRecord,
    silent: bool,
    reading: Option<ReadingRecord>,
) -> Result<WorkerView, ApiFailure> {
    let offers: Offers = serde_json::from_value(record.offers)
        .map_err(|error| unreadable("worker.unreadable", "worker", record.id.as_str(), &error))?;
    Ok(WorkerView {
        id: record.id,
        name: record.name,
        embedded: record.embedded,
        last_seen_at: record.last_seen_at,
        leases: record.leases,
        offers,
        version: record.version,
        draining: record.draining,
        silent,
        read_at: reading.as_ref().map(|reading| reading.at),
        readings: reading.map(|reading| reading.devices).unwrap_or_default(),
    })
}

fn unreadable(code: &str, noun: &str, id: &str, error: &serde_json::Error) -> ApiFailure {
    ApiFailure::internal(code, format!("the {noun} {id} was stored in a form that this release cannot read: {error}"))
}
