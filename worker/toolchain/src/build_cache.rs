//! Builds that were done before, by their address, in a local folder.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::attempt::BuildReport;

/// Maximum number of builds that are kept; the oldest are removed when a worker starts.
pub const MAX_CACHED_BUILDS: usize = 4_000;
/// A folder that was begun this long ago will not be finished: its writer was killed.
const ABANDONED_AFTER: Duration = Duration::from_hours(1);

const UNFINISHED: &str = "building-";
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
pub struct BuildCache {
    folder: PathBuf,
}

impl BuildCache {
    /// Opens the folder, which is created, and removes the oldest entries beyond the limit.
    pub fn open(folder: &Path) -> io::Result<Self> {
        Self::open_with_limit(folder, MAX_CACHED_BUILDS)
    }

    fn open_with_limit(folder: &Path, max_builds: usize) -> io::Result<Self> {
        std::fs::create_dir_all(folder)?;
        // The folder's own idea of now: the clock is not ours to read.
        let now = tempfile::tempfile_in(folder)?.metadata()?.modified()?;
        let mut builds: Vec<(SystemTime, PathBuf)> = Vec::new();
        for entry in std::fs::read_dir(folder)?.filter_map(Result::ok) {
            let Ok(modified) = entry.metadata().and_then(|data| data.modified()) else { continue };
            if !entry.file_name().to_string_lossy().starts_with(UNFINISHED) {
                builds.push((modified, entry.path()));
            } else if now.duration_since(modified).is_ok_and(|age| age > ABANDONED_AFTER) {
                let _ = std::fs::remove_dir_all(entry.path());
            }
        }
        builds.sort();
        let surplus = builds.len().saturating_sub(max_builds);
        for (_, path) in builds.into_iter().take(surplus) {
            let _ = std::fs::remove_dir_all(path);
        }
        Ok(Self { folder: folder.to_path_buf() })
    }

    /// The build of that address. A damaged entry is removed and counts as missing.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<CachedBuild> {
        let entry = self.folder.join(key);
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
        let unfinished = tempfile::Builder::new().prefix(UNFINISHED).tempdir_in(&self.folder)?;
        std::fs::write(unfinished.path().join(REPORT), serde_json::to_vec(&build.report)?)?;
        std::fs::write(unfinished.path().join(LOG), &build.log)?;
        if let Some(library) = &build.library {
            std::fs::write(unfinished.path().join(LIBRARY), library)?;
        }
        let entry = self.folder.join(key);
        match std::fs::rename(unfinished.path(), &entry) {
            // Another thread or process was faster with the same build.
            Err(_) if entry.is_dir() => Ok(()),
            other => other,
        }
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
        let cache = BuildCache::open_with_limit(folder.path(), 2).unwrap();
        assert_eq!(cache.get("k1"), None);
        assert!(cache.get("k2").is_some() && cache.get("k3").is_some());
    }
}
