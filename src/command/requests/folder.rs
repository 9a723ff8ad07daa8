//! A request as a folder of files: `prompt.md`, `schema.json` where one is wanted, `request.json`; an agent puts
//! `answer.md` next to them.

use std::path::{Path, PathBuf};

use nightshift_protocol::api::LeasedRequest;

use crate::failure::{Failure, Result};

/// The file with the request and its lease.
const REQUEST: &str = "request.json";
/// The file that an agent writes.
const ANSWER: &str = "answer.md";
/// The file with the reason of a refusal.
const REFUSED: &str = "refused.md";
/// What becomes of an answer that was refused.
const REFUSED_ANSWER: &str = "answer.refused.md";

/// A folder of one request.
pub(super) struct RequestFolder {
    path: PathBuf,
    leased: LeasedRequest,
}

impl RequestFolder {
    /// Writes the folder of a request into `parent`; `request.json` comes last, so that a folder with it is complete.
    pub(super) fn write(parent: &Path, leased: &LeasedRequest) -> Result<Self> {
        let path = parent.join(leased.request.id.as_str());
        let unwritable = |error: std::io::Error| {
            Failure::new("output.failed", format!("the folder {} cannot be written: {error}", path.display()))
        };
        std::fs::create_dir_all(&path).map_err(unwritable)?;
        std::fs::write(path.join("prompt.md"), leased.question.to_markdown()).map_err(unwritable)?;
        if let Some(schema) = &leased.question.schema {
            std::fs::write(path.join("schema.json"), format!("{schema:#}\n")).map_err(unwritable)?;
        }
        let text = serde_json::to_string_pretty(leased)
            .map_err(|error| Failure::new("internal.json", format!("a request cannot be written: {error}")))?;
        std::fs::write(path.join(REQUEST), text + "\n").map_err(unwritable)?;
        Ok(Self { path, leased: leased.clone() })
    }

    /// Reads the folder of a request.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let unreadable = |why: String| {
            let message = format!("`{}` is no folder with a {REQUEST}: {why}", path.display());
            Failure::new("request.no_folder", message)
        };
        let text = std::fs::read_to_string(path.join(REQUEST)).map_err(|error| unreadable(error.to_string()))?;
        let leased = serde_json::from_str(&text).map_err(|error| unreadable(error.to_string()))?;
        Ok(Self { path: path.to_owned(), leased })
    }

    /// The folders of requests in `parent`, in the order of their names; others and hidden ones are left alone.
    pub(super) fn all(parent: &Path) -> Vec<Self> {
        let entries = std::fs::read_dir(parent).into_iter().flatten().flatten();
        let shown = entries.filter(|entry| !entry.file_name().as_encoded_bytes().starts_with(b"."));
        let mut folders: Vec<Self> = shown.filter_map(|entry| Self::read(&entry.path()).ok()).collect();
        folders.sort_by(|a, b| a.path.cmp(&b.path));
        folders
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn leased(&self) -> &LeasedRequest {
        &self.leased
    }

    /// Where the answer is expected.
    pub(super) fn answer(&self) -> PathBuf {
        self.path.join(ANSWER)
    }

    /// Bytes of the answer, when it is there.
    pub(super) fn answer_bytes(&self) -> Option<u64> {
        std::fs::metadata(self.answer()).ok().map(|file| file.len())
    }

    /// Moves a refused answer aside and writes the reason.
    pub(super) fn refuse(&self, reason: &str) -> std::io::Result<()> {
        let aside = self.path.join(REFUSED_ANSWER);
        // An earlier refused answer, which may be a folder.
        let _before = std::fs::remove_dir_all(&aside).or_else(|_| std::fs::remove_file(&aside));
        std::fs::rename(self.answer(), aside)?;
        std::fs::write(self.path.join(REFUSED), format!("{reason}\n"))
    }

    /// Leaves the folder with the answer, which the server did not accept, as a folder of no request.
    pub(super) fn set_aside(&self) -> std::io::Result<()> {
        std::fs::remove_file(self.path.join(REQUEST))
    }

    /// Removes the folder: its request is over. It disappears at once, also while an agent writes into it; what that
    /// agent leaves behind stays in a hidden folder.
    pub(super) fn remove(&self) -> std::io::Result<()> {
        let hidden = self.path.with_file_name(format!(".{}", self.leased.request.id));
        // Left by an earlier request of the same id.
        let _left_behind = std::fs::remove_dir_all(&hidden);
        std::fs::rename(&self.path, &hidden)?;
        let _left_behind = std::fs::remove_dir_all(hidden);
        Ok(())
    }
}
