//! The Python that has `PyTorch`: which program, and what a jail has to show for it to start.

mod search;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nightshift_protocol::machine::Toolchain;

pub use self::search::{PythonSearch, find};
use nightshift_sandbox::process::{CancelFlag, SEARCH_PATH, run_trusted};

/// Reads arguments of models as tasks have them written down, in Python: for scripts that stand behind it.
pub const ARGUMENTS: &str = include_str!("arguments.py");

/// Loading everything and writing its bytecode takes half a minute where the disk is fast.
const BYTECODE_LIMIT: Duration = Duration::from_mins(10);

/// Loads what processes with a model load, so that its bytecode is kept.
const LOAD_ALL: &str = "\
import importlib
for name in ('torch', 'torch.export', 'torch.utils.cpp_extension', 'torch._dynamo', 'torch._inductor.compile_fx', 'triton'):
    try:
        importlib.import_module(name)
    except Exception:
        pass
";

/// A Python installation with `PyTorch`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Python {
    /// The program.
    pub program: PathBuf,
    /// Folders that it reads, in addition to the system's.
    pub folders: Vec<PathBuf>,
    /// Its version, for example `3.12.3`.
    pub version: String,
    /// The version of `PyTorch`.
    pub torch: String,
    /// Where its bytecode is kept, when it lies in none of its own folders: some installers leave that to the first use,
    /// and a process in a jail writes nothing.
    pub bytecode: Option<PathBuf>,
    /// Whether its own folders have the bytecode of `PyTorch`.
    pub compiled: bool,
    /// The folder in which models find what was fetched of them before: `hub` of Hugging Face's cache.
    pub models: Option<PathBuf>,
}

impl Python {
    /// Has its bytecode written into a folder of this Python's below that one, once; without it everything works, later.
    fn keep_bytecode(&mut self, below: &Path, cancel: &CancelFlag) {
        let folder = below.join(self.toolchain().fingerprint);
        let whole = folder.join("whole");
        if !whole.exists() {
            let args = ["-I".into(), "-X".into(), prefix(&folder), "-c".into(), OsString::from(LOAD_ALL)];
            let loaded = std::fs::create_dir_all(&folder)
                .and_then(|()| run_trusted(&self.program, args, BYTECODE_LIMIT, cancel));
            let written = loaded.and_then(|output| {
                if output.status.success() {
                    return std::fs::write(&whole, "");
                }
                Err(std::io::Error::other(format!("loading PyTorch ended with {}", output.status)))
            });
            if let Err(error) = written {
                return tracing::warn!(error = %error, "the bytecode of Python could not be kept: it starts slowly");
            }
        }
        let Ok(folder) = folder.canonicalize() else { return };
        self.folders.push(folder.clone());
        self.bytecode = Some(folder);
    }

    /// The same, and its models may read what was fetched into this folder, which is the cache of Hugging Face. Nothing of it but
    /// `hub` is shown to a jail: keys lie beside that.
    pub fn with_models(mut self, folder: &Path) -> Result<Self, PythonError> {
        let unusable = |reason: String| PythonError::Models { folder: folder.to_path_buf(), reason };
        let found = folder.canonicalize().map_err(|error| unusable(error.to_string()))?;
        if !found.is_dir() {
            return Err(unusable("it is no folder".to_owned()));
        }
        let no_hub = |error| unusable(format!("no model was fetched into it, as its folder `hub` shows ({error})"));
        let found = found.join("hub").canonicalize().map_err(no_hub)?;
        if !found.is_dir() {
            return Err(unusable("its `hub` is no folder".to_owned()));
        }
        self.folders.push(found.clone());
        self.models = Some(found);
        Ok(self)
    }

    /// Returns the arguments of every Python process in a jail.
    #[must_use]
    pub fn flags(&self) -> Vec<OsString> {
        flags(self.bytecode.as_deref())
    }

    /// Returns its description in reports, as for a compiler.
    #[must_use]
    pub fn toolchain(&self) -> Toolchain {
        let version = format!("Python {}, PyTorch {}", self.version, self.torch);
        // What was prepared with models that were fetched is not known where they are missing.
        let models = self.models.as_ref().map(|folder| format!("\n{}", folder.display())).unwrap_or_default();
        let named = format!("{}\n{version}{models}", self.program.display());
        let fingerprint = blake3::hash(named.as_bytes()).to_hex().to_string();
        Toolchain {
            program: "python3".to_owned(),
            path: self.program.display().to_string(),
            version,
            flags: Vec::new(),
            fingerprint,
        }
    }
}

