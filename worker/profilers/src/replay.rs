//! A replayable call of a program: a separate process repeats it, so that a tool can wrap that process.

use nightshift_sandbox::access::temporary_folder;
use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::step::StepFailure;
use tempfile::TempDir;

use super::tool::Tool;
use nightshift_sandbox::process::{JailedCommand, Limits, ProcessError, ProcessResult};
use nightshift_toolchain::build::disk_failure;
use nightshift_toolchain::toolchain::Run;

/// First argument of our own binary that makes it a replay.
pub const REPLAY_ARGUMENT: &str = "__replay";

/// Variable of the home folder, where tools store settings; each replay has an empty one.
const HOME: &str = "HOME";

/// Variable of the loader's search path.
const LIBRARY_PATH: &str = "LD_LIBRARY_PATH";

/// A call of a program, and how to replay it.
///
/// The command line is `EXECUTABLE __replay PLAN WARMUPS CALLS`. The replay loads the library, calls `ns_init`, makes the
/// inputs from its plan, calls `ns_run` so many times for warming up, waits for the device, and then repeats so many
/// times: `cuProfilerStart`, `ns_run`, `cuCtxSynchronize`, `cuProfilerStop`. It ends with status 0 when all of that went
/// well. The marks tell the tools which part of the process is a call; nothing else in it calls `cuProfilerStart`.
#[derive(Clone, Copy)]
pub struct Replay<'a> {
    /// Runs a jailed command where the step's device can be used, with `/proc`, `/dev/shm` and the loopback network, which
    /// the tools need to talk to the process that they watch.
    pub run: &'a Run<'a>,
    /// Our own binary.
    pub executable: &'a Path,
    /// The plan of the call.
    pub plan: &'a Path,
    /// Whether a Python process replays the program, because the program is a Python file.
    pub in_python: bool,
    /// Folders that the replay reads, in addition to the system: those of the plan, the inputs and the library.
    pub readable: &'a [PathBuf],
    /// Folders for `LD_LIBRARY_PATH`: the driver and the libraries of CUDA, where the system does not know them.
    pub library_path: &'a [PathBuf],
    /// Variables that the replay needs, for example `CUDA_VISIBLE_DEVICES`; `HOME` and `LD_LIBRARY_PATH` are made here.
    /// No other variables are passed, because reports store the whole environment.
    pub env: &'a [(String, String)],
    /// An existing folder in which each tool gets an empty one.
    pub scratch: &'a Path,
    /// Keeps what a tool made.
    pub put: &'a dyn Fn(&[u8]) -> Result<ArtifactHash, StepFailure>,
}

impl fmt::Debug for Replay<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replay").field("plan", &self.plan).field("scratch", &self.scratch).finish_non_exhaustive()
    }
}

/// The end of a tool's process, or the reason why it could not be started.
pub(super) type ToolEnd = Result<ProcessResult, String>;

impl Replay<'_> {
    /// The command that repeats the call, as the tools take it.
    #[must_use]
    pub fn command(&self, warmups: u32, calls: u32) -> Vec<OsString> {
        vec![
            self.executable.into(),
            REPLAY_ARGUMENT.into(),
            self.plan.into(),
            warmups.to_string().into(),
            calls.to_string().into(),
        ]
    }

    /// An empty folder for one run of a tool.
    pub(super) fn folder(&self, tool: &str) -> Result<TempDir, StepFailure> {
        let made = temporary_folder(self.scratch, &format!("{tool}-"));
        made.map_err(|error| disk_failure(self.scratch, &error))
    }

    /// Runs a tool in that folder. Only the end of the step itself is a failure.
    pub(super) fn run_tool(
        &self,
        tool: &Tool,
        args: Vec<OsString>,
        folder: &Path,
        limits: Limits,
    ) -> Result<ToolEnd, StepFailure> {
        match (self.run)(&self.tool_command(tool, args, folder, limits)) {
            Ok(result) => Ok(Ok(result)),
            Err(ProcessError::Cancelled) => Err(ProcessError::Cancelled.into()),
            Err(error) => Ok(Err(error.to_string())),
        }
    }

    /// The jailed command of a tool, with nothing in its environment that is not needed.
    pub(super) fn tool_command(
        &self,
        tool: &Tool,
        args: Vec<OsString>,
        folder: &Path,
        limits: Limits,
    ) -> JailedCommand {
        let mut read_only = tool.folders.clone();
        let libraries: Vec<PathBuf> = self.library_path.iter().chain(&tool.library_path).cloned().collect();
        let mut needed: Vec<PathBuf> = self.readable.to_vec();
        needed.push(self.executable.to_path_buf());
        needed.extend(libraries.iter().cloned());
        for path in needed {
            if path.exists() && !read_only.contains(&path) {
                read_only.push(path);
            }
        }
        let mut env: Vec<(String, String)> =
            self.env.iter().filter(|(name, _)| name != LIBRARY_PATH && name != HOME).cloned().collect();
        env.push((HOME.to_owned(), folder.to_string_lossy().into_owned()));
        env.extend(library_path_variable(&libraries).map(|value| (LIBRARY_PATH.to_owned(), value)));
        JailedCommand { program: tool.path.clone(), args, read_only, scratch: folder.to_path_buf(), env, limits }
    }
}

/// The beginning of a file that a jailed process had in its hands, as text; nothing when there is none. What is no plain file
/// is not opened: a link would make the worker read for the program what the program may not, and a pipe would never end.
pub(super) fn read_plain_file(path: &Path, most_bytes: u64) -> String {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut bytes = Vec::new();
    if let Ok(descriptor) = rustix::fs::open(path, flags, Mode::empty()) {
        let file = File::from(descriptor);
        if file.metadata().is_ok_and(|data| data.is_file()) {
            // An unreadable file is missing from the result, which is noticed there.
            let _ = file.take(most_bytes).read_to_end(&mut bytes);
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns whether a path is a plain file, and no link to one.
pub(super) fn is_plain_file(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|data| data.is_file())
}

/// The value of `LD_LIBRARY_PATH`; none when there is nothing to say. A folder whose name holds the separator would become
/// two others.
fn library_path_variable(folders: &[PathBuf]) -> Option<String> {
    let named: Vec<String> = folders
        .iter()
        .map(|folder| folder.to_string_lossy().into_owned())
        .filter(|name| !name.is_empty() && !name.contains([':', ';']))
        .collect();
    (!named.is_empty()).then(|| named.join(":"))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn only_plain_files_are_read_and_no_more_of_them_than_wanted() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("plain"), "0123456789").unwrap();
        std::os::unix::fs::symlink(at("plain"), at("link")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, at("pipe"), rustix::fs::Mode::RUSR).unwrap();
        std::fs::create_dir(at("folder")).unwrap();
        assert_eq!(read_plain_file(&at("plain"), 4), "0123");
        for name in ["link", "pipe", "folder", "nothing"] {
            assert_eq!(read_plain_file(&at(name), 4), "", "{name}");
            assert!(!is_plain_file(&at(name)), "{name}");
        }
        assert!(is_plain_file(&at("plain")));
    }

    #[test]
    fn a_folder_that_would_be_taken_for_two_is_left_out() {
        let folders = |names: &[&str]| library_path_variable(&names.iter().map(PathBuf::from).collect::<Vec<_>>());
        assert_eq!(folders(&["/a", "/b:/c", "/d"]).as_deref(), Some("/a:/d"));
        assert_eq!(folders(&[]), None);
    }
}
