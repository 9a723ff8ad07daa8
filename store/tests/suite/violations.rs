//! The search for contradictions finds them.

use nightshift_engine::store::TryEnd;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection};

use crate::bench::{Bench, done, lost};

/// Damage that somebody might do, and a part of the sentence that names it.
const DAMAGES: &[(&str, &str)] = &[
    ("DELETE FROM event WHERE seq = 2", "has no gaps"),
    ("UPDATE event SET kind = 'run_paused' WHERE seq = 1", "begins with the creation"),
    ("UPDATE run SET wake_seq = 1", "last event that asks"),
    ("DELETE FROM run_state", "has a state"),
    ("UPDATE run SET status = 'completed'", "a run that is over"),
    ("UPDATE run SET status = 'cancelling'", "being cancelled"),
    ("INSERT INTO timer SELECT step_id, 1 FROM lease", "at most one of"),
    ("DELETE FROM lease", "a lease exists exactly"),
    ("UPDATE lease SET epoch = epoch + 1", "a lease exists exactly"),
    ("UPDATE run SET status = 'paused'", "a ready step is scheduled"),
    ("UPDATE step SET status = 'cancelled' WHERE key = 'later'", "a timer belongs"),
    ("DELETE FROM ready", "is ready or waits"),
    ("DELETE FROM timer", "is ready or waits"),
    ("UPDATE step SET tries = epoch + 1", "as often as it was leased"),
    ("UPDATE step SET status = 'scheduled' WHERE key = 'done'", "committed at most once"),
    ("UPDATE step SET output_seq = 1 WHERE key = 'done'", "names the event"),
    ("UPDATE step SET status = 'failed' WHERE key = 'done'", "failed step has its failure"),
    ("UPDATE step SET status = 'cancelled' WHERE key = 'done'", "cancelled step has its end"),
    ("UPDATE step SET finished_at_ms = NULL WHERE key = 'done'", "knows the moment"),
    ("DELETE FROM step_input", "has its input"),
    ("DELETE FROM worker", "references lead somewhere"),
];

#[tokio::test]
async fn every_damage_is_found_and_named() {
    let bench = Bench::new().await;
    let run = bench.run().await;
    bench.schedule(&run, &["done", "later", "held", "ready"]).await;
    let worker = bench.worker().await;
    let steps = bench.claim(&worker, 3).await;
    bench.report(&steps[0], done(serde_json::json!(1))).await;
    bench.report(&steps[1], TryEnd::Retry { failure: lost(), at: bench.now().plus_ms(9) }).await;
    bench.assert_sound().await;
    bench.store.close().await.unwrap();

    let sound = std::fs::read(bench.store.database()).unwrap();
    for (damage, named) in DAMAGES {
        let damaged = Bench::new().await;
        damaged.store.close().await.unwrap();
        std::fs::write(damaged.store.database(), &sound).unwrap();
        let options = SqliteConnectOptions::new().filename(damaged.store.database()).foreign_keys(false);
        let mut connection = options.connect().await.unwrap();
        sqlx::query(AssertSqlSafe(*damage)).execute(&mut connection).await.unwrap();
        connection.close().await.unwrap();
        let store = crate::bench::open(damaged.folder.path()).await;
        let violations = store.find_violations().await.unwrap();
        assert!(violations.iter().any(|sentence| sentence.contains(named)), "{damage}\n{violations:#?}");
    }
}
