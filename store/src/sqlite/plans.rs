//! The indexes that the schema names are the ones that hot statements use, with many rows in the tables.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use sea_query::SqliteQueryBuilder;
use sqlx::{Row, SqliteConnection};

use super::open::{OpenOptions, open};
use super::{event, lease, ready, run, step, timer};
use crate::run_list::{self, RunListFilter};

/// Runs, each with ten steps and twenty events.
const RUNS: u32 = 1_000;

/// Fills the tables as a long season would. Like the real ones they have no statistics.
const SEASON: &str = "
    INSERT INTO campaign VALUES (1, 'cmp_1', 'c', '{}', 0);
    INSERT INTO route VALUES (1, 'agent/-/none'), (2, 'worker/cpu/none');
    INSERT INTO worker VALUES (1, 'wrk_1', 'w', 0, '{}', '0');
    WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < RUNS)
    INSERT INTO run (id, public_id, campaign_id, status, last_seq, wake_seq, folded_seq, digest, created_at_ms)
        SELECT i, 'run_' || i, 1, iif(i % 50 = 0, 'running', 'completed'), 20, 20, iif(i % 100 = 0, 19, 20), '{}', 0 FROM n;
    WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20)
    INSERT INTO event SELECT run.id, i, 0, 'step_completed', '{}' FROM run, n;
    WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10)
    INSERT INTO step (public_id, run_id, key, kind, route_id, status, max_tries, first_delay_ms, max_delay_ms,
                      timeout_ms, scheduled_at_ms)
        SELECT 'stp_' || run.id || '_' || i, run.id, 's' || i, 'plan', 1 + i % 2, 'completed', 5, 1, 1, 1, 0 FROM run, n;
    INSERT INTO step_input SELECT id, '{}' FROM step;
    INSERT INTO ready SELECT route_id, id FROM step WHERE id % 10 = 1;
    INSERT INTO lease SELECT id, 1, 1, id FROM step WHERE id % 10 = 2;
    INSERT INTO timer SELECT id, id FROM step WHERE id % 10 = 3;
";

async fn plan(connection: &mut SqliteConnection, sql: &str) -> String {
    let explain = sqlx::AssertSqlSafe(format!("EXPLAIN QUERY PLAN {sql}"));
    let rows = sqlx::query(explain).fetch_all(connection).await.unwrap();
    rows.iter().map(|row| row.get::<String, _>("detail") + "\n").collect()
}

#[tokio::test]
async fn hot_statements_use_the_indexes_that_were_made_for_them() {
    let folder = tempfile::tempdir().unwrap();
    let opened = open(folder.path(), &OpenOptions::default()).await.unwrap();
    let mut writer = opened.writer;
    let season = sqlx::AssertSqlSafe(SEASON.replace("RUNS", &RUNS.to_string()));
    sqlx::raw_sql(season).execute(&mut writer).await.unwrap();

    let expected = [
        (run::TO_DRIVE, "run_to_drive"),
        (run::TO_DRIVE, "run_by_status (status=?)"),
        (event::AFTER, "sqlite_autoindex_event_1 (run_id=? AND seq>?)"),
        (step::LIST, "step_by_run (run_id=?)"),
        (ready::TAKE, "PRIMARY KEY (route_id=?)"),
        (ready::ANY, "PRIMARY KEY (route_id=?)"),
        (lease::EXPIRED, "lease_by_expiry (expires_at_ms<?)"),
        (lease::EXTEND, "lease USING INTEGER PRIMARY KEY (rowid=?)"),
        (timer::DUE, "timer_by_moment (not_before_ms<?)"),
        (timer::NEXT, "timer_by_moment"),
    ];
    for (sql, wanted) in expected {
        let plan = plan(&mut writer, sql).await;
        assert!(plan.contains(wanted), "{sql}\ndoes not use {wanted}:\n{plan}");
        let scans = plan.lines().filter(|line| line.contains("SCAN"));
        // What may be read from end to end: lists that came with the statement, and indexes of nothing but hits.
        let harmless = ["VIRTUAL TABLE", "run_to_drive", "SCAN CONSTANT ROW", "(subquery"];
        let full: Vec<_> = scans.filter(|line| !harmless.iter().any(|part| line.contains(part))).collect();
        assert!(full.is_empty(), "{sql}\nreads a whole table:\n{plan}");
    }
}

#[tokio::test]
async fn lists_of_runs_stop_at_the_end_of_their_page() {
    let folder = tempfile::tempdir().unwrap();
    let opened = open(folder.path(), &OpenOptions::default()).await.unwrap();
    let mut writer = opened.writer;
    let season = sqlx::AssertSqlSafe(SEASON.replace("RUNS", &RUNS.to_string()));
    sqlx::raw_sql(season).execute(&mut writer).await.unwrap();
    for campaign_id in [None, Some(1)] {
        for after_id in [None, Some(500)] {
            let filter = RunListFilter { campaign_id, status: None, after_id, limit: 10 };
            let plan = plan(&mut writer, &run_list::statement(&filter).to_string(SqliteQueryBuilder)).await;
            assert!(!plan.contains("TEMP B-TREE"), "{campaign_id:?} {after_id:?}\n{plan}");
        }
    }
}
