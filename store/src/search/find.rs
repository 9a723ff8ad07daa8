//! Finds texts: the newest first, page by page.

use nightshift_protocol::api::{MAX_COUNTED_HITS, MAX_PAGE_ROWS, SearchHit, SearchKind, SearchPage, SearchQuery};
use nightshift_protocol::time::TimestampMs;

use super::excerpt::excerpt;
use super::words::{Term, for_fts5, for_tsquery, terms};
use crate::attempt::document::kind_of;
use crate::catalog::{campaign, run};
use crate::connection::{Backend, Connection, Sql};
use crate::failure::Failure;
use crate::json;
use crate::number::{count_from_stored, from_stored, to_stored};
use crate::public_id::public_id;
use crate::row::Row;
use crate::value::values;

/// Selects texts with the words `$1`, of the kinds `$3`, with ids from `$8` up to `$2` (exclusive). Further filters are
/// the run `$4`, the campaign `$5` and the task `$7`; zero or an empty text disables them.
pub(crate) const FIND: Sql = Sql {
    sqlite: "SELECT s.id, s.attempt, s.kind, s.body, s.at_ms, r.public_id AS run, c.public_id AS campaign, x.task \
             FROM search_text t JOIN search_document s ON s.id = t.rowid JOIN run r ON r.id = s.run_id \
             JOIN campaign c ON c.id = r.campaign_id JOIN attempt_run x ON x.run_id = s.run_id \
             WHERE search_text MATCH $1 AND t.rowid < $2 AND s.kind IN (SELECT value FROM json_each($3)) \
               AND ($4 = 0 OR s.run_id = $4) AND ($5 = 0 OR r.campaign_id = $5) \
               AND ($7 = '' OR x.task = $7) AND t.rowid >= $8 ORDER BY t.rowid DESC LIMIT $6",
    // Materialize the matches before sorting. Otherwise Postgres checks the words text by text from the newest on,
    // which takes milliseconds each.
    postgres: "WITH found AS MATERIALIZED (SELECT s.id FROM search_document s \
                 WHERE to_tsvector('simple', regexp_replace(s.body, '[^a-zA-Z0-9\\u0080-\\uffff]+', ' ', 'g')) \
                       @@ to_tsquery('simple', $1) \
                   AND s.id < $2 AND s.id >= $8 AND s.kind = ANY($3) AND ($4 = 0 OR s.run_id = $4)) \
               SELECT s.id, s.attempt, s.kind, s.body, s.at_ms, r.public_id AS run, c.public_id AS campaign, x.task \
               FROM found f JOIN search_document s ON s.id = f.id JOIN run r ON r.id = s.run_id \
               JOIN campaign c ON c.id = r.campaign_id JOIN attempt_run x ON x.run_id = s.run_id \
               WHERE ($5 = 0 OR r.campaign_id = $5) AND ($7 = '' OR x.task = $7) ORDER BY s.id DESC LIMIT $6",
};

/// Counts matches, up to `$6`.
pub(crate) const COUNT: Sql = Sql {
    sqlite: "SELECT COUNT(*) FROM (SELECT 1 FROM search_text t JOIN search_document s ON s.id = t.rowid \
               JOIN run r ON r.id = s.run_id JOIN attempt_run x ON x.run_id = s.run_id \
             WHERE search_text MATCH $1 AND t.rowid < $2 AND s.kind IN (SELECT value FROM json_each($3)) \
               AND ($4 = 0 OR s.run_id = $4) AND ($5 = 0 OR r.campaign_id = $5) \
               AND ($7 = '' OR x.task = $7) LIMIT $6)",
    postgres: "SELECT COUNT(*) FROM (SELECT 1 FROM search_document s \
                 JOIN run r ON r.id = s.run_id JOIN attempt_run x ON x.run_id = s.run_id \
               WHERE to_tsvector('simple', regexp_replace(s.body, '[^a-zA-Z0-9\\u0080-\\uffff]+', ' ', 'g')) \
                     @@ to_tsquery('simple', $1) \
                 AND s.id < $2 AND s.kind = ANY($3) AND ($4 = 0 OR s.run_id = $4) \
                 AND ($5 = 0 OR r.campaign_id = $5) AND ($7 = '' OR x.task = $7) LIMIT $6) AS found",
};

/// The id of the newest text.
const NEWEST: &str = "SELECT COALESCE(MAX(id), 0) FROM search_document";

