//! The search for the Python that has `PyTorch`.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use serde::Deserialize;
use tempfile::TempDir;

use super::{Python, PythonError};
use nightshift_sandbox::access::temporary_folder;
use nightshift_sandbox::process::{CancelFlag, run_trusted};

/// Program names to find in the search path.
const NAMES: [&str; 2] = ["python3", "python"];

/// An interpreter answers in a moment; from a slow network file system it may take so long.
const ANSWER_LIMIT: Duration = Duration::from_mins(1);

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
    /// What a search found that another one would find again.
    found: OnceLock<Result<Python, PythonError>>,
    /// Held during a search, because two would do the same work.
    searching: Mutex<()>,
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

    /// Returns the Python. Blocks the first time, and again when none answered then.
    pub fn python(&self, cancel: &CancelFlag) -> Result<&Python, PythonError> {
        let _searching = if self.found.get().is_none() { cancel.lock(&self.searching) } else { None };
        if let Some(found) = self.found.get() {
            return found.as_ref().map_err(Clone::clone);
        }
        match self.search(cancel) {
            Err(error @ PythonError::NoAnswer { .. }) => Err(error),
            lasting => self.found.get_or_init(|| lasting).as_ref().map_err(Clone::clone),
        }
    }

    fn search(&self, cancel: &CancelFlag) -> Result<Python, PythonError> {
        let mut python = find(self.configured.as_deref(), &self.search_path, cancel)?;
        if let Some(folder) = self.bytecode.as_ref().filter(|_| !python.compiled) {
            python.keep_bytecode(folder, cancel);
            if cancel.is_cancelled() {
                let reason = "the work was cancelled while its bytecode was written".to_owned();
                return Err(PythonError::NoAnswer { program: python.program, reason });
            }
        }
        match &self.models {
            Some(folder) => python.with_models(folder),
            None => Ok(python),
        }
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

/// Why a program is not the Python that is searched for.
enum Unfit {
    /// It is a Python of this version, without `PyTorch`.
    NoTorch(String),
    /// It cannot be used.
    Unusable(String),
    /// It may be the one, and did not answer.
    NoAnswer(String),
}

/// Returns the Python that was named, or the first one of the search path that has `PyTorch`. Blocks: it asks each of them.
pub fn find(configured: Option<&Path>, search_path: &[PathBuf], cancel: &CancelFlag) -> Result<Python, PythonError> {
    if let Some(program) = configured {
        let unusable = |reason| PythonError::Unusable { program: program.to_path_buf(), reason };
        return ask(program, cancel).map_err(|unfit| match unfit {
            Unfit::NoTorch(version) => unusable(format!("Python {version} has no PyTorch")),
            Unfit::Unusable(reason) => unusable(reason),
            Unfit::NoAnswer(reason) => PythonError::NoAnswer { program: program.to_path_buf(), reason },
        });
    }
    let mut seen = BTreeSet::new();
    let mut without = Vec::new();
    for program in search_path.iter().flat_map(|folder| NAMES.map(|name| folder.join(name))) {
        if !program.is_file() || !seen.insert(program.canonicalize().unwrap_or_else(|_| program.clone())) {
            continue;
        }
        match ask(&program, cancel) {
            Ok(python) => return Ok(python),
            Err(Unfit::NoTorch(version)) => without.push(format!("Python {version} at {} has none", program.display())),
            Err(Unfit::Unusable(reason)) => without.push(format!("{}: {reason}", program.display())),
            // A later one may have another PyTorch: this one is asked again.
            Err(Unfit::NoAnswer(reason)) => return Err(PythonError::NoAnswer { program, reason }),
        }
    }
    let looked_at = if without.is_empty() { "no python3 in the search path".to_owned() } else { without.join("; ") };
    Err(PythonError::NotFound { looked_at })
}

/// Returns the program in its folder's canonical path: a jail may lack folders of a detour, as in `here/../bin/python`. If the program
/// is a link, the result keeps the link, because a virtual environment is a link to the Python that it was made from.
fn without_detours(program: &Path) -> PathBuf {
    let folder =
        program.parent().filter(|folder| !folder.as_os_str().is_empty()).and_then(|folder| folder.canonicalize().ok());
    folder.zip(program.file_name()).map_or_else(|| program.to_path_buf(), |(folder, name)| folder.join(name))
}

/// Returns a Python installation with `PyTorch`.
fn ask(program: &Path, cancel: &CancelFlag) -> Result<Python, Unfit> {
    let program = &without_detours(program);
    let output =
        run_trusted(program, ["-I", "-c", QUESTION], ANSWER_LIMIT, cancel).map_err(|error| match error.kind() {
            ErrorKind::TimedOut | ErrorKind::Interrupted => Unfit::NoAnswer(error.to_string()),
            _ => Unfit::Unusable(format!("it cannot be started: {error}")),
        })?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(Unfit::Unusable(format!("it failed: {}", said.lines().last().unwrap_or("it said nothing").trim())));
    }
    let answer: Answer = serde_json::from_slice(&output.stdout)
        .map_err(|_| Unfit::Unusable("it does not answer as a Python interpreter does".to_owned()))?;
    let Answer { program, version, torch, folders, compiled } = answer;
    let torch = torch.ok_or_else(|| Unfit::NoTorch(version.clone()))?;
    Ok(Python { program, folders: outermost(folders), version, torch, compiled, bytecode: None, models: None })
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
        let going_on = CancelFlag::default();
        let found = find(None, &[plain.clone(), good.clone(), later], &going_on).unwrap();
        assert_eq!((found.torch.as_str(), &found.program), ("2.9.0", &good.join("python3")));
        assert_eq!(found.folders, [good]);

        let missing = find(None, std::slice::from_ref(&plain), &going_on).unwrap_err();
        assert_eq!(missing.code(), "toolchain.torch_not_found");
        assert!(missing.to_string().contains("Python 3.9.1 at"), "{missing}");
        let named = find(Some(&plain.join("python3")), &[], &going_on).unwrap_err();
        assert_eq!(named.code(), "toolchain.python_unusable");
        assert!(
            find(Some(&root.join("nothing")), &[], &going_on).unwrap_err().to_string().contains("cannot be started")
        );
    }

    #[test]
    fn a_search_that_was_cancelled_is_made_again() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        stand_in(&root, "python3", "\"2.9.0\"");
        for search in
            [PythonSearch::new(Some(root.join("python3")), Vec::new()), PythonSearch::new(None, vec![root.clone()])]
        {
            let program = root.join("python3");
            let answers = std::fs::read_to_string(&program).unwrap();
            write_executable(&program, "#!/bin/sh\nexec sleep 600\n");
            let cancel = CancelFlag::default();
            let ended = std::thread::scope(|scope| {
                let searching = scope.spawn(|| search.python(&cancel).cloned());
                cancel.cancel();
                searching.join().unwrap()
            });
            assert!(matches!(ended, Err(PythonError::NoAnswer { .. })), "{ended:?}");
            write_executable(&program, &answers);
            assert_eq!(search.python(&CancelFlag::default()).unwrap().torch, "2.9.0");
        }
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
        let with_own = with_own.python(&CancelFlag::default()).unwrap();
        assert_eq!((&with_own.bytecode, with_own.flags().len(), kept.exists()), (&None, 4, false));

        let program = plain.join("python3");
        let text = std::fs::read_to_string(&program).unwrap().replace("\"compiled\":true", "\"compiled\":false");
        write_executable(&program, &text);
        for _ in 0..2 {
            let without = search();
            let without = without.python(&CancelFlag::default()).unwrap();
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
        let found = found.python(&CancelFlag::default()).unwrap();
        assert_eq!(
            (found.models.as_deref(), found.folders.last()),
            (Some(cache.join("hub").as_path()), Some(&cache.join("hub")))
        );
        assert!(!found.folders.contains(&cache), "keys lie there");
        let none = (root.join("none"), "No such file");
        for (named, why) in [none, (root.join("empty"), "no model was fetched"), (plain.join("python3"), "no folder")] {
            let error = search(&named).python(&CancelFlag::default()).unwrap_err();
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
