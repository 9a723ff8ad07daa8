//! Tests that statements use the indexes of the schema, with many rows in the tables.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use nightshift_testbed::postgres::Cluster;
use sea_query::{PostgresQueryBuilder, SqliteQueryBuilder};
use sqlx::{AssertSqlSafe, Executor as _, Row as _, SqliteConnection};

use crate::attempt::document;
use crate::attempt::{refresh, tagged, write};
use crate::catalog::run_list::{self, ListFilter};
use crate::catalog::{
    campaign, event, ids, lease, lesson, model_call, note, ownership, piece, prune, retrieval, run, schedule, score,
    step, timer, token, watch,
};
use crate::connection::Sql;
use crate::postgres::open::PostgresOptions;
use crate::search::find;
use crate::sqlite::open::{OpenOptions, connect, open};

/// Test data: many runs, each with ten steps and twenty events. One in fifty is unfinished.
const SEASON: [&str; 19] = [
    "INSERT INTO campaign (id, public_id, name, spec, created_at_ms) SELECT i, 'cmp_' || i, 'c', '{}', 0 FROM n WHERE i <= 100",
    "INSERT INTO route (id, needs) SELECT i, 'route ' || i FROM n WHERE i <= 20",
    "INSERT INTO worker (id, public_id, name, embedded, offers, version) SELECT i, 'wrk_' || i, 'w', 0, '{}', '0' FROM n WHERE i <= 50",
    "INSERT INTO server (id, public_id, name, version, address, started_at_ms, expires_at_ms) SELECT i, 'srv_' || i, 's', '0', 'a', 0, 5 FROM n WHERE i <= 3",
    "INSERT INTO run (id, public_id, campaign_id, status, owner_id, owner_epoch, last_seq, wake_seq, folded_seq, digest, created_at_ms, finished_at_ms) \
     SELECT i, 'run_' || i, 1 + i % 100, CASE WHEN i % 50 = 0 THEN 'running' ELSE 'completed' END, 1, 1, 20, 20, \
            CASE WHEN i % 100 = 0 THEN 19 ELSE 20 END, '{}', 0, CASE WHEN i % 50 = 0 THEN NULL ELSE i END FROM n WHERE i <= 2000",
    "INSERT INTO event (run_id, seq, at_ms, kind, body) SELECT r.id, n.i, 0, 'step_completed', '{}' FROM run r, n WHERE n.i <= 20",
    "INSERT INTO run_part (run_id, field, number, value, revision) SELECT r.id, 'attempts', n.i, '{}', n.i FROM run r, n WHERE n.i <= 10",
    "INSERT INTO step (id, public_id, run_id, key, kind, route_id, status, max_tries, first_delay_ms, max_delay_ms, timeout_ms, \
                       cost_ms, scheduled_seq, scheduled_at_ms) \
     SELECT r.id * 10 + n.i, 'stp_' || (r.id * 10 + n.i), r.id, 's' || n.i, 'plan', 1 + (r.id + n.i) % 20, 'completed', 5, 1, 1, 1, 1, n.i, 0 \
     FROM run r, n WHERE n.i <= 10",
    "INSERT INTO step_input (step_id, input) SELECT id, '{}' FROM step",
    "INSERT INTO ready (route_id, rank, step_id, campaign_id, latest_start_ms) \
     SELECT s.route_id, s.id, s.id, r.campaign_id, s.id FROM step s JOIN run r ON r.id = s.run_id WHERE s.id % 10 = 1",
    "INSERT INTO lease (step_id, epoch, worker_id, expires_at_ms) SELECT id, 1, 1 + id % 50, id FROM step WHERE id % 10 = 2",
    "INSERT INTO timer (step_id, not_before_ms) SELECT id, id FROM step WHERE id % 10 = 3",
    "INSERT INTO blocked (step_id, campaign_id, resource) \
     SELECT s.id, r.campaign_id, 'tokens' FROM step s JOIN run r ON r.id = s.run_id WHERE s.id % 10 = 4",
    "INSERT INTO artifact (id, hash, size_bytes, stored_bytes, complete, created_at_ms) SELECT i, 'h' || i, 0, 0, 1, i FROM n WHERE i <= 2000",
    "INSERT INTO artifact_use (run_id, hash) SELECT i, 'h' || i FROM n WHERE i <= 2000",
    "INSERT INTO token (id, public_id, name, role, secret_hash, created_at_ms) SELECT i, 'tok_' || i, 't', 'viewer', 's' || i, 0 FROM n WHERE i <= 2000",
    "INSERT INTO attempt_run (run_id, run, campaign, task, target, strategy, form, indexed_seq, changed) \
     SELECT id, public_id, 'cmp_' || campaign_id, 't', 'cpu', 's', 1, 19, id FROM run",
    "INSERT INTO attempt (run_id, number, stage, outcome, is_best, is_confirmed, tokens, model, created_at_ms) \
     SELECT r.id, n.i, 'draft', 'crashed', 0, 0, 1, 'm', 0 FROM run r, n WHERE n.i <= 10",
    "INSERT INTO search_document (run_id, attempt, kind, part, digest, body, at_ms) \
     SELECT r.id, n.i, 'source', 0, 'd', 'text ' || r.id || ' ' || n.i, 0 FROM run r, n WHERE n.i <= 5",
];

