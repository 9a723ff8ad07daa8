//! Loads all rows of a flush with one Postgres function (`hot_load_v2` of `migrations/postgres/0018_hot_load_locks.sql`).
//!
//! The function takes the locks in order and reads the rows that depend on a lock after taking it. On SQLite a
//! statement is no round trip, so `load.rs` and `candidates.rs` use one statement per kind of row.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use serde_json::Value as Json;

use super::candidates::{Given, candidate, claimer};
use super::claim::Claimer;
use super::load;
use super::working_set::WorkingSet;
use super::{Groups, advances, claims, reported, wanted};
use crate::failure::Failure;
use crate::json;
use crate::postgres::literal::{numbers, texts};
use crate::row::{Cell, CopiedRow, Row};
use crate::transaction::Transaction;

/// Kinds of rows, with the numbers of the function.
mod kind {
    pub(super) const WORKER: i64 = 1;
    pub(super) const RUN: i64 = 2;
    pub(super) const REPORTED: i64 = 3;
    pub(super) const KEY: i64 = 4;
    pub(super) const OPEN: i64 = 5;
    pub(super) const CAMPAIGN: i64 = 6;
    pub(super) const BUDGET: i64 = 7;
    pub(super) const CANDIDATE: i64 = 9;
}

/// Loads the rows. Returns the claiming workers and the inputs of candidates.
pub(super) async fn load(
    transaction: &mut Transaction<'_>,
    set: &mut WorkingSet,
    groups: &Groups<'_>,
) -> Result<(HashMap<String, Claimer>, Given), Failure> {
    let arguments = LoadArguments::of(set, groups);
    if arguments.is_nothing() {
        return Ok((HashMap::new(), Given::new()));
    }
    if arguments.orders > 0 {
        set.free_step_ids = transaction.memory.step_ids(transaction.connection, arguments.orders).await?;
        set.free_step_ids.reverse();
    }
    Found::read(transaction.connection.fetch_at_once(&arguments.call()).await?)?.take_in(set)
}

/// Arguments of the function.
#[derive(Default)]
struct LoadArguments {
    claimers: BTreeSet<String>,
    decided: BTreeSet<String>,
    reported: BTreeSet<String>,
    key_runs: Vec<String>,
    keys: Vec<String>,
    ending: BTreeSet<String>,
    setting_aside: BTreeSet<String>,
    routes: Vec<i64>,
    counts: Vec<i64>,
    moment: i64,
    /// Maximum number of new steps.
    orders: usize,
}

impl LoadArguments {
    fn of(set: &WorkingSet, groups: &Groups<'_>) -> Self {
        let mut arguments = Self::default();
        arguments.claimers.extend(claims(groups).map(|claim| claim.worker.as_str().to_owned()));
        arguments.reported.extend(reported(groups).map(str::to_owned));
        for advance in advances(groups) {
            let run = advance.run.as_str();
            arguments.decided.insert(run.to_owned());
            if advance.end.is_some() {
                arguments.ending.insert(run.to_owned());
                continue;
            }
            for (_, order) in &advance.schedule {
                arguments.key_runs.push(run.to_owned());
                arguments.keys.push(json::clean(&order.key).into_owned());
                arguments.orders += 1;
                if !order.reserve.is_empty() {
                    arguments.setting_aside.insert(run.to_owned());
                }
            }
        }
        if let Some((wanted, at)) = wanted(set, groups) {
            arguments.moment = at.0;
            for (route, count) in wanted {
                arguments.routes.push(route);
                arguments.counts.push(i64::from(count));
            }
        }
        arguments
    }

    fn is_nothing(&self) -> bool {
        self.claimers.is_empty() && self.decided.is_empty() && self.reported.is_empty()
    }

    /// Returns the call, which is sent together with the start of its transaction.
    fn call(&self) -> String {
        let list = |list: &BTreeSet<String>| texts(list.iter().map(String::as_str));
        let ordered = |list: &[String]| texts(list.iter().map(String::as_str));
        format!(
            "SELECT kind, cells, body FROM hot_load_v2({}, {}, {}, {}, {}, {}, {}, {}, {}, {})",
            list(&self.claimers),
            list(&self.decided),
            list(&self.reported),
            ordered(&self.key_runs),
            ordered(&self.keys),
            list(&self.ending),
            list(&self.setting_aside),
            numbers(&self.routes),
            numbers(&self.counts),
            self.moment,
        )
    }
}

