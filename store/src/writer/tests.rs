//! Tests of batching, and of recovery from broken connections.

use std::sync::Arc;
use std::time::Duration;

use futures::future::{join_all, try_join_all};
use nightshift_engine::store::{Change, ChangeStore as _, ClaimRequest};
use nightshift_protocol::id::WorkerId;
use nightshift_protocol::time::TimestampMs;
use nightshift_testbed::postgres::Cluster;
use tokio::sync::{Barrier, Semaphore};
use uuid::Uuid;

use super::{MAX_QUEUE, Work};
use crate::value::values;
use crate::{OpenOptions, PostgresOptions, SqlStore};

/// Terminates every other connection to the database.
const END_ALL: &str = "SELECT COUNT(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity \
     WHERE datname = current_database() AND pid <> pg_backend_pid()";

/// Returns an operation that stores a route of this name. A second route of the same name is refused.
fn insert(name: String) -> Work<()> {
    Box::new(move |transaction| {
        let name = name.clone();
        Box::pin(async move {
            transaction.connection.execute("INSERT INTO route (needs) VALUES ($1)", values![name]).await?;
            Ok(())
        })
    })
}

async fn stored(store: &SqlStore) -> Vec<String> {
    let work: Work<Vec<String>> = Box::new(|transaction| {
        Box::pin(async move {
            let rows = transaction.connection.fetch_all("SELECT needs FROM route ORDER BY id", values![]).await?;
            rows.iter().map(|row| row.text(0)).collect()
        })
    });
    store.write(work).await.unwrap()
}

fn claim_of_an_unknown_worker() -> Change {
    Change::Claim(ClaimRequest {
        worker: WorkerId::from_uuid(Uuid::from_u128(7)),
        routes: vec!["a".to_owned()],
        cpu_slots: 1,
        devices: Vec::new(),
        at: TimestampMs(1),
        expires_at: TimestampMs(2),
    })
}

async fn on_sqlite() -> (tempfile::TempDir, SqlStore) {
    let folder = tempfile::tempdir().unwrap();
    let store = SqlStore::open_sqlite(folder.path(), OpenOptions::default()).await.unwrap();
    (folder, store)
}

#[tokio::test]
async fn a_failed_operation_rolls_back_only_itself() {
    let (_folder, store) = on_sqlite().await;
    let failing: Work<()> = Box::new(|transaction| {
        Box::pin(async move {
            insert("b".to_owned())(transaction).await?;
            insert("a".to_owned())(transaction).await
        })
    });
    let group = store.commit(vec![claim_of_an_unknown_worker()]);
    let (first, failed, last, group) = tokio::join!(
        store.write(insert("a".to_owned())),
        store.write(failing),
        store.write(insert("c".to_owned())),
        group
    );
    assert!(first.is_ok() && last.is_ok());
    assert!(failed.unwrap_err().to_string().contains("UNIQUE"));
    assert_eq!(group.unwrap_err().code(), "worker.not_found");
    assert_eq!(stored(&store).await, ["a", "c"]);
}

#[tokio::test]
async fn waiting_changes_share_one_transaction_and_its_outcome() {
    let (_folder, store) = on_sqlite().await;
    let breaking: Work<()> = Box::new(|transaction| Box::pin(async move { transaction.connection.rollback().await }));
    // Keeps the writer until all of them wait, however busy the machine is.
    let (begun, gate) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let keeping: Work<()> = Box::new({
        let (begun, gate) = (begun.clone(), gate.clone());
        move |_| {
            let (begun, gate) = (begun.clone(), gate.clone());
            Box::pin(async move {
                begun.add_permits(1);
                gate.acquire().await.unwrap().forget();
                Ok(())
            })
        }
    });
    let others = async {
        begun.acquire().await.unwrap().forget();
        tokio::join!(
            store.write(insert("a".to_owned())),
            store.write(breaking),
            store.write(insert("b".to_owned())),
            async { gate.add_permits(1) }
        )
    };
    let (kept, (first, broken, last, ())) = tokio::join!(store.write(keeping), others);
    kept.unwrap();
    assert!(first.is_err() && broken.is_err() && last.is_err(), "a failed commit is not acknowledged");
    assert_eq!(stored(&store).await, Vec::<String>::new());
    store.write(insert("d".to_owned())).await.unwrap();
    assert_eq!(stored(&store).await, ["d"]);
}

