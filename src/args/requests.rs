//! Arguments of `requests`: questions to an outside agent, and its answers.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use nightshift_protocol::api::{DEFAULT_REQUEST_LEASE_S, MAX_REQUEST_LEASE_S, MIN_REQUEST_LEASE_S};
use nightshift_protocol::models::AgentRole;

/// `requests`.
#[derive(Debug, Args)]
pub(crate) struct Requests {
    /// What to do
    #[command(subcommand)]
    pub(crate) command: RequestsCommand,
}

/// What `requests` does.
#[derive(Debug, Subcommand)]
pub(crate) enum RequestsCommand {
    /// Take the oldest open request, and print its prompt or write it to a folder
    Next(RequestsNext),
    /// Answer a request that was taken
    Answer(RequestsAnswer),
    /// List requests with their states
    List(RequestsList),
    /// Return a request for other agents
    Release(RequestsRelease),
    /// Exchange requests through a folder: write open requests into it, and send the answers that appear in it
    Serve(RequestsServe),
}

/// Selection of requests, and the time for an answer.
#[derive(Debug, Clone, Args)]
pub(crate) struct RequestsTake {
    /// Only requests of this campaign or run: an id, the beginning of one, or the last digits of one
    #[arg(long, value_name = "ID")]
    pub(crate) of: Option<String>,
    /// Only requests of this role: planner, coder, verifier or judge; may be given several times
    #[arg(long = "role", value_name = "ROLE", value_parser = role)]
    pub(crate) roles: Vec<AgentRole>,
    /// Only requests to this model, for example `external/night-shift`
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// Display name of the agent
    #[arg(long, value_name = "NAME", default_value = "")]
    pub(crate) holder: String,
    /// Seconds after which another agent may take the request
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = DEFAULT_REQUEST_LEASE_S,
        value_parser = clap::value_parser!(u32).range(i64::from(MIN_REQUEST_LEASE_S)..=i64::from(MAX_REQUEST_LEASE_S))
    )]
    pub(crate) lease: u32,
}

/// `requests next`.
#[derive(Debug, Args)]
pub(crate) struct RequestsNext {
    /// Which one
    #[command(flatten)]
    pub(crate) take: RequestsTake,
    /// Seconds to wait for a request
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    pub(crate) wait: u32,
    /// Write it to a new subfolder of this folder: prompt.md, schema.json, request.json
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}

/// `requests answer`.
#[derive(Debug, Args)]
pub(crate) struct RequestsAnswer {
    /// Id of the request, or the folder that `requests next --out` wrote
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// Lease of the request, as `requests next` gave it
    #[arg(long, value_name = "LEASE")]
    pub(crate) lease: Option<String>,
    /// File with the answer; by default answer.md of the folder, or standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// The model that gave the answer, for display
    #[arg(long, value_name = "NAME")]
    pub(crate) answered_with: Option<String>,
    /// Input tokens of the answer
    #[arg(long, value_name = "N")]
    pub(crate) input_tokens: Option<u64>,
    /// Output tokens of the answer
    #[arg(long, value_name = "N")]
    pub(crate) output_tokens: Option<u64>,
}

/// `requests list`.
#[derive(Debug, Args)]
pub(crate) struct RequestsList {
    /// Only requests of this campaign or run: an id, the beginning of one, or the last digits of one
    #[arg(long, value_name = "ID")]
    pub(crate) of: Option<String>,
    /// Include requests that are answered or closed
    #[arg(long)]
    pub(crate) all: bool,
}

/// `requests release`.
#[derive(Debug, Args)]
pub(crate) struct RequestsRelease {
    /// Id of the request, or the folder that `requests next --out` wrote
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// Lease of the request, as `requests next` gave it
    #[arg(long, value_name = "LEASE")]
    pub(crate) lease: Option<String>,
}

/// `requests serve`.
#[derive(Debug, Args)]
pub(crate) struct RequestsServe {
    /// The folder
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// Which ones
    #[command(flatten)]
    pub(crate) take: RequestsTake,
    /// Maximum number of requests in the folder at the same time
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) at_once: u32,
}

fn role(text: &str) -> Result<AgentRole, String> {
    AgentRole::parse(text).ok_or_else(|| {
        let names: Vec<&str> = AgentRole::ALL.iter().map(|role| role.as_str()).collect();
        format!("expected one of {}", names.join(", "))
    })
}
