//! The notes that prompts are given: those that ship with the program, and those of the configured folder.

use nightshift_engine::store::{KnowledgeStore, NoteRecord};
use nightshift_optimizer::knowledge::note::{self, NoteError};
use nightshift_protocol::time::TimestampMs;

use super::describe;
use crate::context::Context;
use crate::failure::{Failure, Result};

/// Brings the notes into the database. Where they are there already, nothing is written. Without a configured folder
/// earlier notes of one are forgotten only on SQLite: a database that servers share may hold those of another.
pub(super) async fn load(context: &Context, store: &dyn KnowledgeStore) -> Result<()> {
    let unusable = |error: NoteError| Failure::new(error.code(), describe(&error));
    let at = now();
    replace(store, note::BUILT_IN, note::built_in().map_err(unusable)?, at).await?;
    let config = context.config();
    match &config.knowledge.folder {
        Some(folder) => {
            let notes = note::of_folder(folder).map_err(unusable)?;
            replace(store, note::USER, notes, at).await
        }
        None if config.database.url.is_none() => replace(store, note::USER, Vec::new(), at).await,
        None => Ok(()),
    }
}

async fn replace(store: &dyn KnowledgeStore, source: &str, notes: Vec<NoteRecord>, at: TimestampMs) -> Result<()> {
    let count = notes.len();
    let changed = store.replace_notes(source, notes, at).await?;
    if changed > 0 {
        tracing::info!(note.source = source, notes = count, changed, "notes were brought into the database");
    }
    Ok(())
}

fn now() -> TimestampMs {
    TimestampMs(chrono::Utc::now().timestamp_millis())
}
