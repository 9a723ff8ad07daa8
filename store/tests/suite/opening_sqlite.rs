//! Tests of opening a SQLite database: what is accepted, and what is refused and left unchanged.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use nightshift_engine::store::{ArtifactStore, CampaignStore, StoreError};
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::time::TimestampMs;
use nightshift_store::sqlite::{DATABASE_FILE, LOCK_FILE};
use nightshift_store::{ARTIFACT_FOLDER, ArtifactOptions, OpenOptions, SqlStore};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection};

use crate::bench::Bench;
use crate::place::{Kind, Place};

fn folder(bench: &Bench) -> &Path {
    match &bench.place {
        Place::Folder(folder) => folder.path(),
        Place::Database(..) => panic!("it is no folder"),
    }
}

fn database(bench: &Bench) -> &Path {
    bench.store.database().unwrap()
}

async fn refused(folder: &Path) -> StoreError {
    SqlStore::open_sqlite(folder, OpenOptions::default()).await.unwrap_err()
}

async fn execute(database: &Path, sql: &str) {
    let mut connection =
        SqliteConnectOptions::new().filename(database).create_if_missing(true).connect().await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
}

#[tokio::test]
async fn closing_leaves_the_database_its_objects_and_the_lock() {
    let bench = Bench::on(Kind::Sqlite).await;
    bench.run().await;
    bench.store.close().await.unwrap();
    bench.store.close().await.unwrap();
    let mut names: Vec<_> =
        fs::read_dir(folder(&bench)).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names, [ARTIFACT_FOLDER, DATABASE_FILE, LOCK_FILE]);
    let error = bench.store.create_campaign(bench.new_campaign(1)).await.unwrap_err();
    assert!(error.to_string().contains("closed"), "{error}");
}

#[tokio::test]
async fn a_new_folder_is_its_owners_alone_and_an_old_one_stays_as_it_is() {
    let outer = tempfile::tempdir().unwrap();
    let mode = |folder: &Path| fs::metadata(folder).unwrap().permissions().mode() & 0o777;
    let (fresh, old) = (outer.path().join("fresh/data"), outer.path().join("old"));
    fs::create_dir(&old).unwrap();
    fs::set_permissions(&old, fs::Permissions::from_mode(0o750)).unwrap();
    for folder in [&fresh, &old] {
        SqlStore::open_sqlite(folder, OpenOptions::default()).await.unwrap().close().await.unwrap();
    }
    assert_eq!((mode(&fresh), mode(&old)), (0o700, 0o750));
    assert_eq!(mode(&old.join(DATABASE_FILE)), 0o600);
}

#[tokio::test]
async fn a_second_process_is_refused_with_the_holder_of_the_lock() {
    let bench = Bench::on(Kind::Sqlite).await;
    let error = refused(folder(&bench)).await;
    assert_eq!(error.code(), "store.locked");
    assert!(error.to_string().contains(&std::process::id().to_string()), "{error}");
    assert!(error.to_string().contains(LOCK_FILE), "{error}");
    bench.run().await;
    bench.store.close().await.unwrap();
    SqlStore::open_sqlite(folder(&bench), OpenOptions::default()).await.unwrap();
}

#[tokio::test]
async fn nothing_is_made_when_only_an_existing_database_is_wanted() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing");
    let options = OpenOptions { create: false, ..OpenOptions::default() };
    let error = SqlStore::open_sqlite(&missing, options).await.unwrap_err();
    assert!(matches!(&error, StoreError::NotFound { noun: "database", .. }), "{error}");
    assert!(!missing.exists());
}

#[tokio::test]
async fn a_file_in_the_place_of_a_folder_and_a_folder_in_the_place_of_a_file_are_named_and_left() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "precious").unwrap();
    let data = folder.path().join("data");
    fs::create_dir_all(data.join(DATABASE_FILE)).unwrap();
    for (data_dir, in_the_way) in [(&file, &file), (&file.join("below"), &file), (&data, &data.join(DATABASE_FILE))] {
        let error = refused(data_dir).await;
        assert_eq!(error.code(), "store.unusable", "{error}");
        assert!(error.to_string().contains(&in_the_way.display().to_string()), "{error}");
        assert!(error.to_string().contains("move what is in the way"), "{error}");
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), "precious");
    assert_eq!(fs::read_dir(&data).unwrap().count(), 1, "nothing is made beside it");
}

