//! Tasks: the bundled examples, and folders of the user's own.

use std::path::Path;

pub(crate) use nightshift_optimizer::task_file::LoadedTask;
use nightshift_optimizer::task_file::load_folder;
use nightshift_protocol::task::Target;
use rust_embed::RustEmbed;

use crate::config::closest;
use crate::failure::{Failure, Result};

/// The examples, as they were when this binary was built.
#[derive(RustEmbed)]
#[folder = "examples/"]
struct Bundled;

/// Names of the bundled examples, in order.
pub(crate) fn names() -> Vec<String> {
    let mut names: Vec<String> = Bundled::iter()
        .filter_map(|path| path.strip_suffix("/task.toml").filter(|name| !name.contains('/')).map(str::to_owned))
        .collect();
    names.sort();
    names
}

/// All bundled examples for one target.
pub(crate) fn of_target(target: Target) -> Result<Vec<LoadedTask>> {
    let mut tasks = names().iter().map(|name| one(name)).collect::<Result<Vec<_>>>()?;
    tasks.retain(|task| task.bundle.spec.target == target);
    Ok(tasks)
}

/// One bundled example.
pub(crate) fn one(name: &str) -> Result<LoadedTask> {
    let names = names();
    if !names.iter().any(|known| known == name) {
        let known: Vec<&str> = names.iter().map(String::as_str).collect();
        let hint = match closest(name, &known) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => format!("a task is a folder with a task.toml, or one of: {}", known.join(", ")),
        };
        return Err(Failure::new("task.not_found", format!("there is no task `{name}`")).hint(hint));
    }
    // Read the same way as a folder of the user's own, so that there is one way to be wrong.
    let failed = |error: std::io::Error| {
        Failure::new("output.failed", format!("the example `{name}` cannot be unpacked: {error}"))
    };
    let unpacked = tempfile::tempdir().map_err(failed)?;
    let prefix = format!("{name}/");
    for path in Bundled::iter().filter(|path| path.starts_with(&prefix)) {
        let Some(file) = Bundled::get(&path) else { continue };
        let to = unpacked.path().join(path.as_ref());
        if let Some(folder) = to.parent() {
            std::fs::create_dir_all(folder).map_err(failed)?;
        }
        std::fs::write(&to, &file.data).map_err(failed)?;
    }
    from_folder(&unpacked.path().join(name))
}

/// A folder of the user's own.
pub(crate) fn from_folder(folder: &Path) -> Result<LoadedTask> {
    load_folder(folder).map_err(|error| Failure::new(error.code(), error.to_string()))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn every_bundled_example_is_whole_and_has_replies() {
        for target in Target::ALL {
            let tasks = of_target(target).unwrap();
            assert!(tasks.len() >= 5, "{} for {}", tasks.len(), target.as_str());
            for task in tasks {
                assert!(task.replies.is_some_and(|replies| !replies.is_empty()), "{}", task.bundle.spec.name);
            }
        }
    }

    #[test]
    fn an_unknown_example_is_answered_with_the_one_that_was_meant() {
        let Err(failure) = one("row_sofmax") else { panic!("found") };
        assert_eq!(failure.error.code, "task.not_found");
        assert_eq!(failure.hint.as_deref(), Some("did you mean `row_softmax`?"));
    }
}
