//! The Python that has `PyTorch`: which program, and what a jail has to show for it to start.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use nightshift_protocol::machine::Toolchain;
use serde::Deserialize;
use tempfile::TempDir;

use nightshift_sandbox::access::temporary_folder;
use nightshift_sandbox::process::{SEARCH_PATH, run_trusted};

/// Reads arguments of models as tasks have them written down, in Python: for scripts that stand behind it.
pub const ARGUMENTS: &str = include_str!("arguments.py");

/// Program names to find in the search path.
const NAMES: [&str; 2] = ["python3", "python"];

/// Prints what is asked of a Python interpreter, without loading `PyTorch`: that would take seconds.
const QUESTION: &str = "\
import importlib.metadata, importlib.util, json, os, sys
found = importlib.util.find_spec('torch')
try:
    torch = importlib.metadata.version('torch') if found else None
except importlib.metadata.PackageNotFoundError:
    torch = 'unknown'
folders = [sys.prefix, sys.base_prefix, sys.exec_prefix, os.path.dirname(os.path.realpath(sys.executable))]
folders += [entry for entry in sys.path if os.path.isdir(entry)]
folders += list(found.submodule_search_locations or []) if found else []
origin = found.origin if found else None
compiled = bool(origin) and os.path.exists(importlib.util.cache_from_source(origin))
print(json.dumps({'program': sys.executable, 'version': sys.version.split()[0], 'torch': torch, 'folders': folders,
    'compiled': compiled}))
";

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
    fn keep_bytecode(&mut self, below: &Path) {
        let folder = below.join(self.toolchain().fingerprint);
        let whole = folder.join("whole");
        if !whole.exists() {
            let args = ["-I".into(), "-X".into(), prefix(&folder), "-c".into(), OsString::from(LOAD_ALL)];
            let loaded = std::fs::create_dir_all(&folder).and_then(|()| run_trusted(&self.program, args));
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
            Self::Unusable { .. } => "toolchain.python_unusable",
            Self::Models { .. } => "toolchain.hf_home_unusable",
        }
    }
}

/// A Python installation that is searched for at its first use, because the search is slow and most steps need none.
#[derive(Debug, Default)]
pub struct PythonSearch {
    configured: Option<PathBuf>,
    search_path: Vec<PathBuf>,
    /// Where processes with Python get folders of their own; the system's folder for temporary files without it.
    scratch: Option<PathBuf>,
    /// Cache folder of bytecode, shared between workers.
    bytecode: Option<PathBuf>,
    /// Cache folder of fetched models.
    models: Option<PathBuf>,
    found: OnceLock<Result<Python, PythonError>>,
}

impl PythonSearch {
    /// The one that is configured, or the first one of the search path that has `PyTorch`.
    #[must_use]
    pub fn new(configured: Option<PathBuf>, search_path: Vec<PathBuf>) -> Self {
        Self { configured, search_path, ..Self::default() }
    }

    /// Sets the folder in which each process gets its own subfolder. The owner of the folder cleans up after a crash.
    #[must_use]
    pub fn with_scratch(self, scratch: PathBuf) -> Self {
        Self { scratch: Some(scratch), ..self }
    }

    /// Sets a folder for the bytecode of a Python installation without bytecode files.
    #[must_use]
    pub fn with_bytecode(self, bytecode: PathBuf) -> Self {
        Self { bytecode: Some(bytecode), ..self }
    }

    /// The same, with the cache of Hugging Face that models may read.
    #[must_use]
    pub fn with_models(self, models: Option<PathBuf>) -> Self {
        Self { models, ..self }
    }

    /// A folder for one process, and its path without links.
    pub fn own_folder(&self) -> std::io::Result<(TempDir, PathBuf)> {
        let temporary = std::env::temp_dir();
        let folder = temporary_folder(self.scratch.as_deref().unwrap_or(&temporary), "python-")?;
        let path = folder.path().canonicalize()?;
        Ok((folder, path))
    }

    /// The Python. Blocks the first time.
    pub fn python(&self) -> Result<&Python, &PythonError> {
        let find = || {
            let mut python = find(self.configured.as_deref(), &self.search_path)?;
            if let Some(folder) = self.bytecode.as_ref().filter(|_| !python.compiled) {
                python.keep_bytecode(folder);
            }
            match &self.models {
                Some(folder) => python.with_models(folder),
                None => Ok(python),
            }
        };
        self.found.get_or_init(find).as_ref()
    }
}

