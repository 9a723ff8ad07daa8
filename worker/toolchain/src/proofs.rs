//! Compilers that built a program once are not asked for it at each start: that takes half a second and more.

use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// Where it is kept that compilers work, as they are.
#[derive(Debug)]
pub(crate) struct Proof(PathBuf);

impl Proof {
    /// A proof in a folder, named by the compilers as they lie on the disk, and by everything else that a build depends on. None where
    /// none is kept, or a compiler cannot be looked at.
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

    /// Whether these compilers were proven before.
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
