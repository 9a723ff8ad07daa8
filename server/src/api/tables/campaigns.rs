//! Campaigns as a table, newest first, filtered as on their page.

use nightshift_engine::store::PageRequest;
use nightshift_protocol::api::CampaignSummary;

use super::{ROWS_AT_ONCE, unknown};
use crate::api::attempts::Pairs;
use crate::app::App;
use crate::error::ApiFailure;
use crate::present::campaign_summary;
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
];

/// Names of the filter.
const NAMES: [&str; 2] = ["q", "show"];
/// Which campaigns are shown.
const SHOWN: [&str; 2] = ["unfinished", "failed"];

/// Pages of campaigns.
pub(super) struct Pages {
    /// Words that name, model or id hold, in small letters.
    text: String,
    /// One of [`SHOWN`]; all without it.
    shown: Option<&'static str>,
    before: Option<String>,
    is_over: bool,
}

impl Pages {
    pub(super) fn of(query: Pairs) -> Result<Self, ApiFailure> {
        let mut pages = Self { text: String::new(), shown: None, before: None, is_over: false };
        for (name, value) in query {
            match name.as_str() {
                "q" => pages.text = value.to_lowercase(),
                "show" if value.is_empty() => {}
                "show" => {
                    let shown = SHOWN.into_iter().find(|shown| *shown == value);
                    pages.shown = Some(shown.ok_or_else(|| {
                        let message = format!("`show`: `{value}` is not known: expected one of {}", SHOWN.join(", "));
                        ApiFailure::bad("request.invalid_query", message)
                    })?);
                }
                _ => return Err(unknown(&name, &NAMES)),
            }
        }
        Ok(pages)
    }

    pub(super) async fn next(&mut self, app: &App) -> Result<Option<Vec<Row>>, ApiFailure> {
        if self.is_over {
            return Ok(None);
        }
        let page = PageRequest { limit: ROWS_AT_ONCE, before: self.before.take() };
        let records = app.store.list_campaigns(page).await?;
        self.is_over = records.len() < usize::try_from(ROWS_AT_ONCE).unwrap_or(usize::MAX);
        self.before = records.last().map(|record| record.id.to_string());
        let found = records.iter().map(campaign_summary).collect::<Result<Vec<_>, _>>()?;
        Ok(Some(found.into_iter().filter(|campaign| self.fits(campaign)).map(row).collect()))
    }

    fn fits(&self, campaign: &CampaignSummary) -> bool {
        let words = [campaign.name.as_str(), campaign.model.as_str(), campaign.id.as_str()];
        let is_shown = match self.shown {
            Some("unfinished") => campaign.runs.unfinished() > 0,
            Some(_) => campaign.runs.failed > 0,
            None => true,
        };
        is_shown && words.iter().any(|word| word.to_lowercase().contains(&self.text))
    }
}

fn row(campaign: CampaignSummary) -> Row {
    let runs = campaign.runs;
    let schedule = campaign.schedule.as_ref();
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
    ]
}
