//! Blocked steps whose budgets have room again.

use crate::connection::Connection;
use crate::failure::Failure;
use crate::value::values;

/// Blocked steps `b` of running runs whose budgets have room.
macro_rules! blocked_with_room {
    () => {
        "FROM blocked b JOIN budget u ON u.campaign_id = b.campaign_id AND u.resource = b.resource \
         JOIN step s ON s.id = b.step_id JOIN run r ON r.id = s.run_id AND r.status = 'running' \
         WHERE b.told = 0 AND (u.cap IS NULL OR u.used + u.reserved < u.cap)"
    };
}
pub(crate) use blocked_with_room;

/// Campaigns with a blocked step of a running run whose budget has room. A release skips runs that another transaction has locked, and
/// leaves their steps to [`super::budget::reconsider`]. The query reads all blocked steps.
const WITH_ROOM: &str =
    concat!("SELECT DISTINCT b.campaign_id ", blocked_with_room!(), " ORDER BY b.campaign_id LIMIT $1");

/// Maximum number of campaigns whose blocked steps one round reconsiders.
const MAX_RECONSIDERED: i64 = 1_000;

/// Returns the campaigns of [`WITH_ROOM`].
pub(crate) async fn with_room(connection: &mut Connection) -> Result<Vec<i64>, Failure> {
    let rows = connection.fetch_all(WITH_ROOM, values![MAX_RECONSIDERED]).await?;
    rows.iter().map(|row| row.i64(0)).collect()
}
