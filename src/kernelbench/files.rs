//! Which files are meant: one, those of a folder, or those of a repository.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nightshift_protocol::task::PYTHON_EXTENSION;
use nightshift_sandbox::process::{CancelFlag, run_trusted};
use tempfile::TempDir;

use crate::failure::{Failure, Result};

/// Maximum number of files that one import looks at.
const MAX_FILES: usize = 2_000;

/// Largest file that is read, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// A shallow clone of a repository takes seconds, from a slow network minutes.
const CLONE_LIMIT: Duration = Duration::from_mins(10);

/// How folders of levels begin.
const LEVEL: &str = "level";

/// Where a repository keeps them.
const FOLDER: &str = "KernelBench";

/// What addresses of repositories begin with.
const SCHEMES: [&str; 6] = ["https://", "http://", "ssh://", "git://", "file://", "git@"];

/// One file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ModelFile {
    /// Its level, by the folder that it lies in.
    pub(crate) level: Option<u32>,
    /// Its number, which its name begins with.
    pub(crate) id: Option<u32>,
    /// Its name without the ending.
    pub(crate) stem: String,
    /// Where it lies.
    pub(crate) path: PathBuf,
}

impl ModelFile {
    /// A file by its path; none where it is no file of Python by its name.
    pub(crate) fn new(path: PathBuf) -> Option<Self> {
        if path.extension().is_none_or(|extension| extension != PYTHON_EXTENSION) {
            return None;
        }
        // What of a name is no text cannot be asked for, but the file is not left out.
        let stem = path.file_stem()?.to_string_lossy().into_owned();
        let folder = path.parent().and_then(Path::file_name).and_then(|name| name.to_str()).unwrap_or_default();
        let level = folder.strip_prefix(LEVEL).and_then(|number| number.parse().ok());
        let digits = stem.chars().take_while(char::is_ascii_digit).count();
        let id = stem.get(..digits).and_then(|number| number.parse().ok());
        Some(Self { level, id, stem, path })
    }

    /// How people know it: `level1/19_ReLU.py`.
    pub(crate) fn label(&self) -> String {
        match self.level {
            Some(level) => format!("{LEVEL}{level}/{}.{PYTHON_EXTENSION}", self.plain_stem()),
            None => format!("{}.{PYTHON_EXTENSION}", self.plain_stem()),
        }
    }

    /// The stem as it may be written into other files and to terminals.
    pub(crate) fn plain_stem(&self) -> String {
        self.stem.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
    }

    /// Returns whether `name` names this file: `40`, `1/40`, `40_LayerNorm` or `40_LayerNorm.py`.
    fn is_called(&self, name: &str) -> bool {
        let (level, name) = match name.split_once('/') {
            Some((level, name)) => (Some(level.trim_start_matches(LEVEL)), name),
            None => (None, name),
        };
        if level.is_some_and(|level| level.parse().ok() != self.level) {
            return false;
        }
        name.parse().map_or_else(|_| name.trim_end_matches(".py") == self.stem, |id: u32| self.id == Some(id))
    }
}

