//! Tests of opening a Postgres database: what is accepted, and what is refused and left unchanged.

use futures::future::join_all;
use nightshift_engine::store::{CampaignStore, ChangeStore, Database, RunStore, StoreError};
use nightshift_store::{PostgresOptions, SqlStore};

use crate::bench::Bench;
use crate::place::{Kind, Place, few_connections};
use crate::raw::{Raw, dump};

fn url(place: &Place) -> &str {
    match place {
        Place::Folder(_) => panic!("it has no address"),
        Place::Database(database, _) => &database.url,
    }
}

async fn refused(url: &str) -> StoreError {
    SqlStore::open_postgres(url, PostgresOptions { acquire_timeout_ms: 3_000, ..few_connections() }).await.unwrap_err()
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_named_without_its_password() {
    // No program listens on port 1.
    let error = refused("postgres://nightshift:secret-word@127.0.0.1:1/night").await;
    assert_eq!(error.code(), "store.unreachable", "{error}");
    let text = error.to_string();
    assert!(text.contains("127.0.0.1:1") && text.contains("DATABASE_URL") && !text.contains("secret-word"), "{text}");
    assert!(error.is_transient());
}

#[tokio::test]
async fn an_address_that_is_none_is_said_without_showing_it() {
    let error = refused("postgres://nightshift:secret-word@127.0.0.1:notaport/night").await;
    assert_eq!(error.code(), "store.unusable", "{error}");
    assert!(!error.to_string().contains("secret-word"), "{error}");
}

#[tokio::test]
async fn a_database_that_does_not_exist_is_named_with_what_to_do() {
    let place = Place::new(Kind::Postgres);
    let missing = format!("{}_missing", url(&place));
    let error = refused(&missing).await;
    assert_eq!(error.code(), "store.unreachable", "{error}");
    let text = error.to_string();
    assert!(text.contains("_missing") && text.contains("createdb"), "{text}");
}

#[tokio::test]
async fn a_database_of_another_program_is_refused_and_left_as_it_is() {
    for table in ["invoice (number BIGINT, id BIGINT)", "run (anything TEXT)"] {
        let place = Place::new(Kind::Postgres);
        Raw::connect(&place).await.execute(&format!("CREATE TABLE {table}")).await;
        let before = dump(&place).await;
        let error = refused(url(&place)).await;
        assert_eq!(error.code(), "store.unusable", "{error}");
        let name = table.split(' ').next().unwrap();
        assert!(error.to_string().contains("another program") && error.to_string().contains(name), "{error}");
        assert_eq!(dump(&place).await, before);
    }
}

#[tokio::test]
async fn a_schema_of_a_newer_release_is_refused() {
    let bench = Bench::on(Kind::Postgres).await;
    bench.store.close().await.unwrap();
    let newer = "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
                 VALUES (9999, 'of tomorrow', true, '\\x00', 0)";
    Raw::connect(&bench.place).await.execute(newer).await;
    let error = refused(url(&bench.place)).await;
    assert_eq!(error.code(), "store.too_new", "{error}");
    assert!(error.to_string().contains("9999"), "{error}");
}

#[tokio::test]
async fn a_user_without_permission_to_create_tables_gets_that_error() {
    let place = Place::new(Kind::Postgres);
    let mut raw = Raw::connect(&place).await;
    // Roles belong to the whole server, so the name contains this database's name.
    let role = url(&place).rsplit('/').next().unwrap().to_owned();
    raw.execute(&format!("CREATE ROLE {role} LOGIN; REVOKE CREATE ON SCHEMA public FROM PUBLIC")).await;
    let as_role = url(&place).replace("//nightshift@", &format!("//{role}@"));
    let error = refused(&as_role).await;
    assert_eq!(error.code(), "store.read_only", "{error}");
    assert!(error.to_string().contains("owner"), "{error}");
    raw.execute(&format!("DROP ROLE {role}")).await;
}

#[tokio::test]
async fn processes_that_open_an_empty_database_at_once_all_get_it_migrated_once() {
    let place = Place::new(Kind::Postgres);
    let stores = join_all((0..4).map(|_| place.try_open())).await;
    for store in stores {
        let store = store.unwrap();
        assert_eq!(store.find_violations().await.unwrap(), Vec::<String>::new());
        store.close().await.unwrap();
    }
    let migrations = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../migrations/postgres")).unwrap().count();
    assert_eq!(Raw::connect(&place).await.rows("_sqlx_migrations").await.len(), migrations);
}

#[tokio::test]
async fn a_second_process_works_in_parallel_with_the_first() {
    let bench = Bench::on(Kind::Postgres).await;
    let other = bench.place.open().await;
    let run = bench.run().await;
    assert_eq!(other.load_run(&run).await.unwrap().id, run);
    bench.schedule(&run, &["a"]).await;
    let worker = bench.worker().await;
    assert_eq!(other.claim(bench.claim_request(&worker, 9)).await.unwrap().len(), 1);
    bench.assert_sound().await;
}

#[tokio::test]
async fn a_closed_store_says_so_and_closing_again_is_fine() {
    let bench = Bench::on(Kind::Postgres).await;
    bench.store.close().await.unwrap();
    bench.store.close().await.unwrap();
    let error = bench.store.create_campaign(bench.new_campaign(1)).await.unwrap_err();
    assert!(error.to_string().contains("closed"), "{error}");
    let error = bench.store.gauges().await.unwrap_err();
    assert!(error.to_string().contains("closed"), "{error}");
}
