//! What the charts of a campaign know about its attempts.

use nightshift_client::Client;
use nightshift_protocol::api::{AttemptFilter, AttemptQuery, AttemptRow, CampaignDetail, MAX_PAGE_ROWS, SortOrder};
use nightshift_protocol::attempt::AttemptOutcome;
use nightshift_protocol::id::RunId;
use nightshift_protocol::time::TimestampMs;

use crate::page::failure::PageError;

/// Most attempts that are drawn: the newest ones.
pub(crate) const MAX_DRAWN: usize = 2_000;

/// An attempt, as far as charts show it.
#[derive(Debug, Clone)]
pub(crate) struct Mark {
    pub(crate) run: RunId,
    pub(crate) task: String,
    pub(crate) number: u32,
    pub(crate) outcome: AttemptOutcome,
    /// The speedup of a right program.
    pub(crate) speedup: Option<f64>,
    /// When it was finished, or began.
    pub(crate) at: TimestampMs,
    /// Whether it was the best of its run when it was made.
    pub(crate) kept: bool,
    /// Who wrote it.
    pub(crate) model: String,
    pub(crate) tokens: u64,
    pub(crate) cost_usd: Option<f64>,
}

/// Attempts of a campaign, in the order of their runs and numbers.
#[derive(Debug, Clone, Default)]
pub(crate) struct Marks {
    pub(crate) marks: Vec<Mark>,
    /// All attempts of the campaign.
    pub(crate) total: u64,
}

impl Marks {
    /// Reads them.
    pub(crate) async fn read(client: &Client, campaign: &CampaignDetail) -> Result<Self, PageError> {
        let mut query = AttemptQuery {
            filter: AttemptFilter { campaign: Some(campaign.summary.id.clone()), ..AttemptFilter::default() },
            order: SortOrder::Desc,
            limit: Some(MAX_PAGE_ROWS),
            ..AttemptQuery::default()
        };
        let mut rows = Vec::new();
        let mut total;
        loop {
            let page = client.attempts(&query).await?;
            total = page.total;
            rows.extend(page.items);
            query.before = page.next;
            if query.before.is_none() || rows.len() >= MAX_DRAWN {
                break;
            }
        }
        Ok(Self { marks: marks(rows), total })
    }
}

fn marks(mut rows: Vec<AttemptRow>) -> Vec<Mark> {
    rows.sort_by(|a, b| (&a.run, a.number).cmp(&(&b.run, b.number)));
    let mut marks: Vec<Mark> = Vec::new();
    let mut best = 0.0;
    for row in rows {
        if marks.last().is_none_or(|last| last.run != row.run) {
            best = 0.0;
        }
        let speedup = row.speedup.map(|interval| interval.estimate).filter(|_| row.outcome.is_correct());
        let kept = speedup.is_some_and(|speedup| speedup > best);
        best = speedup.filter(|_| kept).unwrap_or(best);
        marks.push(Mark {
            run: row.run,
            task: row.task,
            number: row.number,
            outcome: row.outcome,
            speedup,
            at: row.finished_at.unwrap_or(row.created_at),
            kept,
            model: row.model,
            tokens: row.tokens,
            cost_usd: row.cost_usd,
        });
    }
    marks
}
