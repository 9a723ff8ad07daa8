//! Attempts as a table: with the filter and the order of `GET /attempts`.

use nightshift_protocol::api::{AttemptQuery, AttemptRow};
use nightshift_protocol::attempt::Bound;
use nightshift_store::MAX_ATTEMPT_ROWS;

use crate::api::attempts::{Pairs, invalid};
use crate::attempt_index::Index;
use crate::error::ApiFailure;
use crate::table::{Column, Row};

pub(super) const COLUMNS: &[Column] = &[
    Column::text("campaign"),
    Column::text("run"),
    Column::integer("attempt"),
    Column::text("task"),
    Column::text("target"),
    Column::text("strategy"),
    Column::text("model"),
    Column::text("stage"),
    Column::integer("parent_attempt"),
    Column::text("outcome"),
    Column::flag("best"),
    Column::flag("confirmed"),
    Column::number("speedup"),
    Column::number("speedup_low"),
    Column::number("speedup_high"),
    Column::number("candidate_median_ns"),
    Column::number("reward"),
    Column::integer("rubric_total"),
    Column::text("bound"),
    Column::text("issue"),
    Column::integer("tokens"),
    Column::number("cost_usd"),
    Column::text("device"),
    Column::text("source_blake3"),
    Column::time("created_at"),
    Column::time("finished_at"),
    Column::number("speedup_over_fastest"),
    Column::number("speedup_over_fastest_low"),
    Column::number("speedup_over_fastest_high"),
];

/// Pages of attempts.
pub(super) struct Pages {
    /// None after the last page.
    query: Option<AttemptQuery>,
}

impl Pages {
    pub(super) fn of(query: Pairs) -> Result<Self, ApiFailure> {
        let mut query = AttemptQuery::from_pairs(query).map_err(|error| invalid(&error))?;
        if query.limit.is_some() || query.before.is_some() || query.facets {
            let message = "a table is given as a whole: leave `limit`, `before` and `facets` out";
            return Err(ApiFailure::bad("request.invalid_query", message));
        }
        query.limit = Some(MAX_ATTEMPT_ROWS);
        Ok(Self { query: Some(query) })
    }

    pub(super) async fn next(&mut self, index: &Index) -> Result<Option<Vec<Row>>, ApiFailure> {
        let Some(query) = self.query.take() else { return Ok(None) };
        let page = index.current().await?.list_attempts(&query).await?;
        self.query = page.next.map(|next| AttemptQuery { before: Some(next), ..query });
        Ok(Some(page.items.into_iter().map(row).collect()))
    }
}

fn row(attempt: AttemptRow) -> Row {
    vec![
        attempt.campaign.to_string().into(),
        attempt.run.to_string().into(),
        attempt.number.into(),
        attempt.task.into(),
        attempt.target.as_str().into(),
        attempt.strategy.into(),
        attempt.model.into(),
        attempt.stage.as_str().into(),
        attempt.parent.into(),
        attempt.outcome.as_str().into(),
        attempt.best.into(),
        attempt.confirmed.into(),
        attempt.speedup.map(|speedup| speedup.estimate).into(),
        attempt.speedup.map(|speedup| speedup.low).into(),
        attempt.speedup.map(|speedup| speedup.high).into(),
        attempt.candidate_median_ns.into(),
        attempt.reward.into(),
        attempt.rubric_total.into(),
        attempt.bound.map(Bound::as_str).into(),
        attempt.issue.into(),
        attempt.tokens.into(),
        attempt.cost_usd.into(),
        attempt.device.into(),
        attempt.source.map(|source| source.to_string()).into(),
        attempt.created_at.into(),
        attempt.finished_at.into(),
        attempt.speedup_over_fastest.map(|speedup| speedup.estimate).into(),
        attempt.speedup_over_fastest.map(|speedup| speedup.low).into(),
        attempt.speedup_over_fastest.map(|speedup| speedup.high).into(),
    ]
}