/// A statement with parameter values for Postgres, and the indexes it must use on each database.
struct Case {
    sql: Sql,
    values: &'static [&'static str],
    on_sqlite: &'static [&'static str],
    on_postgres: &'static [&'static str],
}

fn case(
    sql: impl Into<Sql>,
    values: &'static [&'static str],
    on_sqlite: &'static [&'static str],
    on_postgres: &'static [&'static str],
) -> Case {
    Case { sql: sql.into(), values, on_sqlite, on_postgres }
}

/// Returns the cases of the search for ids.
fn ids_cases() -> Vec<Case> {
    vec![
        case(
            ids::RUNS.by_beginning,
            &["'run_12'", "'run_12g'", "9"],
            &["USING COVERING INDEX", "(public_id>? AND public_id<?)"],
            &["run_public_id_key"],
        ),
        case(ids::RUNS.by_ending, &["'21'", "'21g'", "'12'", "9"], &["USING INDEX run_by_ending"], &["run_by_ending"]),
        case(
            ids::CAMPAIGNS.by_ending,
            &["'21'", "'21g'", "'12'", "9"],
            &["USING INDEX campaign_by_ending"],
            &["campaign_by_ending"],
        ),
    ]
}

/// Returns the cases of reading what changed for the index of attempts.
fn change_cases() -> Vec<Case> {
    vec![
        case(write::BEHIND, &["1", "1990", "200"], &["r USING INTEGER PRIMARY KEY (rowid>?)"], &["run_pkey"]),
        case(write::OLDEST_UNFINISHED, &[], &["run_by_status (status=?)"], &["run_by_status"]),
        case(
            step::LIST_HEADS_BETWEEN,
            &["'run_7'", "'s1/'", "'s10'"],
            &["(run_id=? AND key>? AND key<?)"],
            &["step_run_id_key_key"],
        ),
        case(run::LOAD_CHANGED, &["'run_7'", "3"], &["run_part_by_revision (run_id=? AND revision>?)"], &["run_part_"]),
        case(
            document::OF_ATTEMPT,
            &["'run_7'", "3"],
            &["(run_id=? AND attempt=?)"],
            &["search_document_run_id_attempt"],
        ),
    ]
}

fn all_cases() -> impl Iterator<Item = Case> {
    cases().into_iter().chain(ids_cases()).chain(change_cases())
}

