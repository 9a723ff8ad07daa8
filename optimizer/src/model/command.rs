//! A program of this machine that answers: it gets the prompt on its standard input and replies on its standard output.
//!
//! It is started once for each call, without a shell unless the configuration asks for one, in an empty folder that is
//! removed afterwards, and in a process group of its own that is killed as a whole when the call ends, however it ends.
//! Of the environment it sees what a program needs to run at all, and the variables that the configuration names.

mod working;

use std::num::NonZeroUsize;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use rustix::process::{Pid, Signal, kill_process_group};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::endpoint::KeyLookup;
use super::probe::ProbeReport;
use super::{MAX_REPLY_BYTES, Meter, Model, ModelError, ModelReply, ModelRequest, StopCause, TokenUsage};

pub use self::working::{MAX_LOG_BYTES, WorkEnd, WorkingCommand, WorkingProcess, Workplace};

/// Variables that every command sees, when they are set: none of them holds a secret.
const PLAIN_VARIABLES: [&str; 8] = ["PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TMPDIR", "XDG_CONFIG_HOME"];
/// Holds the model's name for the command.
const MODEL_VARIABLE: &str = "NIGHTSHIFT_MODEL";
/// Stands for the model's name in the arguments.
const MODEL_PLACEHOLDER: &str = "{model}";
/// What runs a command line, when the configuration asks for it.
const SHELL: &str = "/bin/sh";
/// Shown instead of a variable's value.
const HIDDEN: &str = "[hidden]";
/// Shorter values are switches, such as `1` or `*`, and no secrets: without them a text could not be read.
const MIN_HIDDEN_BYTES: usize = 4;

/// Bytes of standard error that are kept: its end.
const KEPT_STDERR_BYTES: usize = 16 * 1024;
/// Characters of it that an error repeats.
const MAX_EXCERPT_CHARS: usize = 300;
/// Largest limit of a reply.
const MAX_OUTPUT_BYTES: usize = MAX_REPLY_BYTES;
/// Longest time limit: a day.
const MAX_TIMEOUT_MS: u64 = 24 * 60 * 60 * 1_000;
/// Exit statuses with which shells say that there was nothing to be run.
const NOT_STARTED: [i32; 2] = [126, 127];

/// The word that tells a command from an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CommandKind {
    /// `kind = "command"`.
    Command,
}

/// One command: `[models.NAME]` with `kind = "command"` in the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommandConfig {
    /// `command`.
    pub kind: CommandKind,
    /// Program and arguments; `{model}` in an argument stands for the model's name. With `shell`, one command line.
    pub command: Vec<String>,
    /// Whether a shell reads the command line. The model's name is then in `$NIGHTSHIFT_MODEL`.
    #[serde(default)]
    pub shell: bool,
    /// Variables of the server's environment that it sees, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
    /// Limit of a call in milliseconds.
    #[serde(default = "default_timeout_ms")]
    pub timeout_ms: u64,
    /// Limit of a reply in bytes.
    #[serde(default = "default_max_output_bytes")]
    pub max_output_bytes: usize,
    /// Calls at once.
    #[serde(default = "default_max_parallel")]
    pub max_parallel: NonZeroUsize,
}

fn default_timeout_ms() -> u64 {
    1_200_000
}

fn default_max_output_bytes() -> usize {
    MAX_OUTPUT_BYTES
}

fn default_max_parallel() -> NonZeroUsize {
    NonZeroUsize::MIN.saturating_add(1)
}

impl CommandConfig {
    /// A command with the defaults.
    #[must_use]
    pub fn new(command: Vec<String>) -> Self {
        Self {
            kind: CommandKind::Command,
            command,
            shell: false,
            env: Vec::new(),
            timeout_ms: default_timeout_ms(),
            max_output_bytes: default_max_output_bytes(),
            max_parallel: default_max_parallel(),
        }
    }

