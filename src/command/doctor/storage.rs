//! Database, disk, port.

use std::path::Path;

use nightshift_client::Client;
use nightshift_store::{OpenOptions, PostgresLook, SqlStore, look_at_postgres};
use secrecy::{ExposeSecret, SecretString};

use super::{Check, State};
use crate::compose::artifact_options;
use crate::context::Context;
use crate::failure::Failure;
use crate::server_file;

/// How long Postgres may take to answer, in milliseconds.
const POSTGRES_ANSWER_MS: u64 = 5_000;
/// Below this, a campaign may not fit.
const LITTLE_BYTES: u64 = 1 << 30;
/// Below this, not even the demo fits.
const TOO_LITTLE_BYTES: u64 = 200 << 20;

pub(super) async fn checks(context: &Context) -> Vec<Check> {
    let data_dir = &context.config().data_dir;
    let database = database(data_dir, context.config().database.url.as_ref()).await;
    let in_use = database.found.starts_with("in use");
    let mut checks = vec![database, artifacts(context).await, disk(data_dir)];
    if !in_use {
        checks.push(port(context).await);
    }
    checks
}

async fn database(data_dir: &Path, url: Option<&SecretString>) -> Check {
    if let Some(server) = server_file::read(data_dir)
        && let Ok(client) = Client::new(&server.address, Some(server.token))
        && let Ok(health) = client.health().await
    {
        let found = format!("in use by the server at {} (process {}, {})", server.address, server.pid, health.database);
        return Check::ok("database", found);
    }
    if let Some(url) = url {
        return postgres(url).await;
    }
    match SqlStore::open_sqlite(data_dir, OpenOptions::default()).await {
        Ok(store) => match store.close().await {
            Ok(()) => Check::ok("database", format!("SQLite in {}", data_dir.display())),
            Err(error) => refused(&error.into()),
        },
        Err(error) => refused(&error.into()),
    }
}

/// Reaches the database and looks at its tables, without making or changing any: that is for those who mean to use it.
async fn postgres(url: &SecretString) -> Check {
    const RELEASE: &str = env!("CARGO_PKG_VERSION");
    match look_at_postgres(url.expose_secret(), POSTGRES_ANSWER_MS).await {
        Ok(PostgresLook { missing, .. }) if missing.is_empty() => {
            Check::ok("database", format!("Postgres answers, and its tables are those of this release ({RELEASE})"))
        }
        Ok(PostgresLook { is_new: true, .. }) => {
            Check::ok("database", "Postgres answers; the database is empty, and the first server makes its tables")
        }
        Ok(PostgresLook { missing, .. }) => Check::warning(
            "database",
            format!(
                "Postgres answers; its tables are of an older release than {RELEASE}, missing: {}",
                missing.join(", ")
            ),
            "the first server of this release brings them up to date: back up before (docs/how-to/operations.md)",
        ),
        Err(error) => {
            let advice = match error.code() {
                "store.unreachable" => {
                    "is Postgres running, does database.url (DATABASE_URL) name host, port, user and database, and does \
                     it let this user in?"
                }
                "store.too_new" => "use the release that wrote it, or another database",
                "store.read_only" => "use the primary server, and a user that may make tables",
                "store.unusable" => "use an empty database: what is in this one was left as it is",
                _ => "look into the log of Postgres",
            };
            Check::problem("database", format!("{}: {error}", error.code()), advice)
        }
    }
}

/// Writes, reads and deletes a small object where artifacts are to be stored.
async fn artifacts(context: &Context) -> Check {
    const NAME: &str = "artifacts";
    const ADVICE: &str = "set artifacts.url to a place that works: docs/how-to/operations.md, \"Artifacts\"";
    let is_shared = context.config().database.url.is_some();
    let objects = match artifact_options(context) {
        Ok(options) => options.objects,
        Err(failure) => return Check::problem(NAME, failure.error.message, ADVICE),
    };
    let Some(objects) = objects else {
        let found = if is_shared { "in the database" } else { "in the data folder" };
        return Check::ok(NAME, found);
    };
    if let Err(error) = objects.examine().await {
        return Check::problem(NAME, format!("{}: {error}", error.code()), ADVICE);
    }
    let found = format!("{} works", objects.place());
    if objects.is_local() && is_shared {
        return Check::warning(NAME, found, "every server of this database must share this folder");
    }
    Check::ok(NAME, found)
}

fn refused(failure: &Failure) -> Check {
    let found = format!("{}: {}", failure.error.code, failure.error.message);
    let advice = failure.hint.clone().unwrap_or_else(|| "use another --data-dir, or restore a backup".to_owned());
    if failure.error.code == "store.locked" {
        // Another command has it at the moment: that is how it should be.
        return Check { state: State::Warning, blocks_demo: false, ..Check::problem("database", found, advice) };
    }
    Check::problem("database", found, advice)
}

fn disk(data_dir: &Path) -> Check {
    let existing = data_dir.ancestors().find(|folder| folder.exists()).unwrap_or(Path::new("/"));
    let existing = if existing.as_os_str().is_empty() { Path::new(".") } else { existing };
    match fs4::available_space(existing) {
        Ok(bytes) => {
            let found = format!("{} MiB free at {}", bytes >> 20, existing.display());
            match bytes {
                b if b < TOO_LITTLE_BYTES => {
                    Check::problem("disk", found, "free some space, or use another --data-dir")
                }
                b if b < LITTLE_BYTES => Check::warning("disk", found, "long campaigns store some gigabytes"),
                _ => Check::ok("disk", found),
            }
        }
        Err(error) => Check::warning("disk", format!("free space is not known: {error}"), "look with `df`"),
    }
}

async fn port(context: &Context) -> Check {
    let bind = context.config().server.bind;
    match tokio::net::TcpListener::bind(bind).await {
        Ok(_) => Check::ok("address of `serve`", format!("{bind} is free")),
        Err(error) => Check::warning(
            "address of `serve`",
            format!("{bind} cannot be used: {error}"),
            "choose another with `serve --bind` or server.bind; `demo` and `run` take a free port by themselves",
        ),
    }
}
