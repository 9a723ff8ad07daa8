//! Attempts with a tag. Tags are no columns, because people add and remove them at any time.

use std::collections::{HashMap, HashSet};

use nightshift_protocol::api::{AttemptFilter, Target};

use super::columns::{Run, Slot};
use crate::connection::Connection;
use crate::failure::Failure;
use crate::json;
use crate::value::values;

/// Numbers of attempts by run id.
#[derive(Debug, Default)]
pub(crate) struct Tagged(HashMap<String, HashSet<u32>>);

/// Uses the index `tag_by_name`.
pub(crate) const OF_A_TAG: &str = "SELECT target FROM tag WHERE tag = $1";

impl Tagged {
    /// Returns the attempts with the tag of the filter, or none if the filter has no tag.
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

    /// Returns whether an attempt of this run has the tag.
    pub(super) fn is_in(&self, run: &Run) -> bool {
        self.0.contains_key(&*run.id)
    }

    /// Returns whether this attempt has the tag.
    pub(super) fn has(&self, run: &Run, slot: &Slot) -> bool {
        self.0.get(&*run.id).is_some_and(|numbers| numbers.contains(&slot.number))
    }
}