    /// What is wrong with it, in words.
    fn problem(&self) -> Option<&'static str> {
        let is_name = |name: &String| !name.is_empty() && !name.contains('=') && !name.contains('\0');
        if self.command.first().is_none_or(|program| program.trim().is_empty()) {
            Some("`command` names no program")
        } else if self.command.iter().any(|part| part.contains('\0')) {
            Some("`command` holds a zero byte")
        } else if self.shell && self.command.len() != 1 {
            Some("with `shell`, `command` is one command line")
        } else if !self.env.iter().all(is_name) {
            Some("`env` holds something that is no name of a variable")
        } else if !(1..=MAX_TIMEOUT_MS).contains(&self.timeout_ms) {
            Some("`timeout_ms` is from 1 to 86400000")
        } else if !(1..=MAX_OUTPUT_BYTES).contains(&self.max_output_bytes) {
            Some("`max_output_bytes` is from 1 to 2097152")
        } else {
            None
        }
    }

    fn program(&self) -> &str {
        if self.shell { SHELL } else { self.command.first().map_or("", String::as_str) }
    }

    /// Returns the program without its arguments, which may hold secrets.
    #[must_use]
    pub fn shown(&self) -> String {
        format!("command `{}`", self.program())
    }
}

/// A command with what all its models share.
pub(super) struct CommandProvider {
    name: String,
    pub(super) config: CommandConfig,
    places: Semaphore,
}

impl CommandProvider {
    pub(super) fn new(name: String, config: CommandConfig) -> Self {
        let places = Semaphore::new(config.max_parallel.get().min(Semaphore::MAX_PERMITS));
        Self { name, config, places }
    }

    fn misconfigured(&self, message: impl Into<String>) -> ModelError {
        ModelError::Misconfigured { endpoint: self.name.clone(), message: message.into() }
    }

    /// The value of a variable that the configuration names: a command is not started without it.
    fn value(&self, variable: &str, keys: KeyLookup<'_>) -> Result<SecretString, ModelError> {
        let missing = || ModelError::NoVariable { endpoint: self.name.clone(), variable: variable.to_owned() };
        keys(variable).ok_or_else(missing)
    }

    /// Opens a model of it. Nothing is started yet.
    pub(super) fn open(self: &Arc<Self>, model: String, keys: KeyLookup<'_>) -> Result<CommandModel, ModelError> {
        if let Some(problem) = self.config.problem() {
            return Err(self.misconfigured(problem));
        }
        let plain = PLAIN_VARIABLES.into_iter().filter_map(|name| keys(name).map(|value| (name.to_owned(), value)));
        let mut plain: Vec<(String, SecretString)> = plain.collect();
        let mut named = Vec::new();
        for variable in &self.config.env {
            let value = self.value(variable, keys)?;
            plain.retain(|(name, _)| name != variable);
            named.push((variable.clone(), value));
        }
        Ok(CommandModel { provider: Arc::clone(self), model, plain, named })
    }

    /// Whether there is such a program, and every variable that it is to see. It is not started.
    pub(super) fn probe(&self, keys: KeyLookup<'_>) -> Result<ProbeReport, ModelError> {
        if let Some(problem) = self.config.problem() {
            return Err(self.misconfigured(problem));
        }
        let program = self.config.program();
        let is_there = if program.contains('/') {
            Path::new(program).is_file()
        } else {
            let path = keys("PATH").map(|path| path.expose_secret().to_owned()).unwrap_or_default();
            path.split(':').any(|folder| !folder.is_empty() && Path::new(folder).join(program).is_file())
        };
        if !is_there {
            return Err(self.misconfigured(format!("there is no program `{program}`")));
        }
        for variable in &self.config.env {
            self.value(variable, keys)?;
        }
        Ok(ProbeReport { endpoint: self.name.clone(), base_url: self.config.shown(), models: None })
    }
}

/// A command that answers as a model.
pub(super) struct CommandModel {
    provider: Arc<CommandProvider>,
    model: String,
    plain: Vec<(String, SecretString)>,
    named: Vec<(String, SecretString)>,
}

