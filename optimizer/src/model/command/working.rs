//! A command that works in a folder until it ends: a coding agent with tools of its own, not the answer to one prompt.
//!
//! It is started like a command that answers: without other variables than those that are named, in a process group of its
//! own that is killed as a whole when the process is dropped.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use secrecy::{ExposeSecret as _, SecretString};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Child;
use tokio::sync::Notify;

use super::{CommandConfig, CommandModel, CommandProvider, Group, KEPT_STDERR_BYTES, NOT_STARTED};
use crate::model::ModelError;
use crate::model::endpoint::KeyLookup;

/// Maximum size of the log of a folder, over all processes that worked in it. More output is read and dropped.
pub const MAX_LOG_BYTES: u64 = 8 * 1024 * 1024;

/// The model's name for a command that chooses its own.
const MODEL: &str = "default";
/// Permissions of a log: an agent may print what it should not.
const LOG_MODE: u32 = 0o600;
/// How long the output of a process is read after its end. A process outside of the group may hold it open.
const LAST_OUTPUT: Duration = Duration::from_secs(2);
/// Size of a read of the output.
const CHUNK_BYTES: usize = 16 * 1024;

/// A coding agent that can be started.
pub struct WorkingCommand {
    model: CommandModel,
}

/// The folder that a process works in, and its files.
#[derive(Debug, Clone, Copy)]
pub struct Workplace<'a> {
    /// The working directory.
    pub folder: &'a Path,
    /// The file that is its standard input.
    pub prompt: &'a Path,
    /// The file to which its output is appended, up to [`MAX_LOG_BYTES`].
    pub log: &'a Path,
    /// Further variables of its environment.
    pub variables: &'a [(&'static str, SecretString)],
}

/// How a process ended by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkEnd {
    /// The end in words, for example `it ended with status 1`.
    pub how: String,
    /// The end of its output, on one line, without the values of its variables.
    pub said: String,
    /// Whether a shell found no program to run.
    pub never_ran: bool,
}

impl WorkingCommand {
    /// Opens a command. Nothing is started yet.
    ///
    /// # Errors
    ///
    /// The configuration cannot be used, or a variable that it names is not set.
    pub fn open(name: &str, config: CommandConfig, keys: KeyLookup<'_>) -> Result<Self, ModelError> {
        let provider = Arc::new(CommandProvider::new(name.to_owned(), config));
        Ok(Self { model: provider.open(MODEL.to_owned(), keys)? })
    }

    /// Starts a process.
    ///
    /// # Errors
    ///
    /// There is no such program, or a file of its workplace cannot be opened.
    pub fn start(&self, place: Workplace<'_>) -> Result<WorkingProcess, ModelError> {
        let broken = |what: &str, error: &std::io::Error| self.model.broken(true, format!("{what}: {error}"), "");
        let prompt = File::open(place.prompt).map_err(|error| broken("its prompt cannot be opened", &error))?;
        let log = Log::open(place.log).map_err(|error| broken("its log cannot be opened", &error))?;
        let mut command = self.model.command(place.folder);
        command.stdin(Stdio::from(prompt));
        for (name, value) in place.variables {
            command.env(name, value.expose_secret());
        }
        let child = command.spawn().map_err(|error| broken("it cannot be started", &error))?;
        Ok(WorkingProcess { group: Group::of(&child), child, log: Mutex::new(log) })
    }

