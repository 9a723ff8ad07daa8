//! The configuration of a worker.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use nightshift_protocol::needs::Label;
use nightshift_toolchain::nvcc::NvccChoice;
use secrecy::SecretString;

use crate::gpu::Gpus;

/// The configuration of a worker.
#[derive(Debug, Clone)]
pub struct WorkerConfig {
    /// Address of the server, or addresses of its replicas, separated by commas.
    pub server_url: String,
    /// The worker's token; empty if the server requires none.
    pub token: SecretString,
    /// Display name.
    pub name: String,
    /// Whether the worker runs in the server's process.
    pub embedded: bool,
    /// Scratch folder of steps. It is removed at the end; leftovers of killed workers are removed at the start.
    pub scratch_dir: PathBuf,
    /// Cache folder of builds and artifacts. Several workers may share it.
    pub cache_dir: PathBuf,
    /// This binary, which child processes run.
    pub executable: PathBuf,
    /// Name or path of the C++ compiler; by default the first one found.
    pub cpp_compiler: Option<String>,
    /// The CUDA compiler and its target architectures.
    pub nvcc: NvccChoice,
    /// The Python interpreter that runs models of `PyTorch`; by default the first one of the search path with `PyTorch`.
    pub python: Option<PathBuf>,
    /// The Hugging Face cache that models of `PyTorch` may read, if any.
    pub hf_home: Option<PathBuf>,
    /// Maximum number of parallel builds.
    pub cpu_slots: u32,
    /// Labels that steps can require.
    pub labels: BTreeSet<Label>,
    /// Folders to search for tools, in addition to those of the system and of CUDA: the user's search path.
    pub search_path: Vec<PathBuf>,
    /// Time limit for finishing steps while draining.
    pub drain_timeout: Duration,
    /// The GPUs that the worker may use.
    pub gpus: Gpus,
    /// Maximum number of processes with a context on all GPUs of this machine together; by default as many as fit into their
    /// memory.
    pub gpu_contexts: Option<u32>,
    /// Whether programs are profiled with tools. Without them, a profile holds only compiler and roofline data, which takes
    /// no time. This suits campaigns that need many verdicts.
    pub profilers: bool,
}

impl WorkerConfig {
    /// Returns the folder with the locks of all GPUs, which processes of this machine share. Those of a GPU lie in a folder below it
    /// that has its UUID as name.
    #[must_use]
    pub fn device_locks(&self) -> PathBuf {
        self.cache_dir.join("devices")
    }
}