/// The error of finding a Python installation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PythonError {
    /// No Python with `PyTorch` in the search path.
    #[error(
        "no Python with PyTorch was found ({looked_at}): install it (`python3 -m venv DIR && DIR/bin/pip install torch`) and \
         name it as worker.python in the configuration (NIGHTSHIFT_WORKER__PYTHON=DIR/bin/python)"
    )]
    NotFound {
        /// The installations that were found instead.
        looked_at: String,
    },
    /// The one that was named cannot be used.
    #[error("{} cannot be used: {reason}; name a Python interpreter that has PyTorch", program.display())]
    Unusable {
        /// The program.
        program: PathBuf,
        /// Why.
        reason: String,
    },
    /// One did not answer in time, or the work was cancelled before it did. It may answer later.
    #[error("{} was asked for PyTorch and did not answer: {reason}", program.display())]
    NoAnswer {
        /// The program.
        program: PathBuf,
        /// Why.
        reason: String,
    },
    /// The folder of fetched models that was named cannot be used.
    #[error(
        "the folder of fetched models {} cannot be used: {reason}; name the cache of Hugging Face with --hf-home, or \
         worker.hf_home in the configuration",
        folder.display()
    )]
    Models {
        /// The folder.
        folder: PathBuf,
        /// Why.
        reason: String,
    },
}

/// Isolated from the environment and from the folder that it is started in; writes no bytecode, and warns of nothing.
pub fn flags(bytecode: Option<&Path>) -> Vec<OsString> {
    let mut flags: Vec<OsString> = ["-I", "-B", "-W", "ignore"].map(Into::into).into();
    if let Some(folder) = bytecode {
        flags.extend(["-X".into(), prefix(folder)]);
    }
    flags
}

/// The option that names the folder of bytecode.
fn prefix(folder: &Path) -> OsString {
    let mut prefix = OsString::from("pycache_prefix=");
    prefix.push(folder);
    prefix
}

impl PythonError {
    /// Stable code, documented in `docs/reference/errors.md`.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotFound { .. } => "toolchain.torch_not_found",
            Self::Unusable { .. } | Self::NoAnswer { .. } => "toolchain.python_unusable",
            Self::Models { .. } => "toolchain.hf_home_unusable",
        }
    }
}

/// Returns the environment of every Python process in a jail: libraries keep files in its own folder, and use one thread.
/// What was fetched of models before is looked for in `models`.
#[must_use]
pub fn environment(scratch: &Path, models: Option<&Path>) -> Vec<(String, String)> {
    let folder = scratch.to_string_lossy().into_owned();
    let models = models.map(|models| ("HF_HUB_CACHE", models.to_string_lossy().into_owned()));
    let given = [
        ("HOME", folder.as_str()),
        // What compiles at the first call looks for compilers, and those for what links.
        ("PATH", SEARCH_PATH),
        ("XDG_CACHE_HOME", &folder),
        ("TORCHINDUCTOR_CACHE_DIR", &folder),
        ("TRITON_CACHE_DIR", &folder),
        // What compiles does so in its own process: others would need shared memory, and find none.
        ("TORCHINDUCTOR_COMPILE_THREADS", "1"),
        ("OMP_NUM_THREADS", "1"),
        ("MKL_NUM_THREADS", "1"),
        ("HF_HUB_OFFLINE", "1"),
        // Models are loaded by the thread that asks for them: on the processor there are no others.
        ("HF_DEACTIVATE_ASYNC_LOAD", "1"),
        // Kernels are loaded at their first call, as by PyTorch's default. Loading all kernels of its libraries takes a
        // second of the driver's time and gigabytes of memory. Timed calls come after the first call.
        ("CUDA_MODULE_LOADING", "LAZY"),
        // Without this variable, a lookup of the user's name would read a file that the jail hides.
        ("USER", "nightshift"),
    ]
    .map(|(name, value)| (name, value.to_owned()));
    given.into_iter().chain(models).map(|(name, value)| (name.to_owned(), value)).collect()
}
