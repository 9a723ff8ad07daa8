//! The interfaces through which tools reach servers, tasks and the verification of programs.

use std::collections::BTreeMap;

use async_trait::async_trait;
use axum::http::HeaderValue;
use nightshift_client::Client;
use nightshift_protocol::baseline::{Baseline, FastestBaseline};
use nightshift_protocol::judgement::Judgement;
use nightshift_protocol::machine::MachineFacts;
use nightshift_protocol::step::StepFailure;
use nightshift_protocol::task::{CandidateForm, PrecisionPolicy, Target, TaskBundle};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::error::ToolError;

/// The caller of a tool, which determines the permissions.
#[derive(Debug, Clone, Default)]
pub struct Caller {
    /// The `Authorization` header of the request; none over stdio.
    pub authorization: Option<HeaderValue>,
    /// The `Host` header of the request; none over stdio.
    pub host: Option<HeaderValue>,
}

/// A server connection of a tool.
#[derive(Debug)]
pub struct Connection {
    /// A client with the permissions of the caller.
    pub client: Client,
    /// Whether the server carries out runs. Otherwise waiting is useless.
    pub drives: bool,
    /// Dropped with the connection, which lets a server started for it end.
    pub release: Option<oneshot::Sender<()>>,
}

/// Finds the server.
#[async_trait]
pub trait Servers: Send + Sync {
    /// Connects for one call.
    async fn connect(&self, caller: &Caller) -> Result<Connection, ToolError>;

    /// Returns whether a later call may be answered with another token: that of a local server which was started again.
    fn may_change_token(&self) -> bool {
        false
    }
}

/// A task in a list.
#[derive(Debug, Clone)]
pub struct ListedTask {
    /// The name that `describe_task` and `verify_program` accept.
    pub task: String,
    /// The task bundle.
    pub bundle: TaskBundle,
}

/// Loads tasks. Its methods block.
pub trait Tasks: Send + Sync {
    /// Returns the bundled examples, and the task folders directly in this folder. Fails where folders are not
    /// readable.
    fn list(&self, folder: Option<&str>) -> Result<Vec<ListedTask>, ToolError>;
    /// Loads a task by its name, or by its folder or file where those are readable.
    fn load(&self, task: &str) -> Result<TaskBundle, ToolError>;
    /// Makes a task from the texts of its files by their names: `task.toml` and a reference, or one file of PyTorch, whose
    /// target is a GPU if there is one, unless `target` names it.
    fn create(&self, files: &BTreeMap<String, String>, target: Option<Target>) -> Result<TaskBundle, ToolError>;
    /// Returns the contract for programs of this form.
    fn contract(&self, bundle: &TaskBundle) -> Result<String, ToolError>;
}

/// A program to verify.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct VerifyRequest {
    /// Name, folder or file of the task.
    pub task: String,
    /// The text of the program.
    pub source: String,
    /// The form: native source or a Python file.
    pub form: CandidateForm,
    /// Verify only this shape.
    pub shape: Option<String>,
    /// Precision policy, instead of the one of the task.
    pub policy: Option<PrecisionPolicy>,
    /// Whether to measure the other baselines.
    pub baselines: bool,
    /// Whether to profile a correct program.
    pub profile: bool,
}

/// The result of a verification.
#[derive(Debug, Clone)]
pub struct Judged {
    /// Name of the task.
    pub task: String,
    /// Name of the reference that it was compared with.
    pub against: String,
    /// The applied precision policy.
    pub precision: PrecisionPolicy,
    /// The machine of the verification.
    pub machine: MachineFacts,
    /// Other ways to run the reference; none if they were not measured.
    pub baselines: Option<Vec<Baseline>>,
    /// The fastest of them.
    pub fastest: Option<FastestBaseline>,
    /// What the judgement leaves out of what the task asks for, each in one sentence.
    pub unexamined: Vec<String>,
    /// The judgement, or the fault of the machine or the reference.
    pub result: Result<Box<Judgement>, StepFailure>,
}

/// Verifies programs on this machine.
#[async_trait]
pub trait Judge: Send + Sync {
    /// Verifies one program. The token ends it early.
    async fn judge(&self, request: VerifyRequest, cancel: CancellationToken) -> Result<Judged, ToolError>;
}
