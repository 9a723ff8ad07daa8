//! The evaluator's compiled kernels, in a local folder: nvcc takes seconds for them.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use nightshift_evaluator::device::KERNELS_SOURCE;
use nightshift_protocol::needs::ComputeCapability;
use nightshift_protocol::step::StepFailure;
use nightshift_sandbox::process::{CancelFlag, JailHost};

/// A folder of compiled kernels, and what it takes to compile them.
#[derive(Debug, Clone)]
pub(super) struct KernelCache<'a> {
    /// Where they are kept; created when the first ones are.
    pub(super) folder: PathBuf,
    /// Runs the compiler.
    pub(super) jail: &'a JailHost,
    /// An existing folder for what the compiler writes.
    pub(super) scratch: &'a Path,
    /// Ends the compilation.
    pub(super) cancel: &'a CancelFlag,
}

impl KernelCache<'_> {
    /// Returns the kernels for devices of a compute capability, which are compiled where they are not kept yet.
    pub(super) fn get(
        &self,
        compiler: &str,
        capability: ComputeCapability,
        compile: impl FnOnce() -> Result<Vec<u8>, StepFailure>,
    ) -> Result<Vec<u8>, StepFailure> {
        let key = blake3::hash(format!("{compiler}\n{capability}\n{KERNELS_SOURCE}").as_bytes()).to_hex();
        let path = self.folder.join(format!("{key}.cubin"));
        if let Some(image) = read(&path) {
            return Ok(image);
        }
        let image = compile()?;
        // Without the file they are compiled again at the next start.
        if let Err(error) = self.keep(&path, &image) {
            tracing::warn!(error = %error, "the evaluator's compiled kernels could not be kept");
        }
        Ok(image)
    }

    fn keep(&self, path: &Path, image: &[u8]) -> std::io::Result<()> {
        std::fs::create_dir_all(&self.folder)?;
        let mut file = tempfile::NamedTempFile::new_in(&self.folder)?;
        file.write_all(image)?;
        file.write_all(blake3::hash(image).as_bytes())?;
        file.as_file().sync_all()?;
        file.persist(path)?;
        Ok(())
    }
}

/// Returns the kernels of a file, which ends with their hash. The driver refuses damaged kernels, so they count as missing.
fn read(path: &Path) -> Option<Vec<u8>> {
    let mut bytes = std::fs::read(path).ok()?;
    let hash: [u8; blake3::OUT_LEN] = *bytes.last_chunk()?;
    bytes.truncate(bytes.len() - hash.len());
    if blake3::hash(&bytes) != hash {
        tracing::warn!(path = %path.display(), "the evaluator's compiled kernels are damaged and are compiled again");
        return None;
    }
    Some(bytes)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use nightshift_sandbox::process::SandboxChoice;

    use super::*;

    const CAPABILITY: ComputeCapability = ComputeCapability { major: 9, minor: 0 };

    fn with_cache(test: impl FnOnce(&KernelCache<'_>)) {
        let folder = tempfile::tempdir().unwrap();
        let (jail, cancel) = (JailHost::new(PathBuf::new(), SandboxChoice::None), CancelFlag::default());
        let kernels = folder.path().join("kernels");
        test(&KernelCache { folder: kernels, jail: &jail, scratch: folder.path(), cancel: &cancel });
    }

    fn never() -> Result<Vec<u8>, StepFailure> {
        panic!("compiled again")
    }

    #[test]
    fn kernels_are_compiled_once_for_each_compiler_and_device() {
        with_cache(|cache| {
            let other = ComputeCapability { major: 8, minor: 0 };
            assert_eq!(cache.get("one", CAPABILITY, || Ok(vec![1])).unwrap(), [1]);
            assert_eq!(cache.get("one", CAPABILITY, never).unwrap(), [1]);
            assert_eq!(cache.get("two", CAPABILITY, || Ok(vec![2])).unwrap(), [2]);
            assert_eq!(cache.get("one", other, || Ok(vec![3])).unwrap(), [3]);
            let refused =
                cache.get("three", other, || Err(StepFailure::retriable("toolchain.kernels_not_built", "no")));
            assert_eq!(refused.unwrap_err().code, "toolchain.kernels_not_built");
        });
    }

    #[test]
    fn every_kind_of_damage_leads_to_new_kernels() {
        let image = vec![7; 100];
        let damages: [fn(&mut Vec<u8>); 5] = [
            Vec::clear,
            |bytes| bytes.truncate(60),
            |bytes| bytes.fill(0),
            |bytes| bytes[3] ^= 1,
            // As an earlier version kept them.
            |bytes| bytes.truncate(100),
        ];
        for (number, damage) in damages.into_iter().enumerate() {
            with_cache(|cache| {
                cache.get("one", CAPABILITY, || Ok(image.clone())).unwrap();
                let path = std::fs::read_dir(&cache.folder).unwrap().next().unwrap().unwrap().path();
                let mut bytes = std::fs::read(&path).unwrap();
                damage(&mut bytes);
                std::fs::write(&path, bytes).unwrap();
                assert_eq!(cache.get("one", CAPABILITY, || Ok(vec![8])).unwrap(), [8], "damage {number}");
                assert_eq!(cache.get("one", CAPABILITY, never).unwrap(), [8], "damage {number}");
            });
        }
    }
}