#[tokio::test]
async fn more_than_fits_the_queue_is_done_all_the_same() {
    let (_folder, store) = on_sqlite().await;
    let many = MAX_QUEUE + 100;
    try_join_all((0..many).map(|n| store.write(insert(n.to_string())))).await.unwrap();
    assert_eq!(stored(&store).await.len(), many);
}

#[tokio::test]
async fn closing_finishes_what_waits_and_refuses_what_comes_later() {
    let (folder, store) = on_sqlite().await;
    let waiting = join_all((0..10).map(|n| store.write(insert(n.to_string()))));
    let (waited, closed) = tokio::join!(waiting, store.close());
    assert!(waited.iter().all(Result::is_ok));
    closed.unwrap();
    store.close().await.unwrap();
    assert!(store.write(insert("x".to_owned())).await.unwrap_err().to_string().contains("closed"));
    assert!(store.commit(Vec::new()).await.is_err());
    let again = SqlStore::open_sqlite(folder.path(), OpenOptions::default()).await.unwrap();
    assert_eq!(stored(&again).await.len(), 10);
}

#[tokio::test]
async fn connections_that_the_server_ended_are_replaced_without_anyone_noticing() {
    let database = Cluster::shared().create_database().unwrap();
    let store = SqlStore::open_postgres(&database.url, PostgresOptions::default()).await.unwrap();
    store.write(insert("a".to_owned())).await.unwrap();
    let unknown = store.commit(vec![claim_of_an_unknown_worker()]).await;
    assert_eq!(unknown.unwrap_err().code(), "worker.not_found");
    let other = SqlStore::open_postgres(&database.url, PostgresOptions::default()).await.unwrap();
    let work: Work<i64> = Box::new(move |transaction| {
        Box::pin(async move {
            let row = transaction.connection.fetch_one(END_ALL, values![]).await?;
            row.i64(0)
        })
    });
    assert!(other.write(work).await.unwrap() >= 2);
    assert_eq!(stored(&store).await, ["a"]);
    store.write(insert("b".to_owned())).await.unwrap();
    let unknown = store.commit(vec![claim_of_an_unknown_worker()]).await;
    assert_eq!(unknown.unwrap_err().code(), "worker.not_found", "it was asked over a new connection");
}

#[tokio::test]
async fn an_operation_that_lost_against_another_one_is_done_again() {
    let database = Cluster::shared().create_database().unwrap();
    let store = SqlStore::open_postgres(&database.url, PostgresOptions::default()).await.unwrap();
    store.write(insert("a".to_owned())).await.unwrap();
    store.write(insert("b".to_owned())).await.unwrap();
    // Each locks one row and then the other's, and Postgres ends one of them.
    let both = Arc::new(Barrier::new(2));
    let crossing = |first: &'static str, second: &'static str| -> Work<()> {
        let both = Arc::clone(&both);
        Box::new(move |transaction| {
            let both = Arc::clone(&both);
            Box::pin(async move {
                let touch = "UPDATE route SET needs = needs WHERE needs = $1";
                transaction.connection.execute(touch, values![first]).await?;
                // The first time, both wait for each other. The repetition is alone.
                let _alone = tokio::time::timeout(Duration::from_millis(500), both.wait()).await;
                transaction.connection.execute(touch, values![second]).await?;
                Ok(())
            })
        })
    };
    let (one, two) = tokio::join!(store.write(crossing("a", "b")), store.write(crossing("b", "a")));
    assert!(one.is_ok() && two.is_ok(), "{one:?} {two:?}");
}