impl From<Python> for PythonSearch {
    fn from(python: Python) -> Self {
        Self { found: OnceLock::from(Ok(python)), ..Self::default() }
    }
}

#[derive(Deserialize)]
struct Answer {
    program: PathBuf,
    version: String,
    torch: Option<String>,
    folders: Vec<PathBuf>,
    compiled: bool,
}

/// The Python that was named, or the first one of the search path that has `PyTorch`. Blocks: it asks each of them.
pub fn find(configured: Option<&Path>, search_path: &[PathBuf]) -> Result<Python, PythonError> {
    if let Some(program) = configured {
        let unusable = |reason| PythonError::Unusable { program: program.to_path_buf(), reason };
        return ask(program).map_err(unusable)?.map_err(|version| unusable(format!("Python {version} has no PyTorch")));
    }
    let mut seen = BTreeSet::new();
    let mut without = Vec::new();
    for program in search_path.iter().flat_map(|folder| NAMES.map(|name| folder.join(name))) {
        if !program.is_file() || !seen.insert(program.canonicalize().unwrap_or_else(|_| program.clone())) {
            continue;
        }
        match ask(&program) {
            Ok(Ok(python)) => return Ok(python),
            Ok(Err(version)) => without.push(format!("Python {version} at {} has none", program.display())),
            Err(reason) => without.push(format!("{}: {reason}", program.display())),
        }
    }
    let looked_at = if without.is_empty() { "no python3 in the search path".to_owned() } else { without.join("; ") };
    Err(PythonError::NotFound { looked_at })
}

/// The same program by the path of its folder, without what a jail may lack on the way, as in `here/../bin/python`. The
/// program itself may be a link, and stays one: that is how a virtual environment is told from the Python that it is of.
fn without_detours(program: &Path) -> PathBuf {
    let folder =
        program.parent().filter(|folder| !folder.as_os_str().is_empty()).and_then(|folder| folder.canonicalize().ok());
    folder.zip(program.file_name()).map_or_else(|| program.to_path_buf(), |(folder, name)| folder.join(name))
}

