//! Writing replies down so that the scripted provider can play them back.

use std::io::Write;
use std::path::{Path, PathBuf};

/// Longest file name of a reply, in bytes.
const MAX_NAME_BYTES: usize = 200;

/// A reply could not be written down.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// A name that cannot be a file's name.
    #[error("`{name}` cannot be the name of a recorded reply")]
    BadName {
        /// The name.
        name: String,
    },
    /// The disk said no.
    #[error("the reply cannot be written to {path}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

/// Writes `DIR/<task>/replies/<call name>.md`. Writing the same reply again changes nothing.
#[derive(Debug, Clone)]
pub struct Recorder {
    folder: PathBuf,
}

impl Recorder {
    /// Records into this folder, which is made when the first reply comes.
    #[must_use]
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// Writes one reply, byte for byte. A reader sees the whole file or none.
    pub async fn write(&self, task: &str, call_name: &str, reply: &str) -> Result<PathBuf, RecordError> {
        for name in [task, call_name] {
            let usable = !name.is_empty()
                && name.len() <= MAX_NAME_BYTES
                && !name.starts_with('.')
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'));
            if !usable {
                return Err(RecordError::BadName { name: name.chars().take(MAX_NAME_BYTES).collect() });
            }
        }
        let folder = self.folder.join(task).join("replies");
        let path = folder.join(format!("{call_name}.md"));
        let bytes = reply.as_bytes().to_vec();
        let target = path.clone();
        let written = tokio::task::spawn_blocking(move || write_whole(&folder, &target, &bytes))
            .await
            .unwrap_or_else(|stopped| Err(std::io::Error::other(stopped)));
        match written {
            Ok(()) => Ok(path),
            Err(source) => Err(RecordError::Io { path, source }),
        }
    }
}

fn write_whole(folder: &Path, target: &Path, bytes: &[u8]) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    // Beside the target, so that the rename stays on one file system; removed when anything fails.
    let mut draft = tempfile::NamedTempFile::new_in(folder)?;
    draft.write_all(bytes)?;
    draft.as_file().sync_all()?;
    draft.persist(target).map_err(|failed| failed.error)?;
    Ok(())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_recorded_reply_is_found_byte_for_byte() {
        let folder = tempfile::tempdir().unwrap();
        let recorder = Recorder::new(folder.path());
        let reply = "Grüße\r\n```cpp\nint x;\n```\n\n";
        recorder.write("softmax", "plan", "first").await.unwrap();
        let path = recorder.write("softmax", "plan", reply).await.unwrap();
        assert_eq!(path, folder.path().join("softmax/replies/plan.md"));
        assert_eq!(std::fs::read_to_string(path).unwrap(), reply);
        assert_eq!(std::fs::read_dir(folder.path().join("softmax/replies")).unwrap().count(), 1);
    }

    #[tokio::test]
    async fn a_name_cannot_leave_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let recorder = Recorder::new(folder.path());
        for (task, call) in [("..", "plan"), ("softmax", "../plan"), ("a/b", "plan"), ("softmax", "")] {
            let Err(error) = recorder.write(task, call, "x").await else { panic!("{task} {call}") };
            assert!(matches!(error, RecordError::BadName { .. }));
        }
    }
}
