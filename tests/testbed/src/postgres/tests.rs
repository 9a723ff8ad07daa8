#![expect(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it should be")]

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Stdio};

use super::*;

fn private() -> Cluster {
    Cluster::start(&Settings::default()).unwrap()
}

fn ask(database: &Database, cluster: &Cluster) -> Psql {
    Psql { url: database.url.clone(), ..cluster.admin.clone() }
}

/// A client that stays connected until it is told to go, or until the server is gone.
fn connected_client(database: &Database, cluster: &Cluster) -> Child {
    let mut psql = clean_command(&cluster.admin.program);
    psql.args(["-X", "-q", "-A", "-t", "-d", &database.url, "-c", "SELECT 'ready'", "-c", "SELECT pg_sleep(600)"]);
    let mut client = psql.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(client.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    client
}

#[test]
fn databases_are_empty_apart_from_each_other_and_sort_by_bytes() {
    let cluster = Cluster::shared();
    let (first, second) = (cluster.create_database().unwrap(), cluster.create_database().unwrap());
    assert_ne!(first.url, second.url);
    assert_eq!(cluster.url(first.name()).unwrap(), first.url);

    ask(&first, cluster).run("CREATE TABLE only_here (n INT)").unwrap();
    let tables = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'";
    assert_eq!(ask(&first, cluster).run(tables).unwrap(), "1");
    assert_eq!(ask(&second, cluster).run(tables).unwrap(), "0");

    let kind = "SELECT pg_encoding_to_char(encoding), datcollate, datctype FROM pg_database WHERE datname = \
                current_database()";
    assert_eq!(ask(&first, cluster).run(kind).unwrap(), "UTF8|C|C");
    second.remove().unwrap();
}

#[test]
fn the_shared_cluster_is_one_and_the_settings_reach_it() {
    assert!(std::ptr::eq(Cluster::shared(), Cluster::shared()));
    let cluster = Cluster::start(&Settings {
        fsync: false,
        max_connections: 33,
        options: vec![("application_name".to_owned(), "it's ours".to_owned())],
        ..Settings::default()
    })
    .unwrap();
    let told = |name| cluster.admin.run(&format!("SHOW {name}")).unwrap();
    assert_eq!(told("fsync"), "off");
    assert_eq!(told("shared_buffers"), "32MB");
    assert_eq!(told("max_connections"), "33");
    assert_eq!(told("listen_addresses"), "127.0.0.1");
    assert_eq!(told("unix_socket_directories"), cluster.folder().unwrap().to_str().unwrap());
    let durable = private();
    assert_eq!(durable.admin.run("SHOW fsync").unwrap(), "on");
    assert_eq!(durable.admin.run("SHOW synchronous_commit").unwrap(), "on");
}

#[test]
fn what_was_committed_survives_a_crash_of_the_server_and_its_address_stays() {
    let cluster = private();
    let database = cluster.create_database().unwrap();
    let psql = ask(&database, &cluster);
    psql.run("CREATE TABLE kept (n INT); INSERT INTO kept VALUES (7)").unwrap();

    cluster.stop_immediate().unwrap();
    assert!(matches!(psql.run("SELECT 1"), Err(PostgresError::Failed { .. })), "a stopped server answered");
    cluster.resume().unwrap();
    assert_eq!(psql.run("SELECT n FROM kept").unwrap(), "7");
    cluster.restart().unwrap();
    assert_eq!(psql.run("SELECT n FROM kept").unwrap(), "7");
}

#[test]
fn backends_are_killed_in_one_database_or_in_all_of_ours() {
    let cluster = private();
    let (first, second) = (cluster.create_database().unwrap(), cluster.create_database().unwrap());
    let (mut one, mut other) = (connected_client(&first, &cluster), connected_client(&second, &cluster));
    assert_eq!(first.kill_backends().unwrap(), 1);
    assert!(!one.wait().unwrap().success());
    assert!(other.try_wait().unwrap().is_none(), "the other database's client is connected still");
    assert_eq!(cluster.kill_backends().unwrap(), 1);
    assert!(!other.wait().unwrap().success());
}

#[test]
fn a_backend_that_crashes_takes_the_others_with_it_and_the_server_recovers() {
    let cluster = private();
    let (first, second) = (cluster.create_database().unwrap(), cluster.create_database().unwrap());
    assert!(!cluster.crash_backend().unwrap(), "no client is connected yet");
    let (mut one, mut other) = (connected_client(&first, &cluster), connected_client(&second, &cluster));
    assert!(cluster.crash_backend().unwrap());
    assert!(!one.wait().unwrap().success());
    assert!(!other.wait().unwrap().success());
    cluster.wait_until_it_answers().unwrap();
}

#[test]
fn a_cluster_goes_with_its_value_also_when_a_test_panics() {
    let mut place = None;
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let cluster = private();
        let port = cluster.private.as_ref().unwrap().port();
        place = Some((cluster.folder().unwrap().to_path_buf(), port));
        assert!(TcpStream::connect(("127.0.0.1", port)).is_ok());
        panic!("as a test does");
    }));
    assert!(outcome.is_err());
    let (folder, port) = place.unwrap();
    assert!(!folder.exists());
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
}