/// The result of a command.
struct Left {
    stdout: Vec<u8>,
    is_too_much: bool,
    stderr: Vec<u8>,
    status: std::io::Result<ExitStatus>,
}

impl CommandModel {
    fn command(&self, folder: &Path) -> Command {
        let config = &self.provider.config;
        let mut command = Command::new(config.program());
        if config.shell {
            command.arg("-c").args(&config.command);
        } else {
            let arguments = config.command.iter().skip(1);
            command.args(arguments.map(|argument| argument.replace(MODEL_PLACEHOLDER, &self.model)));
        }
        command.env_clear();
        for (name, value) in self.plain.iter().chain(&self.named) {
            command.env(name, value.expose_secret());
        }
        command.env(MODEL_VARIABLE, &self.model);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.current_dir(folder).process_group(0).kill_on_drop(true);
        command
    }

    async fn ask(&self, request: &ModelRequest) -> Result<ModelReply, ModelError> {
        let began = Instant::now();
        let provider = &self.provider;
        let folder = tempfile::tempdir()
            .map_err(|error| self.broken(true, format!("its folder cannot be made: {error}"), ""))?;
        let mut child = self.command(folder.path()).spawn().map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound | std::io::ErrorKind::PermissionDenied => {
                provider.misconfigured(format!("{} cannot be started: {error}", provider.config.shown()))
            }
            _ => self.broken(true, format!("it cannot be started: {error}"), ""),
        })?;
        let group = Group::of(&child);
        let limit = Duration::from_millis(provider.config.timeout_ms);
        let left = tokio::time::timeout(limit, self.converse(&mut child, &group, request)).await;
        drop(group);
        let Ok(left) = left else {
            return Err(ModelError::Timeout {
                endpoint: provider.name.clone(),
                phase: "time for the command",
                limit_ms: provider.config.timeout_ms,
            });
        };
        let text = self.judged(left)?;
        Ok(ModelReply {
            calls: Vec::new(),
            text,
            reasoning: None,
            tokens: TokenUsage::default(),
            latency_ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
            stop: StopCause::End,
        })
    }

    async fn converse(&self, child: &mut Child, group: &Group, request: &ModelRequest) -> Left {
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let prompt = prompt(request);
        let feed = async {
            if let Some(mut stdin) = stdin {
                // A command need not read all of it.
                let _ = stdin.write_all(prompt.as_bytes()).await;
                let _ = stdin.shutdown().await;
            }
        };
        let limit = self.provider.config.max_output_bytes;
        let read = async {
            let (bytes, is_too_much) = read_front(stdout, limit).await;
            if is_too_much {
                group.kill();
            }
            (bytes, is_too_much)
        };
        let wait = async {
            let status = child.wait().await;
            // A process that the command left running could hold its output open forever.
            group.kill();
            status
        };
        let ((), (stdout, is_too_much), stderr, status) = tokio::join!(feed, read, read_end(stderr), wait);
        Left { stdout, is_too_much, stderr, status }
    }

    fn judged(&self, left: Left) -> Result<String, ModelError> {
        let endpoint = || self.provider.name.clone();
        if left.is_too_much {
            let limit_bytes = self.provider.config.max_output_bytes;
            return Err(ModelError::TooLarge { endpoint: endpoint(), what: "of output", limit_bytes });
        }
        let said = self.excerpt(&left.stderr);
        let status = left.status.map_err(|error| self.broken(true, format!("it was lost: {error}"), &said))?;
        match status.code() {
            Some(0) => String::from_utf8(left.stdout).map_err(|error| ModelError::Malformed {
                endpoint: endpoint(),
                message: "what the command wrote is no UTF-8".to_owned(),
                excerpt: format!("({} bytes)", error.as_bytes().len()),
            }),
            Some(code) if NOT_STARTED.contains(&code) => {
                Err(self.provider.misconfigured(format!("the command ended with status {code}. It said: {said}")))
            }
            Some(code) => Err(self.broken(false, format!("it ended with status {code}"), &said)),
            None => Err(self.broken(false, format!("it was ended by a signal ({status})"), &said)),
        }
    }

    fn broken(&self, before_it_ran: bool, message: String, said: &str) -> ModelError {
        let excerpt = if said.is_empty() { "(nothing)".to_owned() } else { said.to_owned() };
        ModelError::CommandFailed { endpoint: self.provider.name.clone(), message, excerpt, before_it_ran }
    }

    /// Returns the end of its standard error, on one line, without the values of named variables.
    fn excerpt(&self, stderr: &[u8]) -> String {
        let mut text = String::from_utf8_lossy(stderr).into_owned();
        for (_, value) in self.named.iter().filter(|(_, value)| value.expose_secret().len() >= MIN_HIDDEN_BYTES) {
            text = text.replace(value.expose_secret(), HIDDEN);
        }
        let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let text = text.trim();
        let skip = text.chars().count().saturating_sub(MAX_EXCERPT_CHARS);
        text.chars().skip(skip).collect()
    }
}