/// Returns a folder in which this user cannot create anything. Folder permissions do not restrict root; for root, it is
/// in one of the kernel's own file systems.
fn unwritable_folder(parent: &Path) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let folder = parent.join("locked");
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o555)).unwrap();
    let candidates =
        [folder.join("data"), PathBuf::from("/sys/nightshift-test"), PathBuf::from("/proc/sys/nightshift-test")];
    let unwritable = candidates.into_iter().find(|candidate| {
        let kind = fs::create_dir(candidate).map_err(|error| error.kind());
        matches!(kind, Err(io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem))
    });
    unwritable.unwrap()
}

#[tokio::test]
async fn a_folder_that_cannot_be_written_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let unwritable = unwritable_folder(folder.path());
    let error = refused(&unwritable).await;
    assert_eq!(error.code(), "store.read_only", "{error}");
    assert!(error.to_string().contains(unwritable.to_str().unwrap()), "{error}");
    assert!(error.to_string().contains("permission"), "{error}");
}

#[tokio::test]
async fn a_file_that_is_no_database_is_refused_and_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(DATABASE_FILE);
    let text = "this is a letter, not a database. ".repeat(400);
    fs::write(&file, &text).unwrap();
    let error = refused(folder.path()).await;
    assert_eq!(error.code(), "store.corrupt", "{error}");
    assert!(error.to_string().contains("restore a backup"), "{error}");
    assert_eq!(fs::read_to_string(&file).unwrap(), text);
}

#[tokio::test]
async fn a_damaged_database_is_refused_and_left_as_it_is() {
    let bench = Bench::on(Kind::Sqlite).await;
    for _ in 0..20 {
        bench.store.create_campaign(bench.new_campaign(20)).await.unwrap();
    }
    bench.store.close().await.unwrap();
    let database = database(&bench);
    let mut bytes = fs::read(database).unwrap();
    for page in (3..bytes.len() / 1024).step_by(2) {
        bytes[page * 1024..page * 1024 + 64].fill(0xa5);
    }
    fs::write(database, &bytes).unwrap();
    let error = refused(folder(&bench)).await;
    assert_eq!(error.code(), "store.corrupt", "{error}");
    assert_eq!(fs::read(database).unwrap(), bytes);
}

#[tokio::test]
async fn a_large_file_is_not_read_from_end_to_end_at_each_start() {
    let mut bench = Bench::on(Kind::Sqlite).await;
    bench.reopen_with(ArtifactOptions { max_piece_bytes: usize::MAX, ..ArtifactOptions::default() }).await;
    let artifact = vec![7; 1 << 20];
    let hash = ArtifactHash::of(&artifact);
    bench.store.put_artifact(&hash, &artifact, bench.now()).await.unwrap();
    bench.store.close().await.unwrap();
    let mut bytes = fs::read(database(&bench)).unwrap();
    let last = bytes.len() - 4096;
    bytes[last..].fill(0xa5);
    fs::write(database(&bench), &bytes).unwrap();
    assert_eq!(refused(folder(&bench)).await.code(), "store.corrupt");
    let size = u64::try_from(bytes.len()).unwrap();
    let options = OpenOptions { max_checked_bytes: size - 1, ..OpenOptions::default() };
    let store = SqlStore::open_sqlite(folder(&bench), options).await.unwrap();
    assert!(store.get_artifact(&hash).await.is_err(), "the damage is told where it is read");
}

#[tokio::test]
async fn a_database_that_was_cut_off_is_refused() {
    let bench = Bench::on(Kind::Sqlite).await;
    bench.store.create_campaign(bench.new_campaign(200)).await.unwrap();
    bench.store.close().await.unwrap();
    let bytes = fs::read(database(&bench)).unwrap();
    fs::write(database(&bench), &bytes[..bytes.len() / 2]).unwrap();
    assert_eq!(refused(folder(&bench)).await.code(), "store.corrupt");
}

#[tokio::test]
async fn a_database_of_another_program_is_refused_and_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(DATABASE_FILE);
    execute(&file, "CREATE TABLE run (anything TEXT); INSERT INTO run VALUES ('theirs')").await;
    let before = fs::read(&file).unwrap();
    let error = refused(folder.path()).await;
    assert_eq!(error.code(), "store.corrupt", "{error}");
    assert!(error.to_string().contains("another program"), "{error}");
    assert_eq!(fs::read(&file).unwrap(), before);
}

