//! The interfaces through which tools reach servers, tasks and the judgement of programs.

use async_trait::async_trait;
use axum::http::HeaderValue;
use nightshift_client::Client;
use nightshift_protocol::baseline::{Baseline, FastestBaseline};
use nightshift_protocol::judgement::Judgement;
use nightshift_protocol::machine::MachineFacts;
use nightshift_protocol::step::StepFailure;
use nightshift_protocol::task::{CandidateForm, PrecisionPolicy, TaskBundle};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::error::ToolError;

/// The caller of a tool, whose rights count.
#[derive(Debug, Clone, Default)]
pub struct Caller {
    /// The `Authorization` header of the request; none over stdio.
    pub authorization: Option<HeaderValue>,
    /// The `Host` header of the request; none over stdio.
    pub host: Option<HeaderValue>,
}

/// A server that a tool talks to.
#[derive(Debug)]
pub struct Connection {
    /// Talks to it, with the rights of the caller.
    pub client: Client,
    /// Whether it carries out runs: otherwise there is nothing to wait for.
    pub drives: bool,
    /// Dropped with the connection: tells that a server of its own can end.
    pub release: Option<oneshot::Sender<()>>,
}

/// Finds the server.
#[async_trait]
pub trait Servers: Send + Sync {
    /// Connects for one call.
    async fn connect(&self, caller: &Caller) -> Result<Connection, ToolError>;
}

/// A task in a list.
#[derive(Debug, Clone)]
pub struct ListedTask {
    /// The name that `describe_task` and `verify_program` accept.
    pub task: String,
    /// The task.
    pub bundle: TaskBundle,
}

/// Reads tasks. Its methods block.
pub trait Tasks: Send + Sync {
    /// Returns the bundled examples, and the task folders directly in this folder. An error where folders are not readable
    /// from here.
    fn list(&self, folder: Option<&str>) -> Result<Vec<ListedTask>, ToolError>;
    /// Loads a task by its name, or by its folder or file where those are readable from here.
    fn load(&self, task: &str) -> Result<TaskBundle, ToolError>;
    /// Returns what a program of this form has to be like.
    fn contract(&self, bundle: &TaskBundle) -> Result<String, ToolError>;
}

/// A program that is to be judged.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct VerifyRequest {
    /// Name, folder or file of the task.
    pub task: String,
    /// The text of the program.
    pub source: String,
    /// The form: native source or a Python file.
    pub form: CandidateForm,
    /// Judge at this shape alone.
    pub shape: Option<String>,
    /// How precise it has to be, in the place of what the task says.
    pub policy: Option<PrecisionPolicy>,
    /// Whether the other baselines are measured.
    pub baselines: bool,
    /// Whether a right program is profiled.
    pub profile: bool,
}

/// The result of a request.
#[derive(Debug, Clone)]
pub struct Judged {
    /// Name of the task.
    pub task: String,
    /// The program that it was compared with.
    pub against: String,
    /// How precise it had to be.
    pub precision: PrecisionPolicy,
    /// Where it was judged.
    pub machine: MachineFacts,
    /// Other ways to run the reference; none where they were not measured.
    pub baselines: Option<Vec<Baseline>>,
    /// The fastest of them.
    pub fastest: Option<FastestBaseline>,
    /// The judgement, or the fault of the machine or the reference.
    pub result: Result<Box<Judgement>, StepFailure>,
}

/// Judges programs on this machine.
#[async_trait]
pub trait Judge: Send + Sync {
    /// Judges one program. The token ends it early.
    async fn judge(&self, request: VerifyRequest, cancel: CancellationToken) -> Result<Judged, ToolError>;
}
