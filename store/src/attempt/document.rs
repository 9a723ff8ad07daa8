//! The texts that are searched.

use nightshift_protocol::api::SearchKind;
use nightshift_protocol::id::RunId;
use serde_json::{Value as Json, json};

use super::{Document, DocumentKey, IndexedRun, MAX_DOCUMENT_BYTES};
use crate::connection::{Connection, Sql};
use crate::failure::Failure;
use crate::json;
use crate::number::count_from_stored;
use crate::sql::from_rows;
use crate::value::values;

/// Maximum number and size of the texts stored per statement.
const TEXTS_PER_STATEMENT: usize = 200;
const BYTES_PER_STATEMENT: usize = 2 * 1024 * 1024;

/// Stores texts of runs that this change wrote. A text with an unchanged digest stays.
const PUT: Sql = from_rows!(
    "INSERT INTO search_document (run_id, attempt, kind, part, digest, body, at_ms) \
     SELECT x.run_id, CAST(d.value ->> 1 AS BIGINT), d.value ->> 2, CAST(d.value ->> 3 AS BIGINT), d.value ->> 4, \
            d.value ->> 5, CAST(d.value ->> 6 AS BIGINT) FROM ",
    " JOIN run r ON r.public_id = d.value ->> 0 JOIN attempt_run x ON x.run_id = r.id AND x.changed = $2 WHERE true \
      ON CONFLICT (run_id, attempt, kind, part) DO UPDATE SET digest = excluded.digest, body = excluded.body, \
         at_ms = excluded.at_ms WHERE search_document.digest <> excluded.digest"
);

/// The texts of a run.
pub(crate) const OF_RUN: &str = "SELECT s.attempt, s.kind, s.part, s.digest FROM run r \
     JOIN search_document s ON s.run_id = r.id WHERE r.public_id = $1";

/// The texts of an attempt.
pub(crate) const OF_ATTEMPT: &str = "SELECT s.attempt, s.kind, s.part, s.digest FROM run r \
     JOIN search_document s ON s.run_id = r.id WHERE r.public_id = $1 AND s.attempt = $2";

/// Returns the keys of a run's stored texts, or only those of one attempt.
pub(crate) async fn keys(
    connection: &mut Connection,
    run: &RunId,
    attempt: Option<u32>,
) -> Result<Vec<DocumentKey>, Failure> {
    let rows = match attempt {
        None => connection.fetch_all(OF_RUN, values![run.as_str()]).await?,
        Some(attempt) => connection.fetch_all(OF_ATTEMPT, values![run.as_str(), attempt]).await?,
    };
    rows.iter()
        .map(|row| {
            Ok(DocumentKey {
                attempt: count_from_stored(row.i64(0)?),
                kind: kind_of(row.str(1)?)?,
                part: count_from_stored(row.i64(2)?),
                digest: row.text(3)?,
            })
        })
        .collect()
}

/// Stores the texts of runs that this change wrote.
pub(crate) async fn put(connection: &mut Connection, runs: &[IndexedRun], change: i64) -> Result<(), Failure> {
    let mut rows: Vec<Json> = Vec::new();
    let mut bytes = 0;
    for run in runs {
        for document in &run.documents {
            let row = row(&run.run, document);
            bytes += document.body.len().min(MAX_DOCUMENT_BYTES);
            rows.push(row);
            if rows.len() >= TEXTS_PER_STATEMENT || bytes >= BYTES_PER_STATEMENT {
                connection.execute(PUT, values![json::write(&std::mem::take(&mut rows))?, change]).await?;
                bytes = 0;
            }
        }
    }
    if !rows.is_empty() {
        connection.execute(PUT, values![json::write(&rows)?, change]).await?;
    }
    Ok(())
}

fn row(run: &RunId, document: &Document) -> Json {
    let key = &document.key;
    json!([run, key.attempt, key.kind.as_str(), key.part, key.digest, cut(&document.body), document.at.0])
}

fn cut(body: &str) -> &str {
    let mut end = body.len().min(MAX_DOCUMENT_BYTES);
    while !body.is_char_boundary(end) {
        end -= 1;
    }
    &body[..end]
}

/// Parses a stored kind.
pub(crate) fn kind_of(text: &str) -> Result<SearchKind, Failure> {
    SearchKind::parse(text).ok_or_else(|| Failure::unreadable("the kind of a text", &format!("`{text}` is none")))
}