#[tokio::test]
async fn an_empty_file_becomes_a_database() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join(DATABASE_FILE), "").unwrap();
    let store = SqlStore::open_sqlite(folder.path(), OpenOptions::default()).await.unwrap();
    assert_eq!(store.find_violations().await.unwrap(), Vec::<String>::new());
}

#[tokio::test]
async fn a_database_whose_making_was_interrupted_is_finished() {
    let bench = Bench::on(Kind::Sqlite).await;
    bench.store.close().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(DATABASE_FILE);
    let made = fs::read(database(&bench)).unwrap();
    fs::write(&file, made).unwrap();
    // The state after a process was killed between creating the migrator's own table and our first migration. The
    // tables of a search are dropped with the virtual one.
    let tables = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%' \
                  AND name <> '_sqlx_migrations' AND substr(name, 1, 10) <> 'note_text_' \
                  AND substr(name, 1, 12) <> 'search_text_'";
    let mut connection = SqliteConnectOptions::new().filename(&file).foreign_keys(false).connect().await.unwrap();
    let names: Vec<String> = sqlx::query_scalar(tables).fetch_all(&mut connection).await.unwrap();
    for name in names {
        sqlx::query(AssertSqlSafe(format!("DROP TABLE {name}"))).execute(&mut connection).await.unwrap();
    }
    sqlx::raw_sql("DELETE FROM _sqlx_migrations; PRAGMA application_id = 0").execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    let store = SqlStore::open_sqlite(folder.path(), OpenOptions::default()).await.unwrap();
    store.create_campaign(bench.new_campaign(1)).await.unwrap();
}

#[tokio::test]
async fn a_schema_of_a_newer_release_is_refused() {
    let bench = Bench::on(Kind::Sqlite).await;
    bench.store.close().await.unwrap();
    let newer = "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
                 VALUES (9999, 'of tomorrow', 1, x'00', 0)";
    execute(database(&bench), newer).await;
    let error = refused(folder(&bench)).await;
    assert_eq!(error.code(), "store.too_new", "{error}");
    assert!(error.to_string().contains("9999"), "{error}");
}

#[tokio::test]
async fn a_full_disk_is_said_and_what_was_acknowledged_stays() {
    let folder = tempfile::tempdir().unwrap();
    let artifacts = ArtifactOptions { max_piece_bytes: usize::MAX, ..ArtifactOptions::default() };
    let limited = OpenOptions { max_size_bytes: Some(2_000_000), artifacts, ..OpenOptions::default() };
    let store = SqlStore::open_sqlite(folder.path(), limited).await.unwrap();
    let blob = |n: u8| vec![n; 100_000];
    let mut acknowledged = Vec::new();
    let error = loop {
        let bytes = blob(u8::try_from(acknowledged.len()).unwrap());
        let hash = ArtifactHash::of(&bytes);
        match store.put_artifact(&hash, &bytes, TimestampMs(0)).await {
            Ok(()) => acknowledged.push(hash),
            Err(error) => break error,
        }
    };
    assert_eq!(error.code(), "store.full", "{error}");
    assert!(error.is_transient());
    assert!(acknowledged.len() > 5, "{}", acknowledged.len());
    assert_eq!(store.find_violations().await.unwrap(), Vec::<String>::new());
    store.close().await.unwrap();

    let store = SqlStore::open_sqlite(folder.path(), OpenOptions::default()).await.unwrap();
    for (n, hash) in acknowledged.iter().enumerate() {
        assert_eq!(store.get_artifact(hash).await.unwrap(), blob(u8::try_from(n).unwrap()));
    }
    let bytes = blob(200);
    store.put_artifact(&ArtifactHash::of(&bytes), &bytes, TimestampMs(0)).await.unwrap();
}

#[tokio::test]
async fn a_lock_of_another_program_is_said() {
    let bench = Bench::on(Kind::Sqlite).await;
    let mut other = SqliteConnectOptions::new().filename(database(&bench)).connect().await.unwrap();
    sqlx::query("BEGIN IMMEDIATE").execute(&mut other).await.unwrap();
    let error = bench.store.create_campaign(bench.new_campaign(1)).await.unwrap_err();
    assert_eq!(error.code(), "store.locked", "{error}");
    sqlx::query("ROLLBACK").execute(&mut other).await.unwrap();
    bench.store.create_campaign(bench.new_campaign(1)).await.unwrap();
}
