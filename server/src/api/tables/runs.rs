//! Runs as a table: newest first, or those of a campaign in the order of its tasks.

use nightshift_engine::store::PageRequest;
use nightshift_protocol::api::RunSummary;
use nightshift_protocol::id::CampaignId;
use nightshift_protocol::run::RunStatus;

use super::{ROWS_AT_ONCE, unknown};
use crate::api::attempts::Pairs;
use crate::error::ApiFailure;
use crate::present::run_summary;
use crate::shared::Shared;
use crate::table::{Column, Row};

pub(super) const COLUMNS: &[Column] = &[
    Column::text("campaign"),
    Column::text("run"),
    Column::text("task"),
    Column::text("model"),
    Column::flag("scripted"),
    Column::text("status"),
    Column::integer("attempts"),
    Column::integer("best_attempt"),
    Column::number("best_speedup"),
    Column::number("best_speedup_low"),
    Column::number("best_speedup_high"),
    Column::flag("best_confirmed"),
    Column::text("stop_reason"),
    Column::text("activity"),
    Column::text("awaits"),
    Column::text("failure_code"),
    Column::text("failure_message"),
    Column::integer("priority"),
    Column::time("created_at"),
    Column::time("finished_at"),
    Column::text("fastest_baseline"),
    Column::number("best_speedup_over_fastest"),
    Column::number("best_speedup_over_fastest_low"),
    Column::number("best_speedup_over_fastest_high"),
];

/// Names of the filter parameters.
const NAMES: [&str; 2] = ["campaign", "status"];

/// Pages of runs.
pub(super) struct Pages {
    campaign: Option<CampaignId>,
    status: Option<RunStatus>,
    before: Option<String>,
    is_over: bool,
}

impl Pages {
    pub(super) async fn of(shared: &Shared, query: Pairs) -> Result<Self, ApiFailure> {
        let wrong = |name: &str, said: String| ApiFailure::bad("request.invalid_query", format!("`{name}`: {said}"));
        let mut pages = Self { campaign: None, status: None, before: None, is_over: false };
        for (name, value) in query {
            match name.as_str() {
                // A form sends empty fields for missing filters.
                "campaign" | "status" if value.is_empty() => {}
                "campaign" => {
                    let id: CampaignId =
                        value.parse().map_err(|_| wrong(&name, format!("`{value}` is not a campaign id")))?;
                    shared.store.campaigns.load_campaign(&id).await?;
                    pages.campaign = Some(id);
                }
                "status" => {
                    pages.status = Some(RunStatus::parse(&value).ok_or_else(|| {
                        let known = RunStatus::ALL.map(RunStatus::as_str).join(", ");
                        wrong(&name, format!("`{value}` is not known: expected one of {known}"))
                    })?);
                }
                _ => return Err(unknown(&name, &NAMES)),
            }
        }
        Ok(pages)
    }

    pub(super) async fn next(&mut self, shared: &Shared) -> Result<Option<Vec<Row>>, ApiFailure> {
        if self.is_over {
            return Ok(None);
        }
        let page = PageRequest { limit: ROWS_AT_ONCE, before: self.before.take() };
        let records = shared.store.runs.list_runs(self.campaign.as_ref(), self.status, page).await?;
        self.is_over = records.len() < usize::try_from(ROWS_AT_ONCE).unwrap_or(usize::MAX);
        self.before = records.last().map(|record| record.id.to_string());
        let found = records.into_iter().map(run_summary).collect::<Result<Vec<_>, _>>()?;
        Ok(Some(found.into_iter().map(row).collect()))
    }
}

fn row(run: RunSummary) -> Row {
    let digest = run.digest;
    let (code, message) = run.failure.map(|failure| (failure.code, failure.message)).unzip();
    vec![
        run.campaign.to_string().into(),
        run.id.to_string().into(),
        digest.task.into(),
        digest.model.into(),
        digest.scripted.into(),
        run.status.as_str().into(),
        digest.attempts.into(),
        digest.best_attempt.into(),
        digest.best_speedup.map(|speedup| speedup.estimate).into(),
        digest.best_speedup.map(|speedup| speedup.low).into(),
        digest.best_speedup.map(|speedup| speedup.high).into(),
        digest.best_confirmed.into(),
        digest.stop_reason.map(|reason| reason.as_str()).into(),
        digest.activity.into(),
        Some(run.awaits.join(", ")).filter(|gates| !gates.is_empty()).into(),
        code.into(),
        message.into(),
        run.priority.into(),
        run.created_at.into(),
        run.finished_at.into(),
        digest.fastest_baseline.map(|fastest| fastest.kind.label()).into(),
        digest.best_speedup_over_fastest.map(|speedup| speedup.estimate).into(),
        digest.best_speedup_over_fastest.map(|speedup| speedup.low).into(),
        digest.best_speedup_over_fastest.map(|speedup| speedup.high).into(),
    ]
}