/// Returns a Python installation with `PyTorch`, or the version of one without it. Fails for other programs.
fn ask(program: &Path) -> Result<Result<Python, String>, String> {
    let program = &without_detours(program);
    let output =
        run_trusted(program, ["-I", "-c", QUESTION]).map_err(|error| format!("it cannot be started: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("it failed: {}", said.lines().last().unwrap_or("it said nothing").trim()));
    }
    let answer: Answer = serde_json::from_slice(&output.stdout)
        .map_err(|_| "it does not answer as a Python interpreter does".to_owned())?;
    let Some(torch) = answer.torch else { return Ok(Err(answer.version)) };
    let folders = outermost(answer.folders);
    let Answer { program, version, compiled, .. } = answer;
    Ok(Ok(Python { program, folders, version, torch, compiled, bytecode: None, models: None }))
}

/// The folders that exist, with their links resolved beside them, without those that lie within others.
fn outermost(folders: Vec<PathBuf>) -> Vec<PathBuf> {
    let resolved: Vec<PathBuf> = folders.iter().filter_map(|folder| folder.canonicalize().ok()).collect();
    let all: BTreeSet<PathBuf> = folders
        .into_iter()
        .chain(resolved)
        .filter(|folder| folder.is_absolute() && folder.parent().is_some())
        .collect();
    let existing: Vec<PathBuf> = all.into_iter().filter(|folder| folder.is_dir()).collect();
    let within_another = |folder: &PathBuf| existing.iter().any(|other| other != folder && folder.starts_with(other));
    existing.iter().filter(|folder| !within_another(folder)).cloned().collect()
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

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test")]
mod tests {
    use nightshift_testbed::executable::write_executable;

    use super::*;

    /// Writes a program that answers like a Python interpreter of this kind.
    fn stand_in(folder: &Path, name: &str, torch: &str) -> PathBuf {
        std::fs::create_dir_all(folder).unwrap();
        let (program, folder) = (folder.join(name), folder.display());
        let answer = format!(
            r#"{{"program":"{folder}/{name}","version":"3.9.1","torch":{torch},"folders":["{folder}"],"compiled":true}}"#
        );
        write_executable(&program, &format!("#!/bin/sh\necho '{answer}'\n"));
        program
    }

    #[test]
    fn the_first_python_that_has_pytorch_is_taken() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let (plain, good, later) = (root.join("plain"), root.join("good"), root.join("later"));
        stand_in(&plain, "python3", "null");
        stand_in(&good, "python3", "\"2.9.0\"");
        stand_in(&later, "python3", "\"2.8.0\"");
        let found = find(None, &[plain.clone(), good.clone(), later]).unwrap();
        assert_eq!((found.torch.as_str(), &found.program), ("2.9.0", &good.join("python3")));
        assert_eq!(found.folders, [good]);

        let missing = find(None, std::slice::from_ref(&plain)).unwrap_err();
        assert_eq!(missing.code(), "toolchain.torch_not_found");
        assert!(missing.to_string().contains("Python 3.9.1 at"), "{missing}");
        let named = find(Some(&plain.join("python3")), &[]).unwrap_err();
        assert_eq!(named.code(), "toolchain.python_unusable");
        assert!(find(Some(&root.join("nothing")), &[]).unwrap_err().to_string().contains("cannot be started"));
    }

    #[test]
    fn a_python_is_named_by_a_path_that_a_jail_has() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("bin")).unwrap();
        std::fs::create_dir_all(root.join("elsewhere")).unwrap();
        std::os::unix::fs::symlink("/bin/sh", root.join("bin/python")).unwrap();
        assert_eq!(without_detours(&root.join("elsewhere/../bin/python")), root.join("bin/python"));
        for unknown in ["python", "none/python"] {
            assert_eq!(without_detours(Path::new(unknown)), Path::new(unknown));
        }
    }

    #[test]
    fn a_python_without_bytecode_gets_some_and_shows_it_to_the_jail() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let (plain, kept) = (root.join("plain"), root.join("kept"));
        stand_in(&plain, "python3", "\"2.9.0\"");
        let search = || PythonSearch::new(Some(plain.join("python3")), Vec::new()).with_bytecode(kept.clone());
        let with_own = search();
        let with_own = with_own.python().unwrap();
        assert_eq!((&with_own.bytecode, with_own.flags().len(), kept.exists()), (&None, 4, false));

        let program = plain.join("python3");
        let text = std::fs::read_to_string(&program).unwrap().replace("\"compiled\":true", "\"compiled\":false");
        write_executable(&program, &text);
        for _ in 0..2 {
            let without = search();
            let without = without.python().unwrap();
            let folder = without.bytecode.clone().unwrap();
            assert!(folder.starts_with(&kept) && without.folders.contains(&folder), "{without:?}");
            let prefix = format!("pycache_prefix={}", folder.display());
            assert!(without.flags().contains(&prefix.into()), "{:?}", without.flags());
        }
    }

    #[test]
    fn a_cache_of_models_is_shown_to_the_jail_and_has_to_be_a_folder() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let (plain, cache) = (root.join("plain"), root.join("cache"));
        stand_in(&plain, "python3", "\"2.9.0\"");
        std::fs::create_dir_all(cache.join("hub")).unwrap();
        std::fs::create_dir(root.join("empty")).unwrap();
        let search = |models: &Path| {
            PythonSearch::new(Some(plain.join("python3")), Vec::new()).with_models(Some(models.to_path_buf()))
        };
        let found = search(&cache);
        let found = found.python().unwrap();
        assert_eq!(
            (found.models.as_deref(), found.folders.last()),
            (Some(cache.join("hub").as_path()), Some(&cache.join("hub")))
        );
        assert!(!found.folders.contains(&cache), "keys lie there");
        let none = (root.join("none"), "No such file");
        for (named, why) in [none, (root.join("empty"), "no model was fetched"), (plain.join("python3"), "no folder")] {
            let error = search(&named).python().unwrap_err().clone();
            assert_eq!(error.code(), "toolchain.hf_home_unusable");
            assert!(error.to_string().contains(why), "{error}");
        }
    }

    #[test]
    fn folders_within_others_are_not_named_again() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("lib/inner")).unwrap();
        let folders = outermost(vec![root.join("lib/inner"), root.join("lib"), root.join("gone"), PathBuf::from("/")]);
        assert_eq!(folders, [root.join("lib")]);
    }
}
