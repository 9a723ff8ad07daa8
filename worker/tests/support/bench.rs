//! A worker's bench over a store in memory, with folders of its own.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::attempt::BuildReport;
use nightshift_protocol::step::{StepFailure, StepInput, StepOutput};
use nightshift_protocol::task::TaskBundle;
use nightshift_sandbox::process::CancelFlag;
use nightshift_toolchain::nvcc::NvccChoice;
use nightshift_worker::artifacts::{ArtifactError, ArtifactStore, Transfer};
use nightshift_worker::execute::Workbench;
use nightshift_worker::gpu::{Absence, Gpus};
use nightshift_worker::lease::WorkerConfig;

pub(crate) const CHILD: &str = env!("CARGO_BIN_EXE_nightshift_child");

#[derive(Clone, Default)]
pub(crate) struct Store(pub(crate) Arc<Mutex<HashMap<ArtifactHash, Vec<u8>>>>);

impl ArtifactStore for Store {
    fn fetch(&self, hash: &ArtifactHash, into: &mut File, _: &Transfer<'_>) -> Result<(), ArtifactError> {
        let bytes = self.get(hash)?;
        into.write_all(&bytes).map_err(|source| ArtifactError::Io { path: PathBuf::new(), source })
    }

    fn put(&self, bytes: &[u8], _: &Transfer<'_>) -> Result<ArtifactHash, ArtifactError> {
        Ok(self.keep(bytes))
    }
}

impl Store {
    pub(crate) fn get(&self, hash: &ArtifactHash) -> Result<Vec<u8>, ArtifactError> {
        let Ok(artifacts) = self.0.lock() else { panic!("a test panicked with the artifacts in hand") };
        artifacts.get(hash).cloned().ok_or_else(|| ArtifactError::Server {
            code: "artifact.not_found".to_owned(),
            message: format!("there is no artifact {hash}"),
            transient: false,
        })
    }

    pub(crate) fn keep(&self, bytes: &[u8]) -> ArtifactHash {
        let Ok(mut artifacts) = self.0.lock() else { panic!("a test panicked with the artifacts in hand") };
        let hash = ArtifactHash::of(bytes);
        artifacts.insert(hash.clone(), bytes.to_vec());
        hash
    }
}

/// A worker's bench with folders of its own.
pub(crate) struct Bench {
    pub(crate) inner: Workbench,
    pub(crate) store: Store,
    pub(crate) folder: tempfile::TempDir,
}

#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
impl Bench {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::default();
        let inner = open(folder.path(), &store);
        Self { inner, store, folder }
    }

    pub(crate) fn put(&self, text: &str) -> ArtifactHash {
        self.store.keep(text.as_bytes())
    }

    pub(crate) fn task(&self, reference: &str, target: &str, build_timeout_ms: u64) -> ArtifactHash {
        self.task_of(3072.0, reference, target, build_timeout_ms)
    }

    pub(crate) fn task_of(&self, flops: f64, reference: &str, target: &str, build_timeout_ms: u64) -> ArtifactHash {
        let spec = format!(
            "schema = 1\nname = \"t\"\ntitle = \"t\"\ndescription = \"t\"\ntarget = \"{target}\"\n\
             reference = \"reference.cpp\"\nflops = {flops:.1}\nbytes = 8192.0\n\
             inputs = [{{ name = \"x\", dtype = \"f32\", shape = [1024] }}]\n\
             outputs = [{{ name = \"y\", dtype = \"f32\", shape = [1024] }}]\n\
             tolerance = {{ atol = 1e-5, rtol = 1e-5 }}\nlimits = {{ build_timeout_ms = {build_timeout_ms} }}\n"
        );
        let bundle = TaskBundle {
            spec: toml::from_str(&spec).unwrap(),
            reference_source: reference.to_owned(),
            library_source: None,
        };
        self.put(&serde_json::to_string(&bundle).unwrap())
    }

    pub(crate) fn execute(&self, input: &StepInput) -> Result<StepOutput, StepFailure> {
        self.inner.execute(input, &CancelFlag::default())
    }

    pub(crate) fn build_within(&self, source: &str, build_timeout_ms: u64) -> BuildReport {
        let (task, source) = (self.task("", "cpu", build_timeout_ms), self.put(source));
        match self.execute(&StepInput::Build { task, source, sandbox_required: false }) {
            Ok(StepOutput::Built { report }) => *report,
            other => panic!("not built: {other:?}"),
        }
    }

    pub(crate) fn build(&self, source: &str) -> BuildReport {
        self.build_within(source, 60_000)
    }
}

pub(crate) fn config(folder: &Path, cpp_compiler: Option<String>) -> WorkerConfig {
    WorkerConfig {
        server_url: "http://127.0.0.1:1".to_owned(),
        token: "token".to_owned().into(),
        name: "night".to_owned(),
        embedded: true,
        scratch_dir: folder.join("scratch"),
        cache_dir: folder.join("cache"),
        executable: PathBuf::from(CHILD),
        cpp_compiler,
        nvcc: NvccChoice::default(),
        python: None,
        hf_home: None,
        cpu_slots: 1,
        labels: BTreeSet::new(),
        search_path: Vec::new(),
        drain_timeout: Duration::from_secs(1),
        gpus: Gpus::none(Absence::NoGpu),
        gpu_contexts: None,
        profilers: true,
    }
}

/// A bench in this folder.
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
pub(crate) fn open(folder: &Path, store: &Store) -> Workbench {
    Workbench::open(&config(folder, None), Box::new(store.clone())).unwrap()
}
