//! Tests of the backup methods in `docs/how-to/operations.md` while a server writes. The restored campaign continues.

use std::path::Path;
use std::process::Output;
use std::sync::Arc;

use nightshift_protocol::api::{CampaignDetail, ReportResult, TryOutcome};
use nightshift_protocol::run::RunStatus;
use nightshift_store::{ARTIFACT_FOLDER, OpenOptions, SqlStore};
use nightshift_testbed::postgres::Cluster;

use crate::setup::{TestServer, Wish, open_postgres};
use crate::toy::prepared_output;

/// Name of the database in a data folder.
const DATABASE_FILE: &str = "nightshift.db";

/// Runs a program of operators. A missing program fails the test, because the backup could not be tested.
fn run(program: &str, arguments: &[&str]) -> Output {
    #[expect(clippy::disallowed_methods, reason = "what is documented for operators is tried out as they would")]
    let output = std::process::Command::new(program).args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("`{program}` is needed for this test: {error}"));
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

/// Starts a campaign with a leased step, and keeps writing until the backup is done.
async fn back_up_under_load(server: &TestServer, backup: impl FnOnce() + Send + 'static) -> CampaignDetail {
    let (created, _) = server.campaign().await;
    let worker = server.register().await;
    server.claim_one(&worker).await;
    let backup = tokio::task::spawn_blocking(backup);
    let mut number = 0_u32;
    while !backup.is_finished() || number < 20 {
        // Large enough to be an object where there is an object store.
        server.put_artifact(format!("artifact {number} ").repeat(1_000).as_bytes()).await;
        number += 1;
    }
    backup.await.unwrap();
    server.read(&format!("/campaigns/{}", created.campaign)).await
}

/// Checks that the restored server continues the campaign to its end.
async fn goes_on(store: Arc<SqlStore>, before: &CampaignDetail) {
    assert_eq!(store.find_violations().await.unwrap(), Vec::<String>::new());
    let server = TestServer::on(store.ports(), Wish::default()).await;
    let after: CampaignDetail = server.read(&format!("/campaigns/{}", before.summary.id)).await;
    assert_eq!(after.spec, before.spec);
    let bundle = &before.spec.tasks[0].bundle;
    assert!(server.get(&format!("/artifacts/{bundle}")).send().await.unwrap().status().is_success());
    // The lease from the time of the backup expires, and the step is leased again for longer.
    let worker = server.register().await;
    let step = server.claim_one(&worker).await;
    let done = TryOutcome::Completed { output: Box::new(prepared_output()) };
    assert_eq!(server.report(&worker, &step, done).await, ReportResult::Committed);
    server.until_status(&step.run, RunStatus::Completed).await;
    server.stop().await;
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_backup_of_sqlite_that_was_taken_under_load_goes_on() {
    for command in ["VACUUM INTO '{}'", ".backup '{}'"] {
        let (server, folder) = TestServer::start(Wish { lease_ms: 1_000, ..Wish::default() }).await;
        let restored = tempfile::tempdir().unwrap();
        let (from, to) = (text(&folder.path().join(DATABASE_FILE)), text(&restored.path().join(DATABASE_FILE)));
        let command = command.replace("{}", &to);
        let objects = [folder.path(), restored.path()].map(|folder| text(&folder.join(ARTIFACT_FOLDER)));
        let before = back_up_under_load(&server, move || {
            run("sqlite3", &["-cmd", ".timeout 20000", &from, &command]);
            // After the database: every object that its copy names is there.
            run("cp", &["-a", &objects[0], &objects[1]]);
        })
        .await;
        server.stop().await;
        let store = SqlStore::open_sqlite(restored.path(), OpenOptions::default()).await.unwrap();
        goes_on(Arc::new(store), &before).await;
    }
}

#[tokio::test]
async fn a_dump_of_postgres_that_was_taken_under_load_goes_on() {
    let database = || tokio::task::spawn_blocking(|| Cluster::shared().create_database().unwrap());
    let (old, new) = (database().await.unwrap(), database().await.unwrap());
    let folder = tempfile::tempdir().unwrap();
    let dump = text(&folder.path().join("nightshift.dump"));
    let server =
        TestServer::on(open_postgres(&old.url).await.ports(), Wish { lease_ms: 1_000, ..Wish::default() }).await;
    let (from, file) = (old.url.clone(), dump.clone());
    let before = back_up_under_load(&server, move || {
        run("pg_dump", &["--format=custom", "--file", &file, &from]);
    })
    .await;
    server.stop().await;
    let to = new.url.clone();
    tokio::task::spawn_blocking(move || run("pg_restore", &["--no-owner", "--dbname", &to, &dump])).await.unwrap();
    goes_on(open_postgres(&new.url).await, &before).await;
}
