//! Opens the store that the configuration names.

use std::path::Path;

use nightshift_store::{ArtifactOptions, DEFAULT_MAX_ARTIFACT_BYTES, Objects, OpenOptions, PostgresOptions, SqlStore};

use crate::context::Context;
use crate::failure::Result;

/// Variables with these prefixes hold credentials and endpoints of object stores.
const OBJECT_STORE_PREFIXES: [&str; 3] = ["AWS_", "GOOGLE_", "AZURE_"];

/// Opens a database of a Postgres server, or the one in a data folder.
pub(crate) async fn open_store(context: &Context, database_url: Option<&str>, data_dir: &Path) -> Result<SqlStore> {
    let artifacts = artifact_options(context)?;
    Ok(match database_url {
        Some(url) => SqlStore::open_postgres(url, PostgresOptions { artifacts, ..PostgresOptions::default() }).await?,
        None => SqlStore::open_sqlite(data_dir, OpenOptions { artifacts, ..OpenOptions::default() }).await?,
    })
}

/// Returns how the configuration wants artifacts to be stored.
pub(crate) fn artifact_options(context: &Context) -> Result<ArtifactOptions> {
    let section = &context.config().artifacts;
    let environment = &context.environment;
    let settings: Vec<(String, String)> = OBJECT_STORE_PREFIXES
        .iter()
        .flat_map(|prefix| environment.with_prefix(prefix))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    Ok(ArtifactOptions {
        objects: section.url.as_deref().map(|url| Objects::open(url, &settings)).transpose()?,
        max_artifact_bytes: section.max_bytes.unwrap_or(DEFAULT_MAX_ARTIFACT_BYTES),
        ..ArtifactOptions::default()
    })
}
