//! Artifacts that a file leaves out, because this machine has them: they are in the folders of earlier hand-overs.

use std::path::{Path, PathBuf};

use nightshift_engine::clock::Clock as _;
use nightshift_engine::store::ArtifactStore;
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_server::SystemClock;
use nightshift_store::{OpenOptions, SqlStore};

use crate::failure::{Failure, Result};
use crate::present;

/// Copies the artifacts that `store` lacks from the other folders next to `folder`.
pub(super) async fn bring(store: &dyn ArtifactStore, folder: &Path, wanted: &[ArtifactHash]) -> Result<()> {
    let mut missing = Vec::new();
    for hash in wanted {
        if !is_there(store, hash).await? {
            missing.push(hash.clone());
        }
    }
    for other in folders_beside(folder) {
        if missing.is_empty() {
            break;
        }
        let options = OpenOptions { create: false, ..OpenOptions::default() };
        // Skip folders that are in use or have no database.
        let Ok(earlier) = SqlStore::open_sqlite(&other, options).await else { continue };
        let copied = copy(&earlier, store, missing).await;
        earlier.close().await?;
        missing = copied?;
    }
    match missing.first() {
        None => Ok(()),
        Some(first) => Err(Failure::new(
            "handover.artifacts_missing",
            format!(
                "the file leaves out {} that this machine does not have ({first})",
                present::count(missing.len(), "artifact")
            ),
        )
        .hint("write the file again without --since: nightshift handover create CAMPAIGN --again --out FILE")),
    }
}

async fn is_there(store: &dyn ArtifactStore, hash: &ArtifactHash) -> Result<bool> {
    Ok(store.artifact_progress(hash).await?.is_some_and(|progress| progress.complete))
}

/// Copies what is there. Returns what is not.
async fn copy(from: &SqlStore, to: &dyn ArtifactStore, wanted: Vec<ArtifactHash>) -> Result<Vec<ArtifactHash>> {
    let mut missing = Vec::new();
    for hash in wanted {
        if is_there(from, &hash).await? {
            to.put_artifact(&hash, &from.get_artifact(&hash).await?, SystemClock.now()).await?;
        } else {
            missing.push(hash);
        }
    }
    Ok(missing)
}

fn folders_beside(folder: &Path) -> Vec<PathBuf> {
    let entries = folder.parent().and_then(|parent| std::fs::read_dir(parent).ok()).into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(|path| path != folder).collect();
    // The newest first: ids begin with the time.
    folders.sort_unstable_by(|a, b| b.cmp(a));
    folders
}
