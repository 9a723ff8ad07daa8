//! The order of a list, and cursors of its pages.

use nightshift_protocol::api::{AttemptQuery, AttemptSort, SortOrder};

use super::columns::{ABSENT, Key, Slot};
use crate::failure::Failure;

/// The place of an attempt in a list; lower ranks come first.
///
/// Missing values come last in either direction. Run and number break ties.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    is_absent: bool,
    value: i64,
    run_id: i64,
    number: i64,
}

/// A sort order.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Order {
    sort: AttemptSort,
    order: SortOrder,
}

impl Order {
    pub(crate) fn of(query: &AttemptQuery) -> Self {
        Self { sort: query.sort, order: query.order }
    }

    /// Returns the rank of an attempt.
    pub(crate) fn rank(self, run_id: i64, slot: &Slot) -> Rank {
        let value = match self.sort {
            AttemptSort::Created => slot.created_ms,
            AttemptSort::Finished => slot.finished_ms,
            AttemptSort::Speedup => slot.speedup_ppm,
            AttemptSort::SpeedupOverFastest => slot.over_fastest_ppm,
            AttemptSort::Reward => slot.reward_ppm,
            AttemptSort::Cost => slot.cost_microusd,
            AttemptSort::Tokens => slot.tokens,
        };
        self.turned(value, run_id, i64::from(slot.number))
    }

    /// Inverts a rank for descending order, without overflow.
    fn turned(self, value: i64, run_id: i64, number: i64) -> Rank {
        let is_absent = value == ABSENT;
        match self.order {
            SortOrder::Asc => Rank { is_absent, value, run_id, number },
            SortOrder::Desc => Rank { is_absent, value: !value, run_id: !run_id, number: !number },
        }
    }

    /// Returns the key of the attempt at a rank.
    pub(crate) fn key(self, rank: Rank) -> Key {
        let (run_id, number) = match self.order {
            SortOrder::Asc => (rank.run_id, rank.number),
            SortOrder::Desc => (!rank.run_id, !rank.number),
        };
        (run_id, u32::try_from(number).unwrap_or(0))
    }

    /// Returns the cursor of the page after this rank.
    pub(crate) fn cursor(self, rank: Rank) -> String {
        let value = match self.order {
            SortOrder::Asc => rank.value,
            SortOrder::Desc => !rank.value,
        };
        let (run_id, number) = self.key(rank);
        let value = if rank.is_absent { String::new() } else { value.to_string() };
        format!("{}.{}.{value}.{run_id}.{number}", self.sort.as_str(), self.order.as_str())
    }

    /// Parses a cursor, which must belong to this order.
    pub(crate) fn place(self, cursor: &str) -> Result<Rank, Failure> {
        let parts: Vec<&str> = cursor.split('.').collect();
        let read = || {
            let [sort, order, value, run_id, number] = parts.as_slice() else { return None };
            if *sort != self.sort.as_str() || *order != self.order.as_str() {
                return None;
            }
            let value = if value.is_empty() { ABSENT } else { value.parse().ok()? };
            Some(self.turned(value, run_id.parse().ok()?, number.parse().ok()?))
        };
        read().ok_or_else(|| {
            let message = "`before`: it must be the `next` of a page with the same `sort` and `order`";
            Failure::refused("request.invalid_query", message)
        })
    }
}
