//! The attempts that have a tag. Tags are no part of the columns: people put them there and take them away at any time.

use std::collections::{HashMap, HashSet};

use nightshift_protocol::api::{AttemptFilter, Target};

use super::columns::{Run, Slot};
use crate::connection::Connection;
use crate::failure::Failure;
use crate::json;
use crate::value::values;

/// The numbers of attempts, by the ids of their runs.
#[derive(Debug, Default)]
pub(crate) struct Tagged(HashMap<String, HashSet<u32>>);

/// Served by `tag_by_name`.
pub(crate) const OF_A_TAG: &str = "SELECT target FROM tag WHERE tag = $1";

impl Tagged {
    /// Those that the filter asks for; none when it asks for no tag.
    pub(crate) async fn of(connection: &mut Connection, filter: &AttemptFilter) -> Result<Option<Self>, Failure> {
        let Some(tag) = &filter.tag else { return Ok(None) };
        let mut tagged = Self::default();
        for row in connection.fetch_all(OF_A_TAG, values![json::clean(tag)]).await? {
            if let Ok(Target::Attempt(run, number)) = row.str(0)?.parse::<Target>() {
                tagged.0.entry(run.to_string()).or_default().insert(number);
            }
        }
        Ok(Some(tagged))
    }

    /// Whether an attempt of this run has it.
    pub(super) fn is_in(&self, run: &Run) -> bool {
        self.0.contains_key(&*run.id)
    }

    /// Whether this attempt has it.
    pub(super) fn has(&self, run: &Run, slot: &Slot) -> bool {
        self.0.get(&*run.id).is_some_and(|numbers| numbers.contains(&slot.number))
    }
}
