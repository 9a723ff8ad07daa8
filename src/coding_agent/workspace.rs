//! The folder of a session: what its agent may know of the run, and nothing of other runs.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use nightshift_mcp::install::{Client as McpClient, Launch, with_entry};
use nightshift_protocol::api::{RequestView, RunDetail};
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::id::RunId;
use nightshift_protocol::task::{CandidateForm, PYTHON_EXTENSION, Target, TaskBundle, TaskSpec};

use super::CurrentServer;
use crate::compose::mcp_tasks::contract;
use crate::failure::{Failure, Result};

/// What a process reads from standard input.
const INSTRUCTIONS: &str = include_str!("session.md");
/// Its file in the working directory.
const INSTRUCTIONS_FILE: &str = "session.md";
/// The description of the MCP server in the working directory, where coding agents look for it.
const MCP_FILE: &str = ".mcp.json";
/// The working directory of the processes. Lock and log are outside of it: a sandboxed agent cannot change them.
const WORKING_FOLDER: &str = "work";
const LOG_FILE: &str = "agent.log";
const LOCK_FILE: &str = "lock";
/// The folder with the programs of earlier turns.
const PROGRAMS: &str = "programs";
/// Permissions of the folders: they hold programs of the user.
const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;

/// The workspace of a session, locked for this process.
pub(super) struct Workspace {
    path: PathBuf,
    run: RunId,
    /// Held until the workspace is dropped.
    _lock: File,
}

impl Workspace {
    /// Locks the workspace of a run below `root`; none while another process of this machine has it.
    pub(super) fn lock(root: &Path, run: &RunId) -> Result<Option<Self>> {
        let path = root.join(run.as_str());
        let failed = |error: &std::io::Error| unwritable(&path, error);
        std::fs::DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(&path).map_err(|error| failed(&error))?;
        let mut options = OpenOptions::new();
        let lock = options.create(true).append(true).mode(FILE_MODE).open(path.join(LOCK_FILE));
        let lock = lock.map_err(|error| failed(&error))?;
        match lock.try_lock() {
            Ok(()) => Ok(Some(Self { path, run: run.clone(), _lock: lock })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(failed(&error)),
        }
    }

    /// Returns the working directory of the processes.
    pub(super) fn folder(&self) -> PathBuf {
        self.path.join(WORKING_FOLDER)
    }

    pub(super) fn log(&self) -> PathBuf {
        self.path.join(LOG_FILE)
    }

    pub(super) fn instructions(&self) -> PathBuf {
        self.folder().join(INSTRUCTIONS_FILE)
    }

    pub(super) fn mcp_file(&self) -> PathBuf {
        self.folder().join(MCP_FILE)
    }

    /// Writes the files as of the turn that waits.
    pub(super) async fn fill(
        &self,
        current: &CurrentServer<'_>,
        detail: &RunDetail,
        turn: &RequestView,
        server: &Launch,
    ) -> Result<()> {
        let bundle: TaskBundle =
            serde_json::from_slice(&artifact(current, &detail.view.task).await?).map_err(|error| {
                Failure::new("task.not_understood", format!("the stored task of {} cannot be read: {error}", self.run))
            })?;
        // The prompt holds the notes and lessons that the run gives to its Coder.
        let request = current.call(async |client| client.model_request(&turn.id).await).await?;
        let prompt = request.question.to_markdown();
        let reference = reference_name(&bundle.spec);
        let contract = contract(&bundle).map_err(|error| Failure::new(&error.code, error.message))?;
        let json =
            |error: serde_json::Error| Failure::new("internal.json", format!("a task cannot be written: {error}"));
        let spec = serde_json::to_string_pretty(&bundle.spec).map_err(json)?;
        let mcp = with_entry(McpClient::ClaudeCode, "", server)
            .map_err(|error| Failure::new("config.not_understood", error.to_string()))?;
        let instructions = INSTRUCTIONS.replace("{run}", self.run.as_str()).replace("{reference}", &reference);
        let folder = self.folder();
        make(&folder)?;
        for (name, text) in [
            (INSTRUCTIONS_FILE, &instructions),
            (MCP_FILE, &mcp),
            ("prompt.md", &prompt),
            ("contract.md", &contract),
            ("task.json", &spec),
            (&reference, &bundle.reference_source),
        ] {
            write(&folder, name, text.as_bytes())?;
        }
        let programs = folder.join(PROGRAMS);
        make(&programs)?;
        for turn in detail.view.attempts.iter().flat_map(|attempt| &attempt.turns) {
            let Some(source) = &turn.source else { continue };
            let name = format!("turn{}.{}", turn.number, extension(&bundle.spec));
            if !programs.join(&name).exists() {
                write(&programs, &name, &artifact(current, source).await?)?;
            }
        }
        Ok(())
    }

    /// Removes the workspace: its session is over.
    pub(super) fn remove(self) -> Result<()> {
        std::fs::remove_dir_all(&self.path).map_err(|error| unwritable(&self.path, &error))
    }
}

async fn artifact(server: &CurrentServer<'_>, hash: &ArtifactHash) -> Result<Vec<u8>> {
    server.call(async |client| client.get_artifact(hash).await).await
}

/// Returns the file name of the reference, without any folder.
fn reference_name(spec: &TaskSpec) -> String {
    let name = Path::new(&spec.reference).file_name().and_then(std::ffi::OsStr::to_str);
    name.unwrap_or("reference.txt").to_owned()
}

/// Returns the extension of programs.
fn extension(spec: &TaskSpec) -> &'static str {
    match (spec.form, spec.target) {
        (CandidateForm::Torch, _) => PYTHON_EXTENSION,
        (CandidateForm::Native, Target::Cpu) => "cpp",
        (CandidateForm::Native, Target::Cuda) => "cu",
    }
}

