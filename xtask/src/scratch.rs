//! The folder for the temporary files of the tests.

use std::path::Path;

use rustix::fs::StatVfsMountFlags;

/// Keeps its files in memory.
const IN_MEMORY: &str = "/dev/shm";
/// The tests use up to 4.2 GiB at a time.
const MIN_FREE_BYTES: u64 = 8 << 30;

/// Returns a folder in memory if it has enough space. The stores of the tests wait for the disk after each commit, which
/// takes several times as long as everything else they do. No test depends on it: none cuts the power.
///
/// A folder that the caller chose stays.
pub(crate) fn in_memory() -> Option<&'static str> {
    (std::env::var_os("TMPDIR").is_none() && is_suitable(Path::new(IN_MEMORY), MIN_FREE_BYTES)).then_some(IN_MEMORY)
}

/// Returns whether programs can be kept and run there: many tests compile one.
fn is_suitable(folder: &Path, min_free_bytes: u64) -> bool {
    rustix::fs::statvfs(folder).is_ok_and(|system| {
        let free = system.f_bavail.saturating_mul(system.f_frsize);
        let forbidden = StatVfsMountFlags::NOEXEC | StatVfsMountFlags::RDONLY;
        free >= min_free_bytes && !system.f_flag.intersects(forbidden)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_is_missing_or_has_too_little_space_is_not_used() {
        assert!(is_suitable(&std::env::temp_dir(), 1));
        assert!(!is_suitable(&std::env::temp_dir(), u64::MAX));
        assert!(!is_suitable(Path::new("/no/such/folder"), 0));
    }
}
