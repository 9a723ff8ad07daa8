//! Campaigns as a table: with the filter and the order of `GET /campaigns`.

use nightshift_protocol::api::{CampaignQuery, CampaignSummary};

use super::ROWS_AT_ONCE;
use crate::api::attempts::{Pairs, invalid};
use crate::campaign_list::Campaigns;
use crate::error::ApiFailure;
use crate::table::{Column, Row};

pub(super) const COLUMNS: &[Column] = &[
    Column::text("campaign"),
    Column::text("name"),
    Column::text("model"),
    Column::flag("scripted"),
    Column::time("created_at"),
    Column::integer("runs"),
    Column::integer("runs_running"),
    Column::integer("runs_paused"),
    Column::integer("runs_cancelling"),
    Column::integer("runs_completed"),
    Column::integer("runs_failed"),
    Column::integer("runs_cancelled"),
    Column::text("window"),
    Column::text("time_zone"),
    Column::integer("priority"),
    Column::integer("weight"),
    Column::time("ended_at"),
    Column::number("best_speedup"),
    Column::number("cost_usd"),
    Column::integer("unpriced_attempts"),
    Column::text("targets"),
    Column::number("best_speedup_over_fastest"),
    Column::number("geometric_mean"),
    Column::number("geometric_mean_over_fastest"),
    Column::integer("solved"),
    Column::integer("solved_over_fastest"),
];

/// Pages of campaigns.
pub(super) struct Pages {
    /// None after the last page.
    query: Option<CampaignQuery>,
}

impl Pages {
    pub(super) fn of(query: Pairs) -> Result<Self, ApiFailure> {
        let query = CampaignQuery::from_pairs(query).map_err(|error| invalid(&error))?;
        if query.limit.is_some() || query.before.is_some() {
            let message = "a table is given as a whole: leave `limit` and `before` out";
            return Err(ApiFailure::bad("request.invalid_query", message));
        }
        Ok(Self { query: Some(query) })
    }

    pub(super) async fn next(&mut self, campaigns: &Campaigns) -> Result<Option<Vec<Row>>, ApiFailure> {
        let Some(query) = self.query.take() else { return Ok(None) };
        let page = campaigns.page(&query, ROWS_AT_ONCE).await?;
        self.query = page.next.map(|next| CampaignQuery { before: Some(next), ..query });
        Ok(Some(page.items.into_iter().map(row).collect()))
    }
}

fn row(campaign: CampaignSummary) -> Row {
    let runs = campaign.runs;
    let schedule = campaign.schedule.as_ref();
    let targets: Vec<&str> = campaign.targets.iter().map(|target| target.as_str()).collect();
    vec![
        campaign.id.to_string().into(),
        campaign.name.into(),
        campaign.model.into(),
        campaign.scripted.into(),
        campaign.created_at.into(),
        runs.total().into(),
        runs.running.into(),
        runs.paused.into(),
        runs.cancelling.into(),
        runs.completed.into(),
        runs.failed.into(),
        runs.cancelled.into(),
        schedule.map(|schedule| schedule.window.to_string()).into(),
        schedule.map(|schedule| schedule.time_zone.clone()).into(),
        campaign.priority.into(),
        campaign.weight.into(),
        campaign.ended_at.into(),
        campaign.best_speedup.into(),
        campaign.cost_usd.into(),
        campaign.unpriced_attempts.into(),
        (!targets.is_empty()).then(|| targets.join(", ")).into(),
        campaign.best_speedup_over_fastest.into(),
        campaign.geometric_mean.into(),
        campaign.geometric_mean_over_fastest.into(),
        campaign.solved.into(),
        campaign.solved_over_fastest.into(),
    ]
}