pub(crate) async fn page(connection: &mut Connection, query: &SearchQuery) -> Result<SearchPage, Failure> {
    let terms = terms(&query.text);
    if terms.is_empty() {
        return Ok(SearchPage { items: Vec::new(), next: None, total: 0 });
    }
    let before = match query.before.as_deref() {
        None => i64::MAX,
        Some(cursor) => cursor.parse().map_err(|_| Failure::not_a_cursor())?,
    };
    let run_id = match &query.run {
        None => 0,
        Some(id) => run::key_of(connection, id.as_str()).await?,
    };
    let campaign_id = match &query.campaign {
        None => 0,
        Some(id) => campaign::key_of(connection, id.as_str()).await?,
    };
    let kinds = if query.kinds.is_empty() { &SearchKind::ALL[..] } else { &query.kinds };
    let kinds: Vec<String> = kinds.iter().map(|kind| kind.as_str().to_owned()).collect();
    let words = match connection.backend() {
        Backend::Sqlite => for_fts5(&terms),
        Backend::Postgres => for_tsquery(&terms),
    };
    let limit = query.limit.unwrap_or(MAX_PAGE_ROWS).min(MAX_PAGE_ROWS);
    let task = json::clean(query.task.as_deref().unwrap_or_default());
    let mut rows: Vec<Row> = Vec::new();
    let mut part = Part::newest(connection, before).await?;
    loop {
        let left = limit + 1 - u32::try_from(rows.len()).unwrap_or(limit);
        let values =
            values![words.as_str(), part.before, kinds.clone(), run_id, campaign_id, left, task.as_ref(), part.from];
        rows.extend(connection.fetch_all(FIND, values).await?);
        if rows.len() > usize::try_from(limit).unwrap_or(usize::MAX) || part.from <= FIRST_ID {
            break;
        }
        part = part.older();
    }
    let most = to_stored(MAX_COUNTED_HITS);
    let values = values![words, i64::MAX, kinds, run_id, campaign_id, most, task.as_ref()];
    let total = from_stored(connection.fetch_one(COUNT, values).await?.i64(0)?);
    let wanted = usize::try_from(limit).unwrap_or(usize::MAX);
    let mut next = None;
    if rows.len() > wanted
        && let Some(last) = wanted.checked_sub(1).and_then(|place| rows.get(place))
    {
        next = Some(last.i64("id")?.to_string());
    }
    let items = rows.iter().take(wanted).map(|row| hit(row, &terms)).collect::<Result<Vec<_>, _>>()?;
    Ok(SearchPage { items, next, total })
}

/// A range of text ids.
///
/// Postgres finds all matches of a range before it returns the newest, and reads each text again for phrases. So the
/// search begins with a small range of the newest texts, and continues with older, larger ranges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Part {
    from: i64,
    before: i64,
    texts: i64,
}

/// The lowest id of a text.
const FIRST_ID: i64 = 1;
/// Size of the newest range, in texts.
const NEWEST_TEXTS: i64 = 2_000;
/// Growth factor of each older range.
const GROWS: i64 = 8;

impl Part {
    /// Returns the first range. `SQLite` scans from the newest text on by itself, and stops when it has enough matches.
    async fn newest(connection: &mut Connection, before: i64) -> Result<Self, Failure> {
        if connection.backend() == Backend::Sqlite {
            return Ok(Self { from: FIRST_ID, before, texts: 0 });
        }
        let end = connection.fetch_one(NEWEST, values![]).await?.i64(0)?.saturating_add(1).min(before);
        Ok(Self { from: end.saturating_sub(NEWEST_TEXTS).max(FIRST_ID), before: end, texts: NEWEST_TEXTS })
    }

    /// Returns the range before this one.
    fn older(self) -> Self {
        let texts = self.texts.saturating_mul(GROWS);
        Self { from: self.from.saturating_sub(texts).max(FIRST_ID), before: self.from, texts }
    }
}

fn hit(row: &Row, terms: &[Term]) -> Result<SearchHit, Failure> {
    let attempt = count_from_stored(row.i64("attempt")?);
    let found = excerpt(row.str("body")?, terms);
    Ok(SearchHit {
        kind: kind_of(row.str("kind")?)?,
        run: public_id(row.str("run")?, "a run's id")?,
        campaign: public_id(row.str("campaign")?, "a campaign's id")?,
        task: row.text("task")?,
        attempt: (attempt > 0).then_some(attempt),
        at: TimestampMs(row.i64("at_ms")?),
        line: found.line,
        excerpt: found.text,
        matches: found.matches,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_follow_each_other_without_a_gap_to_the_oldest_text() {
        let mut part = Part { from: 998_001, before: 1_000_001, texts: NEWEST_TEXTS };
        let mut seen = vec![part];
        while part.from > FIRST_ID {
            part = part.older();
            assert_eq!(part.before, seen.last().map_or(0, |newer| newer.from));
            assert!(part.from < part.before);
            seen.push(part);
        }
        assert_eq!((part.from, seen.len()), (FIRST_ID, 4), "{seen:?}");
    }
}