/// Makes a folder. What the agent put in its place, such as a link to another folder, is refused.
fn make(folder: &Path) -> Result<()> {
    match std::fs::symlink_metadata(folder) {
        Ok(data) if data.is_dir() => Ok(()),
        Ok(_) => Err(unwritable(folder, &std::io::Error::from(std::io::ErrorKind::NotADirectory))),
        Err(_) => {
            std::fs::DirBuilder::new().mode(FOLDER_MODE).create(folder).map_err(|error| unwritable(folder, &error))
        }
    }
}

/// Replaces a file as a whole. A link that the agent put in its place is replaced, and not followed.
fn write(folder: &Path, name: &str, bytes: &[u8]) -> Result<()> {
    let failed = |error: std::io::Error| unwritable(&folder.join(name), &error);
    let mut file = tempfile::NamedTempFile::new_in(folder).map_err(failed)?;
    file.write_all(bytes).map_err(failed)?;
    file.persist(folder.join(name)).map_err(|error| failed(error.error))?;
    Ok(())
}

fn unwritable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new("output.failed", format!("the workspace {} cannot be written: {error}", path.display()))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn one_process_has_a_workspace_at_a_time() {
        let root = tempfile::tempdir().unwrap();
        let run: RunId = format!("run_{:032x}", 1).parse().unwrap();
        let first = Workspace::lock(root.path(), &run).unwrap().unwrap();
        assert!(Workspace::lock(root.path(), &run).unwrap().is_none());
        drop(first);
        let again = Workspace::lock(root.path(), &run).unwrap().unwrap();
        again.remove().unwrap();
        assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 0);
    }

    #[test]
    fn links_of_the_agent_are_not_followed() {
        let root = tempfile::tempdir().unwrap();
        let target = root.path().join("elsewhere");
        std::fs::write(&target, "mine").unwrap();
        std::os::unix::fs::symlink(&target, root.path().join("prompt.md")).unwrap();
        write(root.path(), "prompt.md", b"the prompt").unwrap();
        assert_eq!(std::fs::read_to_string(&target).unwrap(), "mine");
        assert_eq!(std::fs::read_to_string(root.path().join("prompt.md")).unwrap(), "the prompt");
        std::os::unix::fs::symlink(root.path(), root.path().join(PROGRAMS)).unwrap();
        assert_eq!(make(&root.path().join(PROGRAMS)).unwrap_err().error.code, "output.failed");
    }
}
