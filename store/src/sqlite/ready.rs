//! Steps that can begin now. Rows are inserted and deleted, never changed; only running runs have any.

use sqlx::SqliteConnection;

use super::failure::Failure;

/// The oldest steps of a route.
pub(super) const TAKE: &str = "DELETE FROM ready WHERE (route_id, step_id) IN \
     (SELECT route_id, step_id FROM ready WHERE route_id = (SELECT id FROM route WHERE needs = ?1) \
       ORDER BY step_id LIMIT ?2) \
     RETURNING step_id";

/// Whether any of some routes has a step.
pub(super) const ANY: &str = "SELECT EXISTS (SELECT 1 FROM ready WHERE route_id IN \
     (SELECT id FROM route WHERE needs IN (SELECT value FROM json_each(?1))))";

pub(super) async fn insert(connection: &mut SqliteConnection, step_id: i64) -> Result<(), Failure> {
    sqlx::query("INSERT INTO ready (route_id, step_id) SELECT route_id, id FROM step WHERE id = ?1")
        .bind(step_id)
        .execute(connection)
        .await?;
    Ok(())
}

/// Takes the steps of a run out of the list.
pub(super) async fn remove_run(connection: &mut SqliteConnection, run_id: i64) -> Result<(), Failure> {
    sqlx::query(
        "DELETE FROM ready WHERE (route_id, step_id) IN \
         (SELECT route_id, id FROM step WHERE run_id = ?1 AND status = 'scheduled')",
    )
    .bind(run_id)
    .execute(connection)
    .await?;
    Ok(())
}

/// Puts the steps of a run into the list that wait for no timer.
pub(super) async fn restore_run(connection: &mut SqliteConnection, run_id: i64) -> Result<(), Failure> {
    sqlx::query(
        "INSERT INTO ready (route_id, step_id) \
         SELECT route_id, id FROM step \
          WHERE run_id = ?1 AND status = 'scheduled' AND id NOT IN (SELECT step_id FROM timer)",
    )
    .bind(run_id)
    .execute(connection)
    .await?;
    Ok(())
}

/// Takes the oldest steps of a route, at most `count`.
pub(super) async fn take(connection: &mut SqliteConnection, route: &str, count: u32) -> Result<Vec<i64>, Failure> {
    Ok(sqlx::query_scalar(TAKE).bind(route).bind(count).fetch_all(connection).await?)
}

/// Whether any of these routes (a JSON list) has a step.
pub(super) async fn any(connection: &mut SqliteConnection, routes: &str) -> Result<bool, Failure> {
    Ok(sqlx::query_scalar(ANY).bind(routes).fetch_one(connection).await?)
}