/// Reads a file as Python does.
pub(crate) fn read(path: &Path) -> Result<String> {
    let unreadable = |reason: String| Failure::new("task.unreadable", format!("it cannot be read: {reason}"));
    let size_bytes = std::fs::metadata(path).map_err(|error| unreadable(error.to_string()))?.len();
    if size_bytes > MAX_FILE_BYTES {
        let message = format!("the file has {size_bytes} bytes, at most {MAX_FILE_BYTES} are read");
        return Err(Failure::new("task.too_large", message));
    }
    let bytes = std::fs::read(path).map_err(|error| unreadable(error.to_string()))?;
    String::from_utf8(bytes)
        // As Python reads it.
        .map(|text| text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
        .map_err(|_| Failure::new("task.model_syntax", "the file is not UTF-8 text".to_owned()))
}

/// The files, and what has to live as long as they are read.
#[derive(Debug)]
pub(crate) struct Found {
    /// In the order of levels and numbers.
    pub(crate) files: Vec<ModelFile>,
    /// Where they come from, for people; none for a path of this machine.
    pub(crate) origin: Option<String>,
    _clone: Option<TempDir>,
}

/// The files that are meant. Blocks.
pub(crate) fn find(source: &str, levels: &[u32], names: &[String], cancel: &CancelFlag) -> Result<Found> {
    let is_address = SCHEMES.iter().any(|scheme| source.starts_with(scheme));
    let (root, origin, clone) = if is_address {
        let (folder, commit) = clone(source, cancel)?;
        (folder.path().to_path_buf(), Some(format!("{source} at {commit}")), Some(folder))
    } else {
        (PathBuf::from(source), None, None)
    };
    let mut files = listed(&root, source)?;
    if let Some(unknown) = levels.iter().find(|level| !files.iter().any(|file| file.level == Some(**level))) {
        let there: BTreeSet<u32> = files.iter().filter_map(|file| file.level).collect();
        let there: Vec<String> = there.iter().map(u32::to_string).collect();
        let hint = if there.is_empty() {
            "no file of it lies in a folder of a level: level1, level2, ...".to_owned()
        } else {
            format!("its levels: {}", there.join(", "))
        };
        return Err(Failure::new("task.not_found", format!("`{source}` has no level {unknown}")).hint(hint));
    }
    if !levels.is_empty() {
        files.retain(|file| file.level.is_some_and(|level| levels.contains(&level)));
    }
    if let Some(unknown) = names.iter().find(|name| !files.iter().any(|file| file.is_called(name))) {
        let among = if levels.is_empty() { String::new() } else { " in the levels that were asked for".to_owned() };
        return Err(Failure::new("task.not_found", format!("`{source}` has no task `{unknown}`{among}"))
            .hint("name it by its number (40), level and number (1/40), or file (40_LayerNorm)"));
    }
    if !names.is_empty() {
        files.retain(|file| names.iter().any(|name| file.is_called(name)));
    }
    if files.is_empty() {
        return Err(Failure::new("task.not_found", format!("`{source}` has no file of Python that is meant"))
            .hint("name a file, a folder with such files, or one with the folders level1, level2, ..."));
    }
    if files.len() > MAX_FILES {
        let message = format!("{} files are more than {MAX_FILES}", files.len());
        return Err(Failure::new("task.too_large", message).hint("choose with --level and --task"));
    }
    Ok(Found { files, origin, _clone: clone })
}

fn listed(root: &Path, source: &str) -> Result<Vec<ModelFile>> {
    let found = std::fs::metadata(root)
        .map_err(|error| Failure::new("task.not_found", format!("`{source}` cannot be read: {error}")))?;
    if found.is_file() {
        let path = std::path::absolute(root).unwrap_or_else(|_| root.to_path_buf());
        let file = ModelFile::new(path);
        return file.map(|file| vec![file]).ok_or_else(|| {
            Failure::new("task.not_found", format!("`{source}` is no file of Python: its name does not end in .py"))
        });
    }
    let mut folders = vec![root.to_path_buf(), root.join(FOLDER)];
    for parent in folders.clone() {
        let levels = entries(&parent)?.into_iter().filter(|path| {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            path.is_dir() && name.strip_prefix(LEVEL).is_some_and(|number| number.parse::<u32>().is_ok())
        });
        folders.extend(levels);
    }
    let mut files = BTreeSet::new();
    for folder in folders {
        files.extend(entries(&folder)?.into_iter().filter(|path| path.is_file()).filter_map(ModelFile::new));
    }
    Ok(files.into_iter().collect())
}

/// What lies in a folder: nothing where there is none.
fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let unreadable = |error: std::io::Error| {
        Failure::new("task.unreadable", format!("the folder `{}` cannot be read: {error}", folder.display()))
    };
    let found = match std::fs::read_dir(folder) {
        Ok(found) => found,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(Vec::new()),
        Err(error) => return Err(unreadable(error)),
    };
    found.map(|entry| entry.map(|entry| entry.path()).map_err(unreadable)).collect()
}