#[test]
fn a_server_that_was_there_before_is_used_and_left_as_it_was() {
    let theirs = private();
    let count = || theirs.admin.number::<u32>("databases", "SELECT count(*) FROM pg_database").unwrap();
    let before = count();
    let ours = Cluster::connect(&theirs.url("postgres").unwrap()).unwrap();
    assert!(!ours.is_private());
    let database = ours.create_database().unwrap();
    let not_ours = theirs.create_database().unwrap();
    assert_eq!(count(), before + 2);
    let mut client = connected_client(&not_ours, &theirs);
    assert_eq!(ours.kill_backends().unwrap(), 0, "databases of others are left alone");
    assert!(client.try_wait().unwrap().is_none());
    assert!(matches!(ours.stop_immediate(), Err(PostgresError::NotOurs)));
    assert!(matches!(ours.crash_backend(), Err(PostgresError::NotOurs)));
    assert_eq!(theirs.kill_backends().unwrap(), 1);
    client.wait().unwrap();
    drop(database);
    assert_eq!(count(), before + 1);

    assert!(matches!(Cluster::connect("mysql://somewhere/db"), Err(PostgresError::Url)));
}

#[test]
fn what_went_wrong_is_told_with_what_to_do() {
    let error = Cluster::start(&Settings {
        options: vec![("no_such_setting".to_owned(), "on".to_owned())],
        ..Settings::default()
    })
    .err()
    .unwrap();
    assert!(format!("{error:?}").contains("unrecognized configuration parameter \"no_such_setting\""), "{error:?}");

    let parent = PathBuf::from("/no/such/folder");
    let error = Cluster::start(&Settings { parent: Some(parent), ..Settings::default() }).err().unwrap();
    assert!(format!("{error:?}").contains("TMPDIR"), "{error:?}");
    assert!(format!("{error:?}").contains("No such file or directory"), "{error:?}");
    assert!(PostgresError::Missing.to_string().contains("postgresql"));
    is_available().unwrap();
}

#[test]
fn a_folder_that_the_servers_account_may_not_enter_is_named() {
    let parent = tempfile::tempdir().unwrap();
    std::fs::set_permissions(parent.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    let outcome = Cluster::start(&Settings { parent: Some(parent.path().to_path_buf()), ..Settings::default() });
    match account::Account::find().unwrap() {
        account::Account::Ours => assert!(outcome.is_ok(), "what is ours we may enter"),
        account::Account::Other { .. } => {
            let error = format!("{:?}", outcome.err().unwrap());
            assert!(error.contains("Permission denied"), "{error}");
            assert!(error.contains(parent.path().to_str().unwrap()), "{error}");
        }
    }
    assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 0, "nothing is left behind");
}

#[test]
fn programs_come_from_the_search_path_first_and_of_the_newest_version_next() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path().canonicalize().unwrap();
    let install = |folder: &str, names: &[&str]| {
        let folder = root.join(folder);
        std::fs::create_dir_all(&folder).unwrap();
        for name in names {
            std::fs::write(folder.join(name), "").unwrap();
        }
    };
    let found = |search_path: &OsStr| programs::first_complete(search_path, &root);
    let all = ["initdb", "pg_ctl", "postgres", "psql"];
    assert_eq!(found(OsStr::new("")), None);

    install("usr/local/pgsql/bin", &all);
    assert_eq!(found(OsStr::new("")), Some(root.join("usr/local/pgsql/bin")));

    install("usr/lib/postgresql/9/bin", &all);
    install("usr/lib/postgresql/15/bin", &all);
    install("usr/lib/postgresql/17/bin", &["psql"]);
    assert_eq!(found(OsStr::new("")), Some(root.join("usr/lib/postgresql/15/bin")));

    install("opt/bin", &[]);
    std::os::unix::fs::symlink(root.join("usr/lib/postgresql/9/bin/pg_ctl"), root.join("opt/bin/pg_ctl")).unwrap();
    assert_eq!(found(root.join("opt/bin").as_os_str()), Some(root.join("usr/lib/postgresql/9/bin")));
}

#[test]
fn the_end_of_a_long_text_is_shown_whole_letters_only() {
    assert_eq!(end_of(" short\n"), "short");
    let long = "ü".repeat(MAX_SHOWN_BYTES);
    assert_eq!(end_of(&format!("{long}x")).len(), MAX_SHOWN_BYTES - 1);
}
