//! What was found out about references before, in a local folder: their profile and their other baselines take longer than
//! everything else that is done to prepare a task, and belong to the reference, to `PyTorch` and to the device alone.

use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::profile::Profile;
use nightshift_protocol::step::FurtherBaseline;
use serde::{Deserialize, Serialize};

/// Most references that are kept; the oldest are removed when a worker starts.
const MAX_REFERENCES: usize = 1_000;

const UNFINISHED: &str = "finding-";
const FOUND: &str = "found.json";
const TRACE: &str = "trace";

/// What is known of a reference.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct KnownReference {
    /// Its profile.
    pub(crate) profile: Option<Box<Profile>>,
    /// Other ways to run it.
    pub(crate) baselines: Vec<FurtherBaseline>,
}

impl KnownReference {
    /// Whether looking again would find no more.
    pub(crate) fn is_whole(&self) -> bool {
        self.profile.as_ref().is_some_and(|profile| profile.timeline.is_some())
            && self.baselines.iter().all(|baseline| baseline.measurement.is_some())
    }

    fn trace(&self) -> Option<&ArtifactHash> {
        self.profile.as_ref()?.trace.as_ref()
    }
}

/// A folder of them, one entry by key.
#[derive(Debug)]
pub(crate) struct ReferenceCache {
    folder: PathBuf,
}

impl ReferenceCache {
    /// Opens the folder, which is created, and removes what was not finished and the oldest entries beyond the limit.
    pub(crate) fn open(folder: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(folder)?;
        let mut entries: Vec<(SystemTime, PathBuf)> = Vec::new();
        for entry in std::fs::read_dir(folder)?.filter_map(Result::ok) {
            let Ok(modified) = entry.metadata().and_then(|data| data.modified()) else { continue };
            if entry.file_name().to_string_lossy().starts_with(UNFINISHED) {
                // Whoever is at it right now finds out that it was not kept.
                let _ = std::fs::remove_dir_all(entry.path());
            } else {
                entries.push((modified, entry.path()));
            }
        }
        entries.sort();
        let surplus = entries.len().saturating_sub(MAX_REFERENCES);
        for (_, path) in entries.into_iter().take(surplus) {
            let _ = std::fs::remove_dir_all(path);
        }
        Ok(Self { folder: folder.to_path_buf() })
    }

    /// What is known, with the bytes of the trace. A damaged entry counts as missing.
    pub(crate) fn get(&self, key: &str) -> Option<(KnownReference, Option<Vec<u8>>)> {
        let entry = self.folder.join(key);
        let known: KnownReference = serde_json::from_slice(&std::fs::read(entry.join(FOUND)).ok()?).ok()?;
        let Some(hash) = known.trace() else { return Some((known, None)) };
        let trace = std::fs::read(entry.join(TRACE)).ok()?;
        (ArtifactHash::of(&trace) == *hash).then_some((known, Some(trace)))
    }

    /// Keeps it. It appears whole or not at all, in the place of what was there.
    pub(crate) fn put(&self, key: &str, known: &KnownReference, trace: Option<&[u8]>) -> io::Result<()> {
        let unfinished = tempfile::Builder::new().prefix(UNFINISHED).tempdir_in(&self.folder)?;
        std::fs::write(unfinished.path().join(FOUND), serde_json::to_vec(known)?)?;
        if let Some(trace) = trace {
            std::fs::write(unfinished.path().join(TRACE), trace)?;
        }
        let entry = self.folder.join(key);
        let _ = std::fs::remove_dir_all(&entry);
        match std::fs::rename(unfinished.path(), &entry) {
            Err(_) if entry.is_dir() => Ok(()),
            other => other,
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_found_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let cache = ReferenceCache::open(folder.path()).unwrap();
        let profile = Profile { trace: Some(ArtifactHash::of(b"trace")), ..Profile::default() };
        let known = KnownReference { profile: Some(Box::new(profile)), baselines: Vec::new() };
        assert!(!known.is_whole());
        assert_eq!(cache.get("k"), None);
        cache.put("k", &known, Some(b"trace")).unwrap();
        assert_eq!(cache.get("k"), Some((known.clone(), Some(b"trace".to_vec()))));
        cache.put("k", &known, Some(b"changed")).unwrap();
        assert_eq!(cache.get("k"), None);
        cache.put("plain", &KnownReference::default(), None).unwrap();
        let again = ReferenceCache::open(folder.path()).unwrap();
        assert_eq!(again.get("plain"), Some((KnownReference::default(), None)));
    }
}