/// A copy of a repository, and its commit.
fn clone(address: &str, cancel: &CancelFlag) -> Result<(TempDir, String)> {
    let failed = |reason: String| {
        Failure::new("task.not_cloned", format!("`{address}` could not be cloned: {reason}"))
            .hint("clone it yourself, and name the folder")
    };
    let folder = tempfile::tempdir().map_err(|error| failed(error.to_string()))?;
    let git = |args: &[&str]| {
        let output = run_trusted(Path::new("git"), args, CLONE_LIMIT, cancel)
            .map_err(|error| failed(format!("git: {error}")))?;
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        if output.status.success() { Ok(output.stdout) } else { Err(failed(said)) }
    };
    let path = folder.path().to_string_lossy().into_owned();
    git(&["clone", "--quiet", "--depth", "1", "--", address, &path])?;
    let commit = git(&["-C", &path, "rev-parse", "HEAD"])?;
    Ok((folder, String::from_utf8_lossy(&commit).trim().to_owned()))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test")]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    fn repository() -> TempDir {
        let root = tempfile::tempdir().unwrap();
        for file in
            ["KernelBench/level1/19_ReLU.py", "KernelBench/level1/2_b.py", "KernelBench/level2/2_c.py", "setup.py"]
        {
            let path = root.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "x = 1\n").unwrap();
        }
        root
    }

    fn labels(levels: &[u32], names: &[&str]) -> Result<Vec<String>> {
        let root = repository();
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        Ok(find(root.path().to_str().unwrap(), levels, &names, &CancelFlag::default())?
            .files
            .iter()
            .map(ModelFile::label)
            .collect())
    }

    #[test]
    fn files_are_found_by_level_number_and_name() {
        assert_eq!(labels(&[1], &[]).unwrap(), ["level1/2_b.py", "level1/19_ReLU.py"]);
        assert_eq!(labels(&[], &["2"]).unwrap(), ["level1/2_b.py", "level2/2_c.py"]);
        assert_eq!(labels(&[], &["2/2", "19_ReLU.py"]).unwrap(), ["level1/19_ReLU.py", "level2/2_c.py"]);
        assert_eq!(labels(&[], &["level1/2"]).unwrap(), ["level1/2_b.py"]);
    }

    #[test]
    fn what_is_not_there_is_said() {
        for (levels, names) in [(&[][..], &["77"][..]), (&[2], &["19"]), (&[4], &[])] {
            assert_eq!(labels(levels, names).unwrap_err().error.code, "task.not_found");
        }
        let no_level = labels(&[1, 9], &[]).unwrap_err();
        assert!(no_level.error.message.ends_with("has no level 9"), "{no_level}");
        assert_eq!(no_level.hint.as_deref(), Some("its levels: 1, 2"));
        let root = repository();
        let alone =
            find(root.path().join("setup.py").to_str().unwrap(), &[1], &[], &CancelFlag::default()).unwrap_err();
        assert!(alone.hint.unwrap().contains("no file of it lies in a folder of a level"));
        assert!(find(&root.path().join("none").to_string_lossy(), &[], &[], &CancelFlag::default()).is_err());
    }

    #[test]
    fn a_file_whose_name_is_no_text_is_not_left_out() {
        let root = repository();
        std::fs::write(root.path().join(OsStr::from_bytes(b"x\xff.py")), "x = 1\n").unwrap();
        let found = find(root.path().to_str().unwrap(), &[], &[], &CancelFlag::default()).unwrap();
        assert!(found.files.iter().any(|file| file.label() == "x\u{fffd}.py"), "{:?}", found.files);
    }

    #[test]
    fn a_file_alone_is_enough() {
        let root = repository();
        let found = find(root.path().join("setup.py").to_str().unwrap(), &[], &[], &CancelFlag::default()).unwrap();
        assert_eq!((found.files.len(), found.files[0].label().as_str()), (1, "setup.py"));
    }
}
