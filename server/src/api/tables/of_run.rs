//! Steps and log of a run as tables.

use nightshift_protocol::api::{EventView, StepView};
use nightshift_protocol::id::RunId;

use super::unknown;
use crate::api::attempts::Pairs;
use crate::api::runs::{MAX_EVENTS_PER_PAGE, step_views};
use crate::driving::Driving;
use crate::error::ApiFailure;
use crate::present::event_view;
use crate::shared::Shared;
use crate::table::{Column, Row};

pub(super) const STEP_COLUMNS: &[Column] = &[
    Column::text("run"),
    Column::text("step"),
    Column::text("key"),
    Column::text("kind"),
    Column::text("status"),
    Column::integer("tries"),
    Column::integer("epoch"),
    Column::text("worker"),
    Column::time("scheduled_at"),
    Column::time("started_at"),
    Column::time("finished_at"),
    Column::integer("last_try_ms"),
    Column::text("failure_code"),
    Column::text("failure_message"),
    Column::text("waiting_for"),
];

pub(super) const EVENT_COLUMNS: &[Column] = &[
    Column::text("run"),
    Column::integer("seq"),
    Column::time("at"),
    Column::text("kind"),
    Column::text("step_key"),
    Column::text("body_json"),
];

/// Names of the filter parameters.
const NAMES: [&str; 1] = ["run"];

/// Returns the requested run.
async fn run_of(shared: &Shared, query: &Pairs) -> Result<RunId, ApiFailure> {
    let mut run = None;
    for (name, value) in query {
        if name != "run" {
            return Err(unknown(name, &NAMES));
        }
        let wrong = |_| ApiFailure::bad("request.invalid_query", format!("`run`: `{value}` is not a run id"));
        run = Some(value.parse::<RunId>().map_err(wrong)?);
    }
    let run = run.ok_or_else(|| ApiFailure::bad("request.invalid_query", "`run`: say of which run"))?;
    shared.store.runs.load_run(&run).await?;
    Ok(run)
}

pub(super) async fn steps(driving: &Driving, query: &Pairs) -> Result<Vec<Row>, ApiFailure> {
    let shared = &driving.shared;
    let id = run_of(shared, query).await?;
    let (run, heads) = (shared.store.runs.load_run(&id).await?, shared.store.runs.list_step_heads(&id).await?);
    Ok(step_views(driving, &run, heads).await?.into_iter().map(step).collect())
}

fn step(step: StepView) -> Row {
    let (code, message) = step.failure.map(|failure| (failure.code, failure.message)).unzip();
    vec![
        step.run.to_string().into(),
        step.id.to_string().into(),
        step.key.into(),
        step.kind.as_str().into(),
        step.status.as_str().into(),
        step.tries.into(),
        step.epoch.into(),
        step.worker.map(|worker| worker.to_string()).into(),
        step.scheduled_at.into(),
        step.started_at.into(),
        step.finished_at.into(),
        step.started_at.zip(step.finished_at).map(|(begin, end)| end.since_ms(begin)).into(),
        code.into(),
        message.into(),
        step.waiting_for.into(),
    ]
}

/// The log of a run, page by page.
pub(super) struct Events {
    run: RunId,
    /// Position of the last event; none at the end.
    after: Option<u64>,
}

impl Events {
    pub(super) async fn of(shared: &Shared, query: &Pairs) -> Result<Self, ApiFailure> {
        Ok(Self { run: run_of(shared, query).await?, after: Some(0) })
    }

    pub(super) async fn next(&mut self, shared: &Shared) -> Result<Option<Vec<Row>>, ApiFailure> {
        let Some(after) = self.after.take() else { return Ok(None) };
        let records = shared.store.runs.events_after(&self.run, after, MAX_EVENTS_PER_PAGE).await?;
        self.after = records.last().map(|record| record.seq);
        let found = records.iter().map(event_view).collect::<Result<Vec<_>, _>>()?;
        Ok(Some(found.into_iter().map(|found| event(&self.run, found)).collect()))
    }
}

fn event(run: &RunId, event: EventView) -> Row {
    vec![
        run.to_string().into(),
        event.seq.into(),
        event.at.into(),
        event.kind.into(),
        event.step_key.into(),
        event.body.to_string().into(),
    ]
}