#[async_trait]
impl Model for CommandModel {
    fn label(&self) -> String {
        format!("{}/{}", self.provider.name, self.model)
    }

    fn is_scripted(&self) -> bool {
        false
    }

    /// One try: whether another one helps, only the command's author knows. The step's own retries follow.
    async fn call(&self, request: &ModelRequest, meter: &dyn Meter) -> Result<ModelReply, ModelError> {
        let place = self.provider.places.acquire().await;
        let _place = place.map_err(|_| self.provider.misconfigured("no call is taken any more"))?;
        meter.begin().await.map_err(ModelError::NotBegun)?;
        let reply = self.ask(request).await;
        if let Err(error) = &reply {
            meter.failed(error).await;
        }
        reply
    }
}

/// A process group, killed when this is dropped: also when a call is broken off in the middle.
struct Group(Option<Pid>);

impl Group {
    fn of(child: &Child) -> Self {
        Self(child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw))
    }

    fn kill(&self) {
        if let Some(group) = self.0 {
            // It fails when no process of the group is left, which is as good.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The beginning, up to a limit, and whether there was more.
async fn read_front(stream: Option<impl AsyncRead + Unpin>, limit_bytes: usize) -> (Vec<u8>, bool) {
    let mut bytes = Vec::new();
    if let Some(stream) = stream {
        let most = u64::try_from(limit_bytes).unwrap_or(u64::MAX).saturating_add(1);
        let _ = stream.take(most).read_to_end(&mut bytes).await;
    }
    let is_too_much = bytes.len() > limit_bytes;
    (bytes, is_too_much)
}

/// The end, however much there is.
async fn read_end(stream: Option<impl AsyncRead + Unpin>) -> Vec<u8> {
    let mut kept = Vec::new();
    let Some(mut stream) = stream else { return kept };
    let mut piece = vec![0; KEPT_STDERR_BYTES];
    while let Ok(length @ 1..) = stream.read(&mut piece).await {
        kept.extend_from_slice(&piece[..length]);
        let excess = kept.len().saturating_sub(KEPT_STDERR_BYTES);
        kept.drain(..excess);
    }
    kept
}

/// All that is asked, in one text.
fn prompt(request: &ModelRequest) -> String {
    let mut text = format!("{}\n\n{}", request.system.trim_end(), request.user.trim_end());
    for (reply, answer) in &request.earlier {
        text.push_str("\n\n# Your earlier reply\n\n");
        text.push_str(reply.trim_end());
        text.push_str("\n\n# What is wrong with it\n\n");
        text.push_str(answer.trim_end());
    }
    if let Some(schema) = &request.json_schema {
        text.push_str("\n\n# Form of the reply\n\nOne JSON object, and nothing else, of this JSON schema:\n\n");
        text.push_str(&schema.to_string());
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests;