    /// Returns the end of an output on one line, without the values of named variables.
    fn said(&self, log: &Mutex<Log>, variables: &[(&'static str, SecretString)]) -> String {
        let tail = log.lock().unwrap_or_else(PoisonError::into_inner).tail.clone();
        let mut text = String::from_utf8_lossy(&tail).into_owned();
        for (_, value) in variables.iter().filter(|(_, value)| !value.expose_secret().is_empty()) {
            text = text.replace(value.expose_secret(), super::HIDDEN);
        }
        self.model.excerpt(text.as_bytes())
    }

    /// Waits until the process ends by itself, and logs its output until then. Kills what is left of its group.
    pub async fn end(&self, process: &mut WorkingProcess, variables: &[(&'static str, SecretString)]) -> WorkEnd {
        let WorkingProcess { group, child, log } = process;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let ended = Notify::new();
        let wait = async {
            let status = child.wait().await;
            group.kill();
            ended.notify_one();
            status
        };
        let copy = async {
            tokio::select! {
                ((), ()) = async { tokio::join!(copy(stdout, log), copy(stderr, log)) } => {}
                () = async { ended.notified().await; tokio::time::sleep(LAST_OUTPUT).await } => {}
            }
        };
        let (status, ()) = tokio::join!(wait, copy);
        let code = status.as_ref().ok().and_then(std::process::ExitStatus::code);
        let how = match (&status, code) {
            (_, Some(code)) => format!("it ended with status {code}"),
            (Ok(status), None) => format!("it was ended by a signal ({status})"),
            (Err(error), None) => format!("it was lost: {error}"),
        };
        let never_ran = self.model.provider.config.shell && code.is_some_and(|code| NOT_STARTED.contains(&code));
        WorkEnd { how, said: self.said(log, variables), never_ran }
    }
}

/// A process that works. Dropping it kills its group.
pub struct WorkingProcess {
    group: Group,
    child: Child,
    log: Mutex<Log>,
}

/// The log of a process.
struct Log {
    file: File,
    left_bytes: u64,
    tail: Vec<u8>,
}

impl Log {
    fn open(path: &Path) -> std::io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).mode(LOG_MODE).open(path)?;
        let left_bytes = MAX_LOG_BYTES.saturating_sub(file.metadata()?.len());
        Ok(Self { file, left_bytes, tail: Vec::new() })
    }

    fn write(&mut self, bytes: &[u8]) {
        let most = usize::try_from(self.left_bytes).unwrap_or(usize::MAX).min(bytes.len());
        // A full disk ends the log, and not the process.
        if self.file.write_all(&bytes[..most]).is_ok() {
            self.left_bytes = self.left_bytes.saturating_sub(u64::try_from(most).unwrap_or(u64::MAX));
        }
        self.tail.extend_from_slice(bytes);
        let excess = self.tail.len().saturating_sub(KEPT_STDERR_BYTES);
        self.tail.drain(..excess);
    }
}

async fn copy(stream: Option<impl AsyncRead + Unpin>, log: &Mutex<Log>) {
    let Some(mut stream) = stream else { return };
    let mut chunk = vec![0; CHUNK_BYTES];
    while let Ok(length @ 1..) = stream.read(&mut chunk).await {
        log.lock().unwrap_or_else(PoisonError::into_inner).write(&chunk[..length]);
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn keys(name: &str) -> Option<SecretString> {
        (name == "PATH").then(|| SecretString::from("/usr/local/bin:/usr/bin:/bin"))
    }

    fn shell(line: &str) -> WorkingCommand {
        let config = CommandConfig { shell: true, ..CommandConfig::new(vec![line.to_owned()]) };
        WorkingCommand::open("agent", config, &keys).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Runs a line in a folder with the prompt `begin`, with the variable `TOKEN`. Returns its end and its log.
    async fn run(line: &str, log_before: usize) -> (WorkEnd, Vec<u8>) {
        let folder = tempfile::tempdir().unwrap();
        let (prompt, log) = (folder.path().join("prompt"), folder.path().join("log"));
        std::fs::write(&prompt, "begin").unwrap();
        std::fs::write(&log, vec![b'x'; log_before]).unwrap();
        let variables = [("TOKEN", SecretString::from("hush-hush"))];
        let place = Workplace { folder: folder.path(), prompt: &prompt, log: &log, variables: &variables };
        let command = shell(line);
        let mut process = command.start(place).unwrap_or_else(|error| panic!("{error}"));
        let end = command.end(&mut process, &variables).await;
        (end, std::fs::read(log).unwrap())
    }

    #[tokio::test]
    async fn it_reads_the_prompt_in_its_folder_and_its_output_is_logged() {
        let (end, log) = run("cat; echo; ls; env; echo broken >&2; exit 3", 0).await;
        let log = String::from_utf8(log).unwrap();
        assert!(log.starts_with("begin\nlog\nprompt\n") && log.contains("TOKEN=hush-hush"), "{log}");
        assert_eq!((end.how.as_str(), end.never_ran), ("it ended with status 3", false));
        assert!(end.said.contains("broken") && end.said.contains("TOKEN=[hidden]"), "{}", end.said);
        assert!(run("no-such-program-here", 0).await.0.never_ran);
    }

    #[tokio::test]
    async fn the_log_is_bounded() {
        let most = usize::try_from(MAX_LOG_BYTES).unwrap();
        let (end, log) = run("head -c 100000 /dev/zero; echo the end", most - 10).await;
        assert_eq!((log.len(), end.said.ends_with("the end")), (most, true), "{}", end.said);
    }

    #[tokio::test]
    async fn a_process_left_behind_holds_nothing_up() {
        let (end, _) = run("sleep 600 & setsid sleep 30 & exit 0", 0).await;
        assert_eq!(end.how, "it ended with status 0");
    }
}
