//! Finds ids of campaigns and runs by a part of them. It reads only indexes.

use nightshift_protocol::id::{CampaignId, RunId};

use super::{MAX_PAGE, public_id};
use crate::connection::{Connection, Sql};
use crate::failure::Failure;
use crate::json;
use crate::value::values;

/// The search statements of a table of ids.
pub(crate) struct IdTable {
    /// The prefix of its ids.
    prefix: &'static str,
    /// Selects ids from `$1` up to `$2` (exclusive), newest first.
    pub(crate) by_beginning: &'static str,
    /// Selects ids that end with `$3` and whose reversed last digits are from `$1` up to `$2` (exclusive).
    pub(crate) by_ending: Sql,
}

/// Number of last digits of an id in the reverse index.
const ENDING_DIGITS: usize = 8;
/// Sorts behind every digit of an id.
const AFTER_DIGITS: char = 'g';

macro_rules! by_beginning {
    ($table:literal) => {
        concat!(
            "SELECT public_id FROM ",
            $table,
            " WHERE public_id >= $1 AND public_id < $2 ORDER BY public_id DESC LIMIT $3"
        )
    };
}

macro_rules! by_ending {
    ($table:literal, $reversed:literal) => {
        concat!(
            "SELECT public_id FROM ",
            $table,
            " WHERE ",
            $reversed,
            " >= $1 AND ",
            $reversed,
            " < $2 AND substr(public_id, length(public_id) - length($3) + 1) = $3 ORDER BY ",
            $reversed,
            " LIMIT $4"
        )
    };
}

macro_rules! on_both {
    ($table:literal) => {
        Sql {
            sqlite: by_ending!(
                $table,
                "(substr(public_id, -1, 1) || substr(public_id, -2, 1) || substr(public_id, -3, 1) || substr(public_id, -4, 1) || \
                 substr(public_id, -5, 1) || substr(public_id, -6, 1) || substr(public_id, -7, 1) || substr(public_id, -8, 1))"
            ),
            postgres: by_ending!($table, "reverse(right(public_id, 8))"),
        }
    };
}

/// Finds the campaigns and runs that a text may refer to.
pub(crate) async fn find(
    connection: &mut Connection,
    text: &str,
    limit: u32,
) -> Result<(Vec<CampaignId>, Vec<RunId>), Failure> {
    let text = json::clean(text).to_ascii_lowercase();
    Ok((find_in(connection, &CAMPAIGNS, &text, limit).await?, find_in(connection, &RUNS, &text, limit).await?))
}

/// Campaigns.
pub(crate) const CAMPAIGNS: IdTable =
    IdTable { prefix: "cmp_", by_beginning: by_beginning!("campaign"), by_ending: on_both!("campaign") };

/// Runs.
pub(crate) const RUNS: IdTable =
    IdTable { prefix: "run_", by_beginning: by_beginning!("run"), by_ending: on_both!("run") };

/// Returns ids that begin with the text, whose digits begin with it, or that end with it. The first two kinds are
/// sorted newest first.
async fn find_in<T: std::str::FromStr<Err: std::fmt::Display>>(
    connection: &mut Connection,
    table: &IdTable,
    text: &str,
    limit: u32,
) -> Result<Vec<T>, Failure> {
    let limit = limit.min(MAX_PAGE);
    let beginning = match (table.prefix.starts_with(text), text.starts_with(table.prefix)) {
        (true, _) => table.prefix.to_owned(),
        (_, true) => text.to_owned(),
        _ => format!("{}{text}", table.prefix),
    };
    let end = format!("{beginning}{AFTER_DIGITS}");
    let mut rows = connection.fetch_all(table.by_beginning, values![beginning, end, limit]).await?;
    if text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        let reversed: String = text.chars().rev().take(ENDING_DIGITS).collect();
        let end = format!("{reversed}{AFTER_DIGITS}");
        rows.extend(connection.fetch_all(table.by_ending, values![reversed, end, text, limit]).await?);
    }
    let mut found: Vec<&str> = Vec::new();
    for row in &rows {
        let id = row.str(0)?;
        if !found.contains(&id) {
            found.push(id);
        }
    }
    found.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
    found.into_iter().map(|id| public_id(id, "an id")).collect()
}