fn cases() -> Vec<Case> {
    vec![
        case(run::TO_DRIVE, &["10"], &["run_to_drive", "run_by_status (status=?)"], &["run_to_drive", "run_by_status"]),
        case(run::LOAD, &["'run_7'"], &["sqlite_autoindex_run_1 (public_id=?)"], &["run_public_id_key"]),
        case(
            event::AFTER,
            &["'run_7'", "3", "10", "1000"],
            &["sqlite_autoindex_event_1 (run_id=? AND seq>?)", "sqlite_autoindex_event_1 (run_id=? AND seq=?)"],
            &["event_pkey"],
        ),
        case(step::LIST_HEADS, &["'run_7'"], &["(run_id=?)"], &["on step"]),
        case(
            step::READY_ROUTES,
            &["10"],
            &["(route_id>?)", "(route_id=?)", "INTEGER PRIMARY KEY (rowid=?)"],
            &["ready_pkey"],
        ),
        case(lease::EXPIRED, &["30", "10"], &["lease_by_expiry (expires_at_ms<?)"], &["lease_by_expiry"]),
        case(
            lease::EXTEND,
            &["'[[\"stp_12\",1]]'", "1", "5", "9"],
            &["lease USING INTEGER PRIMARY KEY (rowid=?)"],
            &["lease_by_worker"],
        ),
        case(timer::DUE, &["30", "10"], &["timer_by_moment (not_before_ms<?)"], &["timer_by_moment"]),
        case(
            timer::NEXT,
            &[],
            &["timer_by_moment", "ready_by_latest_start"],
            &["timer_by_moment", "ready_by_latest_start"],
        ),
        case(
            timer::TOO_LATE,
            &["30", "10"],
            &["ready_by_latest_start (latest_start_ms>? AND latest_start_ms<?)"],
            &["ready_by_latest_start"],
        ),
        case(schedule::OF_THE_WINDOW, &["7"], &["ready_by_campaign (campaign_id=?)"], &["ready_by_campaign"]),
        case(ownership::AHEAD, &["1", "3", "10"], &["run_to_drive"], &["run_to_drive"]),
        case(ownership::TO_BE_ENDED, &["1", "3", "10"], &["run_by_status (status=?)"], &["run_by_status"]),
        case(
            campaign::LIST,
            &["90", "10"],
            &["INTEGER PRIMARY KEY (rowid<?)", "run_by_campaign_and_status"],
            &["campaign_pkey"],
        ),
        case(token::FIND, &["'s7'"], &["(secret_hash=?)"], &["token_secret_hash_key"]),
        case(model_call::FIND, &["1", "'s'", "1", "'h'"], &["sqlite_autoindex_model_call_1"], &["model_call_pkey"]),
        case(note::SEARCH, &["'word'", "9"], &["SCAN t VIRTUAL TABLE", "(id=?)"], &["note_text"]),
        case(
            lesson::FIND,
            &["'{a,b}'", "''", "'memory'", "'h'", "9"],
            &["lesson_of_class (operator_class=?)"],
            &["lesson_of_class"],
        ),
        case(refresh::CHANGED, &["1990", "9"], &["attempt_run_by_change (changed>?)"], &["attempt_run_by_change"]),
        case(
            refresh::CHANGED_WITH,
            &["7", "9", "3"],
            &["attempt_run_by_change (changed=? AND rowid>?)"],
            &["attempt_run"],
        ),
        case(refresh::OF_RUNS, &["'{7,8,9}'"], &["sqlite_autoindex_attempt_1 (run_id=?)"], &["attempt_pkey"]),
        case(document::OF_RUN, &["'run_7'"], &["(public_id=?)", "(run_id=?)"], &["search_document_run_id_attempt"]),
        case(
            find::FIND,
            &["'word'", "9000000", "'{source}'", "0", "0", "9", "''", "1"],
            &["SCAN t VIRTUAL TABLE", "s USING INTEGER PRIMARY KEY (rowid=?)"],
            &["search_document_text"],
        ),
        case(
            find::COUNT,
            &["'word'", "9000000", "'{source}'", "0", "0", "9", "''"],
            &["SCAN t VIRTUAL TABLE", "s USING INTEGER PRIMARY KEY (rowid=?)"],
            &["search_document_text"],
        ),
        case(tagged::OF_A_TAG, &["'t'"], &["tag_by_name (tag=?)"], &["tag_by_name"]),
        case(watch::SUMS, &["'{cmp_7}'"], &["run_by_campaign_and_end (campaign_id=?)"], &["run_by_campaign_and_end"]),
        case(retrieval::FIND, &["1", "'s'"], &["(run_id=? AND step_key=?)"], &["retrieval_pkey"]),
        case(score::OF_A_RUN, &["1"], &["(run_id=?)"], &["attempt_score_pkey"]),
        case(
            piece::CHUNKS,
            &["1", "0", "9"],
            &["(artifact_id=? AND offset_bytes>? AND offset_bytes<?)"],
            &["artifact_chunk_pkey"],
        ),
        case(
            piece::OBJECTS,
            &["1", "0", "9"],
            &["artifact_object_by_place (artifact_id=? AND offset_bytes<?)"],
            &["artifact_object_by_place"],
        ),
        case(piece::TO_DELETE, &["9"], &["artifact_object_to_delete (state=?)"], &["artifact_object_to_delete"]),
        case(
            prune::UNUSED_ARTIFACTS,
            &["30", "10"],
            &["artifact_by_age (created_at_ms<?)", "artifact_use_by_hash (hash=?)"],
            &["artifact_by_age"],
        ),
    ]
}

/// Returns a statement that inserts many rows.
fn season(sql: &str, numbers: &str) -> String {
    let with = format!("WITH RECURSIVE n (i) AS ({numbers}) ");
    // Both databases accept the WITH clause before the statement.
    format!("{with}{sql}")
}

