//! Remembers which compilers built a test program. Building it again at each start takes half a second and more.

use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// A file that exists once compilers built the test program.
#[derive(Debug)]
pub(crate) struct Proof(PathBuf);

impl Proof {
    /// Returns the proof of these compilers in a folder. Its name is a hash of the compilers' files and of everything else that a build
    /// depends on. Returns nothing without a folder, or if a compiler cannot be read.
    pub(crate) fn of(folder: Option<&Path>, programs: &[&Path], parts: &[&str]) -> Option<Self> {
        let mut hasher = blake3::Hasher::new();
        for program in programs {
            let data = std::fs::metadata(program).ok()?;
            let changed = data.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
            hasher.update(format!("{}\n{} {}\n", program.display(), data.len(), changed.as_nanos()).as_bytes());
        }
        for part in parts {
            hasher.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
        }
        Some(Self(folder?.join(hasher.finalize().to_hex().as_str())))
    }

    /// Returns whether these compilers built the program before.
    pub(crate) fn is_kept(&self) -> bool {
        self.0.is_file()
    }

    /// Remembers that they work.
    pub(crate) fn keep(&self) {
        let folder = self.0.parent().unwrap_or(Path::new("."));
        if let Err(error) = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&self.0, "")) {
            tracing::debug!(%error, "the compiler will be proven again next time");
        }
    }
}
