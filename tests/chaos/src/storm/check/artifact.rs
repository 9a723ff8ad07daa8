//! Artifacts: every acknowledged one has its bytes, and the object store has nothing else.

use std::collections::BTreeMap;
use std::fmt;

use nightshift_engine::clock::Clock as _;
use nightshift_engine::store::{ArtifactStore as _, RetentionStore as _};
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_server::SystemClock;
use nightshift_store::SqlStore;
use serde::Serialize;

use super::Books;
use crate::storm::artifacts::Artifacts;
use crate::storm::fleet::Fleet;
use crate::storm::violation::Violation;
use crate::toy::{Name, What, expected_reply};

/// Objects that are deleted at a time.
const COLLECTED_AT_ONCE: u32 = 1_000;
/// Later than any clock of the storm, so that every object without an artifact counts as abandoned. In milliseconds.
const LATER_MS: u64 = 3_600_000;

/// Numbers of artifacts.
#[derive(Debug, Default, Serialize)]
pub(super) struct Facts {
    artifacts_stored: usize,
    artifacts_stored_again: u32,
    artifacts_read: u32,
    /// Objects without an artifact, of writers that died or failed. They were deleted at the end.
    objects_abandoned: u64,
    /// Objects at the end.
    objects: usize,
}

impl fmt::Display for Facts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "artifacts: {} stored, {} stored again, {} read; objects: {}, and {} abandoned ones deleted",
            self.artifacts_stored,
            self.artifacts_stored_again,
            self.artifacts_read,
            self.objects,
            self.objects_abandoned
        )
    }
}

pub(super) async fn check(
    store: &SqlStore,
    fleet: &Fleet,
    books: &Books,
    artifacts: &Artifacts,
    violations: &mut Vec<Violation>,
) -> anyhow::Result<Facts> {
    let kept = "what was acknowledged is kept";
    let (stored, mut facts) = {
        let mut book = artifacts.book();
        violations.append(&mut book.violations);
        let facts = Facts { artifacts_stored_again: book.stored_again, artifacts_read: book.read, ..Facts::default() };
        (book.stored.clone(), facts)
    };
    facts.artifacts_stored = stored.len();
    let replies = books.lines.iter().filter(|line| line.what == What::CallCommitted).filter_map(|line| {
        let name = books.runs.get(&line.run)?.record.digest["task"].as_str()?.parse::<Name>().ok()?;
        Some((format!("the reply to {}", line.run), expected_reply(&name)))
    });
    let stored = stored.iter().map(|artifact| (format!("{artifact:?}"), artifact.bytes()));
    for (what, bytes) in stored.chain(replies) {
        match store.get_artifact(&ArtifactHash::of(&bytes)).await {
            Ok(found) if found == bytes => {}
            Ok(found) => violations.push(Violation::new(kept, format!("{what} has {} other bytes", found.len()))),
            Err(error) => violations.push(Violation::new(kept, format!("{what}: {error}"))),
        }
    }
    loop {
        let collected = store.collect_objects(SystemClock.now().plus_ms(LATER_MS), COLLECTED_AT_ONCE).await?;
        facts.objects_abandoned += collected;
        if collected < u64::from(COLLECTED_AT_ONCE) {
            break;
        }
    }
    let mut pieces: BTreeMap<(String, String), u32> = BTreeMap::new();
    let names = fleet.objects.names()?;
    facts.objects = names.len();
    for name in &names {
        let mut parts = name.split('-').map(str::to_owned);
        *pieces.entry((parts.next().unwrap_or_default(), parts.next().unwrap_or_default())).or_default() += 1;
    }
    let each = "each object is a piece of an artifact";
    for ((hash, offset), count) in pieces {
        let progress = store.artifact_progress(&hash.parse()?).await?;
        if count > 1 || !progress.is_some_and(|progress| progress.complete) {
            let told = format!("{count} objects at {offset} of {hash}, which is {progress:?}");
            violations.push(Violation::new(each, told));
        }
    }
    Ok(facts)
}
