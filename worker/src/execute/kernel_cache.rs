//! The evaluator's compiled kernels, in a local folder: nvcc takes seconds for them.

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
        if let Ok(image) = std::fs::read(&path)
            && !image.is_empty()
        {
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
        std::io::Write::write_all(&mut file, image)?;
        file.persist(path)?;
        Ok(())
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use nightshift_sandbox::process::SandboxChoice;

    use super::*;

    #[test]
    fn kernels_are_compiled_once_for_each_compiler_and_device() {
        let folder = tempfile::tempdir().unwrap();
        let (jail, cancel) = (JailHost::new(PathBuf::new(), SandboxChoice::None), CancelFlag::default());
        let cache =
            KernelCache { folder: folder.path().join("kernels"), jail: &jail, scratch: folder.path(), cancel: &cancel };
        let capability = ComputeCapability { major: 9, minor: 0 };
        let other = ComputeCapability { major: 8, minor: 0 };
        let never = || -> Result<Vec<u8>, StepFailure> { panic!("compiled again") };
        assert_eq!(cache.get("one", capability, || Ok(vec![1])).unwrap(), [1]);
        assert_eq!(cache.get("one", capability, never).unwrap(), [1]);
        assert_eq!(cache.get("two", capability, || Ok(vec![2])).unwrap(), [2]);
        assert_eq!(cache.get("one", other, || Ok(vec![3])).unwrap(), [3]);
        let refused = cache.get("three", other, || Err(StepFailure::retriable("toolchain.kernels_not_built", "no")));
        assert_eq!(refused.unwrap_err().code, "toolchain.kernels_not_built");
    }
}
