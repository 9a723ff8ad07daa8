//! What was found out about references before, in a local folder: examining, profiling and compiling a model takes longer
//! than any step of its programs, and what comes of it belongs to the model, to `PyTorch` and to the device alone.

use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::profile::Profile;
use nightshift_protocol::step::{FurtherBaseline, PreparedTask};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Most entries of either kind that are kept; the oldest are removed when a worker starts.
const MAX_ENTRIES: usize = 2_000;

const UNFINISHED: &str = "finding-";
const FOUND: &str = "found.json";

/// What can be kept, with the artifacts that it names.
pub(crate) trait Findings: Serialize + DeserializeOwned {
    /// What has to be there for it to be of use, beside itself.
    fn artifacts(&self) -> Vec<ArtifactHash>;
}

/// What is known of a reference.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct KnownReference {
    /// Its profile.
    pub(crate) profile: Option<Box<Profile>>,
    /// Other ways to run it.
    pub(crate) baselines: Vec<FurtherBaseline>,
}

impl Findings for KnownReference {
    fn artifacts(&self) -> Vec<ArtifactHash> {
        traces(self.profile.as_deref())
    }
}

impl Findings for PreparedTask {
    fn artifacts(&self) -> Vec<ArtifactHash> {
        let golden = self.golden.iter().map(|golden| golden.artifact.clone());
        traces(self.profile.as_deref()).into_iter().chain(golden).collect()
    }
}

fn traces(profile: Option<&Profile>) -> Vec<ArtifactHash> {
    profile.and_then(|profile| profile.trace.clone()).into_iter().collect()
}

/// Whether looking again would find no more.
pub(crate) fn is_whole(profile: Option<&Profile>, baselines: &[FurtherBaseline]) -> bool {
    profile.is_some_and(|profile| profile.timeline.is_some())
        && baselines.iter().all(|baseline| baseline.measurement.is_some())
}

/// A folder of findings, one entry by key.
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
        let surplus = entries.len().saturating_sub(MAX_ENTRIES);
        for (_, path) in entries.into_iter().take(surplus) {
            let _ = std::fs::remove_dir_all(path);
        }
        Ok(Self { folder: folder.to_path_buf() })
    }

    /// What is known, with the bytes of its artifacts. A damaged entry counts as missing.
    pub(crate) fn get<T: Findings>(&self, key: &str) -> Option<(T, Vec<Vec<u8>>)> {
        let entry = self.folder.join(key);
        let found: T = serde_json::from_slice(&std::fs::read(entry.join(FOUND)).ok()?).ok()?;
        let artifact = |hash: &ArtifactHash| {
            let bytes = std::fs::read(entry.join(hash.as_str())).ok()?;
            (ArtifactHash::of(&bytes) == *hash).then_some(bytes)
        };
        let artifacts = found.artifacts().iter().map(artifact).collect::<Option<_>>()?;
        Some((found, artifacts))
    }

    /// Keeps it with the bytes of its artifacts. It appears whole or not at all, in the place of what was there.
    pub(crate) fn put<T: Findings>(&self, key: &str, found: &T, artifacts: &[Vec<u8>]) -> io::Result<()> {
        let unfinished = tempfile::Builder::new().prefix(UNFINISHED).tempdir_in(&self.folder)?;
        std::fs::write(unfinished.path().join(FOUND), serde_json::to_vec(found)?)?;
        for (hash, bytes) in found.artifacts().iter().zip(artifacts) {
            std::fs::write(unfinished.path().join(hash.as_str()), bytes)?;
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
    use nightshift_protocol::profile::Timeline;

    use super::*;

    #[test]
    fn what_is_kept_is_found_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let cache = ReferenceCache::open(folder.path()).unwrap();
        let profile = Profile { trace: Some(ArtifactHash::of(b"trace")), ..Profile::default() };
        let known = KnownReference { profile: Some(Box::new(profile)), baselines: Vec::new() };
        assert_eq!(cache.get::<KnownReference>("k"), None);
        cache.put("k", &known, &[b"trace".to_vec()]).unwrap();
        assert_eq!(cache.get("k"), Some((known.clone(), vec![b"trace".to_vec()])));
        cache.put("k", &known, &[b"changed".to_vec()]).unwrap();
        assert_eq!(cache.get::<KnownReference>("k"), None);
        cache.put("k", &known, &[]).unwrap();
        assert_eq!(cache.get::<KnownReference>("k"), None);
        cache.put("plain", &KnownReference::default(), &[]).unwrap();
        let again = ReferenceCache::open(folder.path()).unwrap();
        assert_eq!(again.get("plain"), Some((KnownReference::default(), Vec::new())));
        assert_eq!(again.get::<PreparedTask>("plain"), None, "an entry of the other kind is none");
    }

    #[test]
    fn without_a_timeline_or_a_time_there_is_more_to_be_found() {
        let compiled = FurtherBaseline { name: "torch.compile".to_owned(), measurement: None, reason: None };
        let whole = Profile { timeline: Some(Timeline::default()), ..Profile::default() };
        assert!(is_whole(Some(&whole), &[]));
        assert!(!is_whole(Some(&whole), &[compiled]));
        assert!(!is_whole(Some(&Profile::default()), &[]));
        assert!(!is_whole(None, &[]));
    }
}