#[tokio::test]
async fn statements_use_the_indexes_that_were_made_for_them_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let opened = open(folder.path(), &OpenOptions::default()).await.unwrap();
    let mut writer = connect(&opened.database).await.unwrap();
    fill_sqlite(&mut writer).await;
    for case in all_cases() {
        let plan = sqlite_plan(&mut writer, case.sql.sqlite).await;
        for wanted in case.on_sqlite {
            assert!(plan.contains(wanted), "{}\ndoes not use {wanted}:\n{plan}", case.sql.sqlite);
        }
        // Full scans are allowed for lists that are parameters of the statement, and for indexes that contain only
        // matches.
        let harmless = [
            "VIRTUAL TABLE",
            "run_to_drive",
            "SCAN CONSTANT ROW",
            "(subquery",
            "SCAN wanted",
            "SCAN o",
            "SCAN present",
            "SCAN page",
            "SCAN sized",
            "MATERIALIZE",
        ];
        let scans = plan.lines().filter(|line| line.contains("SCAN"));
        let full: Vec<_> = scans.filter(|line| !harmless.iter().any(|part| line.contains(part))).collect();
        assert!(full.is_empty(), "{}\nreads a whole table:\n{plan}", case.sql.sqlite);
    }
    for campaign_id in [None, Some(1)] {
        for after_id in [None, Some(500)] {
            let filter = ListFilter { campaign_id, status: None, after_id, limit: 10 };
            let plan = sqlite_plan(&mut writer, &run_list::statement(&filter).to_string(SqliteQueryBuilder)).await;
            assert!(!plan.contains("TEMP B-TREE"), "{campaign_id:?} {after_id:?}\n{plan}");
        }
    }
}

async fn fill_sqlite(writer: &mut SqliteConnection) {
    for sql in SEASON {
        let numbers = "SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000";
        sqlx::raw_sql(AssertSqlSafe(season(sql, numbers))).execute(&mut *writer).await.unwrap();
    }
}

async fn sqlite_plan(connection: &mut SqliteConnection, sql: &str) -> String {
    let explain = AssertSqlSafe(format!("EXPLAIN QUERY PLAN {sql}"));
    let rows = sqlx::query(explain).fetch_all(connection).await.unwrap();
    rows.iter().map(|row| row.get::<String, _>("detail") + "\n").collect()
}

#[tokio::test]
async fn statements_use_the_indexes_that_were_made_for_them_on_postgres() {
    let database = Cluster::shared().create_database().unwrap();
    let opened = crate::postgres::open::open(&database.url, &PostgresOptions::default(), 1).await.unwrap();
    let mut connection = opened.pool.acquire().await.unwrap();
    for sql in SEASON {
        let numbers = "SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000";
        connection.execute(AssertSqlSafe(season(sql, numbers))).await.unwrap();
    }
    connection.execute("ANALYZE").await.unwrap();
    // A test table is small enough for a full scan. With a penalty on scans, a remaining scan shows a missing index.
    connection.execute("SET enable_seqscan = off").await.unwrap();
    let mut statements: Vec<(String, &[&str])> =
        all_cases().map(|case| (with_values(case.sql.postgres, case.values), case.on_postgres)).collect();
    for campaign_id in [None, Some(1)] {
        let filter = ListFilter { campaign_id, status: None, after_id: Some(500), limit: 10 };
        let index: &[&str] = if campaign_id.is_some() { &["run_by_campaign"] } else { &["run_pkey"] };
        statements.push((run_list::statement(&filter).to_string(PostgresQueryBuilder), index));
    }
    for (sql, wanted) in statements {
        let rows = sqlx::query(AssertSqlSafe(format!("EXPLAIN {sql}"))).fetch_all(&mut *connection).await.unwrap();
        let plan: String = rows.iter().map(|row| row.get::<String, _>(0) + "\n").collect();
        for index in wanted {
            assert!(plan.contains(index), "{sql}\ndoes not use {index}:\n{plan}");
        }
        let whole = plan.lines().find(|line| line.contains("Seq Scan on"));
        assert!(whole.is_none(), "{sql}\nreads a whole table:\n{plan}");
    }
}

/// Inserts the values into the statement, because a prepared statement is first planned for its values.
fn with_values(sql: &str, values: &[&str]) -> String {
    values
        .iter()
        .enumerate()
        .rev()
        .fold(sql.to_owned(), |sql, (index, value)| sql.replace(&format!("${}", index + 1), value))
}