/// Result of the function, by kind.
#[derive(Default)]
struct Found {
    rows: BTreeMap<i64, Vec<Row>>,
    /// Inputs of the candidates, in their order.
    bodies: Vec<Option<String>>,
}

impl Found {
    fn read(rows: Vec<Row>) -> Result<Self, Failure> {
        let mut found = Self::default();
        let unnamed: Arc<[String]> = Arc::new([]);
        for row in rows {
            let kind = row.i64(0)?;
            let row_of_kind = unpacked(row.str(1)?, &unnamed)?;
            if kind == kind::CANDIDATE {
                found.bodies.push(row.opt_text(2)?);
            }
            found.rows.entry(kind).or_default().push(row_of_kind);
        }
        Ok(found)
    }

    fn take(&mut self, kind: i64) -> Vec<Row> {
        self.rows.remove(&kind).unwrap_or_default()
    }

    fn take_in(mut self, set: &mut WorkingSet) -> Result<(HashMap<String, Claimer>, Given), Failure> {
        let claimers = self.take(kind::WORKER).iter().map(claimer).collect::<Result<_, _>>()?;
        for row in self.take(kind::RUN) {
            set.add_run(load::run(&row)?);
        }
        load::take_in_reported(set, &self.take(kind::REPORTED))?;
        for row in self.take(kind::KEY) {
            set.taken_keys.insert(load::key(&row)?);
        }
        load::take_in(set, &self.take(kind::OPEN))?;
        for row in self.take(kind::CAMPAIGN) {
            let campaign = load::campaign(&row)?;
            set.campaigns.insert(campaign.id, campaign);
        }
        load::take_in_budgets(set, &self.take(kind::BUDGET))?;
        let mut given = Given::new();
        let bodies = std::mem::take(&mut self.bodies);
        for (row, body) in self.take(kind::CANDIDATE).iter().zip(bodies) {
            let id = candidate(set, row)?;
            if let Some(body) = body {
                given.insert(id, body);
            }
        }
        Ok((claimers, given))
    }
}

/// Unpacks a row from a JSON list.
fn unpacked(cells: &str, unnamed: &Arc<[String]>) -> Result<Row, Failure> {
    let unreadable = || Failure::unreadable("a row of the hot path", &"it is not as the function gives it");
    let Json::Array(list) = json::read(cells).map_err(|error| Failure::unreadable("a row of the hot path", &error))?
    else {
        return Err(unreadable());
    };
    let cells = list.into_iter().map(|value| match value {
        Json::Null => Some(Cell::Null),
        Json::Number(number) => number.as_i64().map(Cell::I64),
        Json::String(text) => Some(Cell::Text(text)),
        Json::Array(digits) => match digits.as_slice() {
            [Json::String(digits)] => bytes(digits).map(Cell::Bytes),
            _ => None,
        },
        Json::Bool(_) | Json::Object(_) => None,
    });
    let cells = cells.collect::<Option<Vec<Cell>>>().ok_or_else(unreadable)?;
    Ok(Row::Copied(CopiedRow { cells, names: Arc::clone(unnamed) }))
}

/// Decodes hexadecimal digits.
fn bytes(digits: &str) -> Option<Vec<u8>> {
    let digit = |place: usize| char::from(*digits.as_bytes().get(place)?).to_digit(16);
    let byte = |place: usize| u8::try_from(digit(place)? << 4 | digit(place + 1)?).ok();
    (0..digits.len()).step_by(2).map(byte).collect()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
mod tests {
    use super::*;

    fn row(cells: &str) -> Result<Row, Failure> {
        unpacked(cells, &Arc::from([]))
    }

    #[test]
    fn a_row_is_unpacked_with_every_kind_of_cell() {
        let row = row(r#"[-9223372036854775808, "a\"\u0001é", null, ["00ff1a"]]"#).unwrap();
        assert_eq!(row.i64(0).unwrap(), i64::MIN);
        assert_eq!(row.str(1).unwrap(), "a\"\u{1}é");
        assert_eq!(row.opt_text(2).unwrap(), None);
        assert_eq!(row.bytes(3).unwrap(), [0, 0xff, 0x1a]);
    }

    #[test]
    fn an_invalid_row_is_refused() {
        for cells in ["{}", "[1.5]", "[true]", "[[]]", r#"[["0"]]"#, r#"[["zz"]]"#, "["] {
            assert!(row(cells).is_err(), "{cells}");
        }
    }
}
