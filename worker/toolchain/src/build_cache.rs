//! Builds that were done before, by their address, in a local folder.

use std::io;
use std::path::Path;

use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::attempt::BuildReport;

use crate::cache_folder::CacheFolder;

/// Maximum number of builds that are kept; the oldest are removed when a worker starts.
pub const MAX_CACHED_BUILDS: usize = 4_000;

const REPORT: &str = "report.json";
const LIBRARY: &str = "library.so";
const LOG: &str = "log.txt";

/// A build with its files.
#[derive(Debug, Clone, PartialEq)]
pub struct CachedBuild {
    /// The report; its hashes are those of the files.
    pub report: BuildReport,
    /// The library, when it compiled.
    pub library: Option<Vec<u8>>,
    /// The compiler's output.
    pub log: Vec<u8>,
}

/// A folder of builds.
#[derive(Debug)]
pub struct BuildCache(CacheFolder);

impl BuildCache {
    /// Opens the folder, which is created, and removes the oldest entries beyond the limit.
    pub fn open(folder: &Path) -> io::Result<Self> {
        CacheFolder::open(folder, MAX_CACHED_BUILDS).map(Self)
    }

    /// The build of that address. A damaged entry is removed and counts as missing.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<CachedBuild> {
        let entry = self.0.entry(key);
        if !entry.is_dir() {
            return None;
        }
        let build = read_entry(&entry, key);
        if build.is_none() {
            tracing::warn!(build.key = %key, "a cached build is damaged and is built again");
            let _ = std::fs::remove_dir_all(&entry);
        }
        build
    }

    /// Keeps a build. It appears whole or not at all; one that is there already stays.
    pub fn put(&self, key: &str, build: &CachedBuild) -> io::Result<()> {
        self.0.put(key, |folder| {
            std::fs::write(folder.join(REPORT), serde_json::to_vec(&build.report)?)?;
            std::fs::write(folder.join(LOG), &build.log)?;
            build.library.iter().try_for_each(|library| std::fs::write(folder.join(LIBRARY), library))
        })
    }
}

fn read_entry(entry: &Path, key: &str) -> Option<CachedBuild> {
    let report: BuildReport = serde_json::from_slice(&std::fs::read(entry.join(REPORT)).ok()?).ok()?;
    let log = std::fs::read(entry.join(LOG)).ok()?;
    let library = match &report.library {
        None => None,
        Some(hash) => {
            let bytes = std::fs::read(entry.join(LIBRARY)).ok()?;
            (ArtifactHash::of(&bytes) == *hash).then_some(())?;
            Some(bytes)
        }
    };
    let is_whole = report.build_key == key && ArtifactHash::of(&log) == report.log;
    is_whole.then_some(CachedBuild { report, library, log })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::time::{Duration, SystemTime};

    use nightshift_protocol::machine::{SandboxReport, Toolchain};
    use nightshift_protocol::measurement::CompilerReport;
    use nightshift_protocol::verdict::ProcessEnd;

    use super::*;

    fn build(key: &str) -> CachedBuild {
        CachedBuild {
            report: BuildReport {
                library: Some(ArtifactHash::of(b"library")),
                end: ProcessEnd::Finished,
                messages: Vec::new(),
                log: ArtifactHash::of(b"log"),
                toolchain: Toolchain {
                    program: "g++".to_owned(),
                    path: "/usr/bin/g++".to_owned(),
                    version: "g++ 12".to_owned(),
                    flags: Vec::new(),
                    fingerprint: "f".to_owned(),
                },
                build_key: key.to_owned(),
                cached: false,
                duration_ms: 400,
                report: CompilerReport::default(),
                cuda: None,
                sandbox: SandboxReport::default(),
            },
            library: Some(b"library".to_vec()),
            log: b"log".to_vec(),
        }
    }

    #[test]
    fn a_build_that_was_kept_is_found_by_another_worker() {
        let folder = tempfile::tempdir().unwrap();
        BuildCache::open(folder.path()).unwrap().put("k1", &build("k1")).unwrap();
        let cache = BuildCache::open(folder.path()).unwrap();
        assert_eq!(cache.get("k1"), Some(build("k1")));
        assert_eq!(cache.get("k2"), None);
    }

    #[test]
    fn the_second_of_two_equal_builds_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let cache = BuildCache::open(folder.path()).unwrap();
        cache.put("k1", &build("k1")).unwrap();
        cache.put("k1", &build("k1")).unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn every_kind_of_damage_leads_to_a_new_build() {
        for (file, content) in
            [(LIBRARY, &b"libarry"[..]), (LOG, &b""[..]), (REPORT, &b"{"[..]), (REPORT, &b"\xff\xff"[..])]
        {
            let folder = tempfile::tempdir().unwrap();
            let cache = BuildCache::open(folder.path()).unwrap();
            cache.put("k1", &build("k1")).unwrap();
            std::fs::write(folder.path().join("k1").join(file), content).unwrap();
            assert_eq!(cache.get("k1"), None, "{file}");
            cache.put("k1", &build("k1")).unwrap();
            assert_eq!(cache.get("k1"), Some(build("k1")), "{file}");
        }
    }

    #[test]
    fn an_entry_under_a_wrong_address_is_damage() {
        let folder = tempfile::tempdir().unwrap();
        let cache = BuildCache::open(folder.path()).unwrap();
        cache.put("k1", &build("k2")).unwrap();
        assert_eq!(cache.get("k1"), None);
    }

    #[test]
    fn beyond_the_limit_the_oldest_builds_go() {
        let folder = tempfile::tempdir().unwrap();
        let cache = BuildCache::open(folder.path()).unwrap();
        for (age, key) in ["k1", "k2", "k3"].into_iter().enumerate() {
            cache.put(key, &build(key)).unwrap();
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(age as u64);
            std::fs::File::open(folder.path().join(key)).unwrap().set_modified(time).unwrap();
        }
        let cache = BuildCache(CacheFolder::open(folder.path(), 2).unwrap());
        assert_eq!(cache.get("k1"), None);
        assert!(cache.get("k2").is_some() && cache.get("k3").is_some());
    }
}
