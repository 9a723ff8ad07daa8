//! What the tools need from the program that they are part of.

use async_trait::async_trait;
use axum::http::HeaderValue;
use nightshift_client::Client;
use nightshift_protocol::attempt::{AttemptOutcome, BuildReport, CheckReport};
use nightshift_protocol::baseline::{Baseline, FastestBaseline};
use nightshift_protocol::machine::MachineFacts;
use nightshift_protocol::measurement::Measurement;
use nightshift_protocol::profile::Profile;
use nightshift_protocol::step::StepFailure;
use nightshift_protocol::task::{CandidateForm, PrecisionPolicy, TaskBundle};
use nightshift_protocol::verdict::{Finding, ProcessEnd};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::error::ToolError;

/// With whose rights a tool is called.
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
    /// What `describe_task` and `verify_program` take.
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
    /// Whether it is a library or a file of Python.
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

/// What came of it.
#[derive(Debug, Clone)]
pub struct Judged {
    /// Name of the task.
    pub task: String,
    /// What it was compared with.
    pub against: String,
    /// How precise it had to be.
    pub precision: PrecisionPolicy,
    /// Where it was judged.
    pub machine: MachineFacts,
    /// Other ways to run the reference; none where they were not measured.
    pub baselines: Option<Vec<Baseline>>,
    /// The fastest of them.
    pub fastest: Option<FastestBaseline>,
    /// What was found out about the program, or what failed of the machine or the reference.
    pub result: Result<Box<Findings>, StepFailure>,
}

/// What was found out about a program.
#[derive(Debug, Clone)]
pub struct Findings {
    /// The verdict in one word.
    pub outcome: AttemptOutcome,
    /// Observations about compliance.
    pub findings: Vec<Finding>,
    /// The build.
    pub build: Option<BuildReport>,
    /// The check.
    pub check: Option<CheckReport>,
    /// The measurement.
    pub measurement: Option<Measurement>,
    /// How the process ended while it was timed, where it did not survive.
    pub measurement_end: Option<ProcessEnd>,
    /// The profile.
    pub profile: Option<Profile>,
}

/// Judges programs on this machine.
#[async_trait]
pub trait Judge: Send + Sync {
    /// Judges one program. The token ends it early.
    async fn judge(&self, request: VerifyRequest, cancel: CancellationToken) -> Result<Judged, ToolError>;
}
