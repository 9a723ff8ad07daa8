//! Notes and their search: FTS5 on SQLite, a text search vector on Postgres. Both get normalized words, so that the
//! results do not depend on the tokenizer of the database.

use std::collections::{BTreeMap, BTreeSet};

use nightshift_engine::store::{MAX_SEARCH_WORDS, NoteRecord};
use nightshift_protocol::time::TimestampMs;

use super::MAX_PAGE;
use crate::connection::{Connection, Sql};
use crate::failure::Failure;
use crate::json;
use crate::row::Row;
use crate::sql::any_of;
use crate::transaction::Transaction;
use crate::value::values;

const OF_A_SOURCE: &str =
    "SELECT id, source, title, body, bounds, operators, architectures FROM note WHERE source = $1";

const PUT: &str = "INSERT INTO note (id, source, title, body, bounds, operators, architectures, title_words, body_words, \
     stored_at_ms) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) \
     ON CONFLICT (id) DO UPDATE SET source = excluded.source, title = excluded.title, body = excluded.body, \
         bounds = excluded.bounds, operators = excluded.operators, architectures = excluded.architectures, \
         title_words = excluded.title_words, body_words = excluded.body_words, stored_at_ms = excluded.stored_at_ms";

/// Title and tags weigh five times as much as the text.
pub(crate) const SEARCH: Sql = Sql {
    sqlite: "SELECT n.id, n.source, n.title, n.body, n.bounds, n.operators, n.architectures FROM note_text t \
             JOIN note n ON n.id = t.id WHERE note_text MATCH $1 ORDER BY bm25(note_text, 0.0, 5.0, 1.0), n.id LIMIT $2",
    postgres: "SELECT id, source, title, body, bounds, operators, architectures FROM note \
               WHERE to_tsvector('english', title_words || ' ' || body_words) @@ to_tsquery('english', $1) \
               ORDER BY ts_rank(setweight(to_tsvector('english', title_words), 'A') \
                   || setweight(to_tsvector('english', body_words), 'C'), to_tsquery('english', $1)) DESC, id LIMIT $2",
};

pub(crate) async fn replace(
    transaction: &mut Transaction<'_>,
    source: &str,
    notes: &[NoteRecord],
    at: TimestampMs,
) -> Result<u64, Failure> {
    let connection = &mut *transaction.connection;
    let source = json::clean(source);
    let rows = connection.fetch_all(OF_A_SOURCE, values![source.as_ref()]).await?;
    let mut stored: BTreeMap<String, NoteRecord> = BTreeMap::new();
    for row in &rows {
        let note = record(row)?;
        stored.insert(note.id.clone(), note);
    }
    let mut changed = 0;
    for note in notes {
        let clean = cleaned(note, &source);
        if stored.remove(&clean.id).is_some_and(|stored| stored == clean) {
            continue;
        }
        let tags = [&clean.bounds, &clean.operators, &clean.architectures].map(|tags| tags.join(" ")).join(" ");
        let values = values![
            clean.id.as_str(),
            clean.source.as_str(),
            clean.title.as_str(),
            clean.body.as_str(),
            clean.bounds.join(","),
            clean.operators.join(","),
            clean.architectures.join(","),
            plain_words(&format!("{} {tags}", clean.title)).join(" "),
            plain_words(&clean.body).join(" "),
            at.0
        ];
        changed += connection.execute(PUT, values).await?;
    }
    if !stored.is_empty() {
        let gone: Vec<String> = stored.into_keys().collect();
        changed += connection.execute(any_of!("DELETE FROM note WHERE id", "$1", ""), values![gone]).await?;
    }
    Ok(changed)
}

pub(crate) async fn search(
    connection: &mut Connection,
    words: &[String],
    limit: u32,
) -> Result<Vec<NoteRecord>, Failure> {
    let words: BTreeSet<String> =
        words.iter().flat_map(|word| plain_words(word)).filter(|word| word.len() > 1).take(MAX_SEARCH_WORDS).collect();
    if words.is_empty() {
        return Ok(Vec::new());
    }
    let any = match connection.backend() {
        crate::connection::Backend::Sqlite => {
            words.iter().map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(" OR ")
        }
        crate::connection::Backend::Postgres => words.into_iter().collect::<Vec<_>>().join(" | "),
    };
    connection.fetch_all(SEARCH, values![any, limit.min(MAX_PAGE)]).await?.iter().map(record).collect()
}

/// Splits a text into lower-case words of letters and digits, which have no special meaning in a search.
fn plain_words(text: &str) -> Vec<String> {
    text.split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_ascii_lowercase)
        .collect()
}

fn cleaned(note: &NoteRecord, source: &str) -> NoteRecord {
    let tags = |tags: &[String]| -> Vec<String> {
        // A comma separates tags in the database.
        tags.iter().map(|tag| json::clean(tag).replace(',', " ")).filter(|tag| !tag.is_empty()).collect()
    };
    NoteRecord {
        id: json::clean(&note.id).into_owned(),
        source: source.to_owned(),
        title: json::clean(&note.title).into_owned(),
        body: json::clean(&note.body).into_owned(),
        bounds: tags(&note.bounds),
        operators: tags(&note.operators),
        architectures: tags(&note.architectures),
    }
}

fn record(row: &Row) -> Result<NoteRecord, Failure> {
    let tags = |column: &'static str| -> Result<Vec<String>, Failure> {
        Ok(row.str(column)?.split(',').filter(|tag| !tag.is_empty()).map(str::to_owned).collect())
    };
    Ok(NoteRecord {
        id: row.text("id")?,
        source: row.text("source")?,
        title: row.text("title")?,
        body: row.text("body")?,
        bounds: tags("bounds")?,
        operators: tags("operators")?,
        architectures: tags("architectures")?,
    })
}
