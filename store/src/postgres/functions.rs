//! Postgres functions have a version in their names, so that servers of two releases on one database call their own.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use nightshift_testbed::postgres::Cluster;

use super::open::{PostgresOptions, open};
use crate::connection::Connection;
use crate::value::values;

/// The function from before names had versions. Releases of that time still call it.
const WITHOUT_VERSION: &str = "hot_load";

fn has_version(name: &str) -> bool {
    name.rsplit_once("_v").is_some_and(|(_, version)| version.parse::<u32>().is_ok())
}

#[tokio::test]
async fn functions_have_a_version_in_their_names() {
    let database = Cluster::shared().create_database().unwrap();
    let opened = open(&database.url, &PostgresOptions::default(), 1).await.unwrap();
    let mut connection = Connection::Postgres(opened.pool.acquire().await.unwrap());
    let sql = "SELECT p.proname::text FROM pg_proc p WHERE p.pronamespace = current_schema()::regnamespace \
               AND NOT EXISTS (SELECT 1 FROM pg_depend d WHERE d.objid = p.oid AND d.deptype = 'e') ORDER BY 1";
    let rows = connection.fetch_all(sql, values![]).await.unwrap();
    let names: Vec<String> = rows.iter().map(|row| row.text(0).unwrap()).collect();
    assert!(names.iter().any(|name| name == "hot_load_v2"), "{names:?}");
    let others = names.iter().filter(|name| !has_version(name) && *name != WITHOUT_VERSION).collect::<Vec<_>>();
    assert!(others.is_empty(), "without a version: {others:?}");
}

#[test]
fn no_migration_replaces_what_servers_of_the_release_before_call() {
    for migration in sqlx::migrate!("../migrations/postgres").iter() {
        let text = migration.sql.as_str().to_uppercase();
        assert!(!text.contains("CREATE OR REPLACE FUNCTION"), "{}", migration.description);
    }
}
