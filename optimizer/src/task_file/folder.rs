//! Reads a task's folder.

use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use nightshift_protocol::task::{Target, TaskBundle};

use super::error::TaskError;
use super::locate::{Document, line_and_column};
use super::{
    LoadedTask, MAX_REFERENCE_BYTES, MAX_REPLIES, MAX_REPLIES_BYTES, MAX_REPLY_BYTES, MAX_TASK_FILE_BYTES, bundle,
    parse_spec,
};

/// Name of the file that makes a folder a task.
pub const TASK_FILE: &str = "task.toml";
/// A program that calls a library for the work of the reference: a baseline on the `cuda` target.
pub const LIBRARY_FILE: &str = "library.cu";
/// Folder of the replies for playback.
pub const REPLIES_FOLDER: &str = "replies";
/// Ending of a reply's file.
pub const REPLY_EXTENSION: &str = "md";

/// Loads a task from its folder, or from the path of its `task.toml`.
pub fn load_folder(path: &Path) -> Result<LoadedTask, TaskError> {
    let label = path.display().to_string();
    let folder = match fs::metadata(path) {
        Ok(found) if found.is_dir() => path.to_owned(),
        Ok(_) if path.file_name().is_some_and(|name| name == TASK_FILE) => {
            path.parent().map_or_else(PathBuf::new, Path::to_owned)
        }
        Ok(_) => {
            let message = format!("this is a file: name the folder with the task's `{TASK_FILE}`");
            return Err(TaskError::new("task.not_found", &label, message));
        }
        Err(error) => return Err(unreadable(&label, &error, "there is no such folder")),
    };
    let spec_path = folder.join(TASK_FILE);
    let spec_label = spec_path.display().to_string();
    let spec_text = read(&spec_path, MAX_TASK_FILE_BYTES, &format!("the folder has no `{TASK_FILE}`"))?;
    let spec = parse_spec(&spec_text, &spec_label)?;

    let reference_path = folder.join(&spec.reference);
    if !reference_path.exists() {
        let message = format!("the reference `{}` does not exist in the task's folder", spec.reference);
        return Err(Document::parse(&spec_text, &spec_label)?.error(
            "task.no_reference",
            &["reference".into()],
            message,
        ));
    }
    let reference_source = read(&reference_path, MAX_REFERENCE_BYTES, "the reference does not exist")?;
    let library_path = folder.join(LIBRARY_FILE);
    let has_library = spec.target == Target::Cuda && library_path.exists();
    let library_source =
        has_library.then(|| read(&library_path, MAX_REFERENCE_BYTES, "the file does not exist")).transpose()?;
    let bundle = TaskBundle { library_source, ..bundle(&spec_text, &spec_label, reference_source)? };
    Ok(LoadedTask { bundle, replies: replies(&folder.join(REPLIES_FOLDER))? })
}

fn replies(folder: &Path) -> Result<Option<BTreeMap<String, String>>, TaskError> {
    let label = folder.display().to_string();
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable(&label, &error, "there is no such folder")),
    };
    let mut replies = BTreeMap::new();
    let mut total_bytes = 0_usize;
    for entry in entries {
        let path = entry.map_err(|error| unreadable(&label, &error, "there is no such folder"))?.path();
        if path.extension().is_none_or(|extension| extension != REPLY_EXTENSION) {
            continue;
        }
        let Some(key) = path.file_stem().and_then(|stem| stem.to_str()) else {
            let message = "the name of a reply's file has to be readable text".to_owned();
            return Err(TaskError::new("task.malformed", &path.display().to_string(), message));
        };
        let text = read(&path, MAX_REPLY_BYTES, "the reply does not exist")?;
        total_bytes = total_bytes.saturating_add(text.len());
        replies.insert(key.to_owned(), text);
        if replies.len() > MAX_REPLIES || total_bytes > MAX_REPLIES_BYTES {
            let message = format!("at most {MAX_REPLIES} replies with {MAX_REPLIES_BYTES} bytes together are read");
            return Err(TaskError::new("task.too_large", &label, message));
        }
    }
    Ok(Some(replies))
}

/// The text of a file that may have at most `limit_bytes`.
fn read(path: &Path, limit_bytes: usize, missing: &str) -> Result<String, TaskError> {
    let label = path.display().to_string();
    // Reading a named pipe would wait until another process writes to it.
    if !fs::metadata(path).map_err(|error| unreadable(&label, &error, missing))?.is_file() {
        let message = "it cannot be read: it is a folder, a pipe or a device, and no regular file".to_owned();
        return Err(TaskError::new("task.unreadable", &label, message));
    }
    let file = fs::File::open(path).map_err(|error| unreadable(&label, &error, missing))?;
    let mut bytes = Vec::new();
    let one_more = u64::try_from(limit_bytes).unwrap_or(u64::MAX).saturating_add(1);
    file.take(one_more).read_to_end(&mut bytes).map_err(|error| unreadable(&label, &error, missing))?;
    if bytes.len() > limit_bytes {
        let message = format!("the file has more than {limit_bytes} bytes");
        return Err(TaskError::new("task.too_large", &label, message));
    }
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let bytes = error.into_bytes();
        let before = String::from_utf8_lossy(bytes.get(..valid).unwrap_or(&[]));
        let message = "the file is not UTF-8 text from here on".to_owned();
        TaskError::at("task.malformed", &label, line_and_column(&before, before.len()), message)
    })
}

fn unreadable(label: &str, error: &std::io::Error, missing: &str) -> TaskError {
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => TaskError::new("task.not_found", label, missing.to_owned()),
        _ => TaskError::new("task.unreadable", label, format!("it cannot be read: {error}")),
    }
}
