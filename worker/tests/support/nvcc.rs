//! The CUDA compiler that tests build with: the machine's, or the one that `cargo xtask test --install` put beside the
//! results of the build.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::attempt::BuildReport;
use nightshift_protocol::step::StepFailure;
use nightshift_protocol::task::CudaLibrary;
use nightshift_sandbox::process::{CancelFlag, JailHost, JailedCommand, SandboxChoice, run_jailed};
use nightshift_toolchain::build::{Builder, Compiler, Role, build};
use nightshift_toolchain::build_cache::BuildCache;
use nightshift_toolchain::nvcc::{CudaCompiler, DEFAULT_ARCH, Nvcc, NvccError, Search};
use nightshift_worker::artifacts::{ArtifactCache, ArtifactError, ArtifactStore, StepArtifacts, Transfer};

const BUILD_TIMEOUT_MS: u64 = 120_000;

/// Where `cargo xtask test --install` installs the compiler.
pub(crate) fn install_folder() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("nvcc")
}

/// A jail made of the test's own child.
pub(crate) fn jail(means: SandboxChoice) -> JailHost {
    JailHost::new(PathBuf::from(env!("CARGO_BIN_EXE_nightshift_child")), means)
}

/// The compiler, for the architecture that is built for where there is no GPU.
pub(crate) fn find(scratch: &Path, means: SandboxChoice) -> Result<Nvcc, NvccError> {
    #[expect(clippy::disallowed_methods, reason = "the search path decides which compiler the tests use")]
    let path = std::env::var("PATH").unwrap_or_default();
    let search_path: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let install_folder = install_folder();
    let search = Search {
        configured: None,
        search_path: &search_path,
        system_root: Path::new("/"),
        install_folder: Some(&install_folder),
        arch: DEFAULT_ARCH,
        host_compiler: None,
        os: "Linux",
        proofs: None,
    };
    Nvcc::find(&search, scratch, &|command: &JailedCommand| run_jailed(&jail(means), command, &CancelFlag::default()))
}

/// Takes and gives nothing: builds are answered from the cache of builds.
struct NoStore;

impl ArtifactStore for NoStore {
    fn fetch(&self, hash: &ArtifactHash, _: &mut File, _: &Transfer<'_>) -> Result<(), ArtifactError> {
        panic!("nothing is fetched, but {hash}")
    }

    fn put(&self, bytes: &[u8], _: &Transfer<'_>) -> Result<ArtifactHash, ArtifactError> {
        Ok(ArtifactHash::of(bytes))
    }
}

/// A machine with nvcc and caches of its own.
pub(crate) struct Bench {
    nvcc: Arc<Nvcc>,
    means: SandboxChoice,
    pub(crate) folder: tempfile::TempDir,
    builds: BuildCache,
    artifacts: ArtifactCache,
}

#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
impl Bench {
    pub(crate) fn new(nvcc: &Arc<Nvcc>) -> Self {
        Self::jailed(nvcc, SandboxChoice::Best)
    }

    pub(crate) fn jailed(nvcc: &Arc<Nvcc>, means: SandboxChoice) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("scratch")).unwrap();
        Self {
            nvcc: Arc::clone(nvcc),
            means,
            builds: BuildCache::open(&folder.path().join("builds")).unwrap(),
            artifacts: ArtifactCache::open(&folder.path().join("artifacts"), 1 << 30, Box::new(NoStore)).unwrap(),
            folder,
        }
    }

    pub(crate) fn try_build(
        &self,
        source: &str,
        role: Role,
        libraries: &[CudaLibrary],
    ) -> Result<BuildReport, StepFailure> {
        let cancel = CancelFlag::default();
        let libraries: BTreeSet<CudaLibrary> = libraries.iter().copied().collect();
        let scratch = tempfile::tempdir_in(self.folder.path().canonicalize().unwrap().join("scratch")).unwrap();
        let builder = Builder {
            jail: &jail(self.means),
            compiler: Compiler::Cuda(CudaCompiler { nvcc: &self.nvcc, libraries: &libraries }),
            cache: &self.builds,
            artifacts: &StepArtifacts::new(&self.artifacts, Transfer { cancel: &cancel, traceparent: None }),
            scratch: scratch.path(),
            cancel: &cancel,
        };
        build(&builder, source, role, BUILD_TIMEOUT_MS).map(|(report, path)| {
            assert_eq!(path.is_some_and(|path| path.is_file()), report.library.is_some());
            report
        })
    }
}
