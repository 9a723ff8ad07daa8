//! A local cache of results about references. Examining, profiling and compiling a model takes longer than any step of its
//! programs, and the results depend only on the model, on `PyTorch` and on the device.

use std::io;
use std::path::Path;

use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::baseline::Baseline;
use nightshift_protocol::profile::Profile;
use nightshift_protocol::step::PreparedTask;
use nightshift_toolchain::cache_folder::CacheFolder;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Maximum number of entries of each kind; the oldest are removed when a worker starts.
const MAX_ENTRIES: usize = 2_000;

const FOUND: &str = "found.json";

/// A cacheable result, with the artifacts that it names.
pub(crate) trait Findings: Serialize + DeserializeOwned {
    /// Returns the artifacts without which the result is useless.
    fn artifacts(&self) -> Vec<ArtifactHash>;
}

/// The profile of a reference.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct KnownProfile {
    /// The profile.
    pub(crate) profile: Box<Profile>,
}

impl KnownProfile {
    /// Returns whether profiling again would find no more.
    pub(crate) fn is_whole(&self) -> bool {
        self.profile.timeline.is_some()
    }
}

impl Findings for KnownProfile {
    fn artifacts(&self) -> Vec<ArtifactHash> {
        traces(Some(&self.profile))
    }
}

/// Other ways to run a reference.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct KnownBaselines {
    /// Each with its measurement, or the reason why there is none.
    pub(crate) baselines: Vec<Baseline>,
    /// Number of baselines that were not measured because the machine failed. The cache keeps none of these.
    #[serde(skip)]
    pub(crate) faults: usize,
}

impl Findings for KnownBaselines {
    fn artifacts(&self) -> Vec<ArtifactHash> {
        Vec::new()
    }
}

impl Findings for PreparedTask {
    fn artifacts(&self) -> Vec<ArtifactHash> {
        traces(self.profile.as_deref())
    }
}

fn traces(profile: Option<&Profile>) -> Vec<ArtifactHash> {
    profile.and_then(|profile| profile.trace.clone()).into_iter().collect()
}

/// A cache folder with one entry for each key.
#[derive(Debug)]
pub(crate) struct ReferenceCache(CacheFolder);

impl ReferenceCache {
    /// Opens or creates the folder, and removes the oldest entries beyond the limit.
    pub(crate) fn open(folder: &Path) -> io::Result<Self> {
        CacheFolder::open(folder, MAX_ENTRIES).map(Self)
    }

    /// Returns an entry with the bytes of its artifacts. A damaged entry counts as missing.
    pub(crate) fn get<T: Findings>(&self, key: &str) -> Option<(T, Vec<Vec<u8>>)> {
        let entry = self.0.entry(key);
        let found: T = serde_json::from_slice(&std::fs::read(entry.join(FOUND)).ok()?).ok()?;
        let artifact = |hash: &ArtifactHash| {
            let bytes = std::fs::read(entry.join(hash.as_str())).ok()?;
            (ArtifactHash::of(&bytes) == *hash).then_some(bytes)
        };
        let artifacts = found.artifacts().iter().map(artifact).collect::<Option<_>>()?;
        Some((found, artifacts))
    }

    /// Stores an entry with the bytes of its artifacts, atomically, and replaces an older one.
    pub(crate) fn put<T: Findings>(&self, key: &str, found: &T, artifacts: &[Vec<u8>]) -> io::Result<()> {
        self.0.put(key, |folder| {
            std::fs::write(folder.join(FOUND), serde_json::to_vec(found)?)?;
            for (hash, bytes) in found.artifacts().iter().zip(artifacts) {
                std::fs::write(folder.join(hash.as_str()), bytes)?;
            }
            let _ = std::fs::remove_dir_all(self.0.entry(key));
            Ok(())
        })
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
        let known = KnownProfile { profile: Box::new(profile) };
        assert_eq!(cache.get::<KnownProfile>("k"), None);
        cache.put("k", &known, &[b"trace".to_vec()]).unwrap();
        assert_eq!(cache.get("k"), Some((known.clone(), vec![b"trace".to_vec()])));
        cache.put("k", &known, &[b"changed".to_vec()]).unwrap();
        assert_eq!(cache.get::<KnownProfile>("k"), None);
        cache.put("k", &known, &[]).unwrap();
        assert_eq!(cache.get::<KnownProfile>("k"), None);
        cache.put("plain", &KnownBaselines::default(), &[]).unwrap();
        let again = ReferenceCache::open(folder.path()).unwrap();
        assert_eq!(again.get("plain"), Some((KnownBaselines::default(), Vec::new())));
        assert_eq!(again.get::<PreparedTask>("plain"), None, "an entry of the other kind is none");
    }

    #[test]
    fn a_profile_without_a_timeline_is_taken_again() {
        let whole = Profile { timeline: Some(Timeline::default()), ..Profile::default() };
        assert!(KnownProfile { profile: Box::new(whole) }.is_whole());
        assert!(!KnownProfile { profile: Box::default() }.is_whole());
    }
}
