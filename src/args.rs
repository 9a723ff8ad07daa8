//! The command line.

mod agent;
mod control;
#[cfg(test)]
mod documented;
mod files;
mod find;
mod generate;
mod groups;
mod handover;
mod list;
mod mcp;
mod model_use;
mod models;
mod optimize;
mod prompts;
mod requests;
mod reward;
mod verify;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::LazyLock;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand};
use nightshift_optimizer::strategy::{
    DEFAULT_STRATEGY, MAX_ATTEMPTS, MAX_CANDIDATES_PER_ROUND, MAX_FIX_TURNS, MAX_TURNS, is_known, known, known_names,
};
use nightshift_protocol::target_baseline::TargetBaseline;
use nightshift_protocol::task::{PrecisionPolicy, Target};
use nightshift_protocol::tunable::MAX_CONFIGURATIONS;

use crate::config::Flags;
use crate::limits::LimitFlags;

pub(crate) use agent::{Agent, DEFAULT_AT_ONCE, DEFAULT_TURN_TIMEOUT_S};
pub(crate) use control::{
    Approve, Control, Drain, Filters, Hint, Lifted, Limits, Priority, Reject, Release, Resume, Retry, Share,
    ShareCommand, ShareCreate, Token, TokenCommand, TokenCreate,
};
pub(crate) use files::{
    Export, ExportCommand, ExportFormat, ExportKernelbench, Import, ImportCommand, ImportKernelbench,
    ImportKernelbenchResults, Precision, ProgramForm, Prune,
};
pub(crate) use find::{AttemptFlags, Search};
pub(crate) use generate::Generate;
pub(crate) use handover::{Handover, HandoverCommand, HandoverCreate, HandoverRun};
pub(crate) use list::{List, Noun};
pub(crate) use mcp::{Mcp, McpCommand, McpInstall, McpServe};
pub(crate) use model_use::ModelUse;
pub(crate) use models::ModelFlags;
pub(crate) use optimize::Optimize;
pub(crate) use prompts::{Prompts, PromptsCommand};
pub(crate) use requests::{
    Requests, RequestsAnswer, RequestsCommand, RequestsList, RequestsNext, RequestsRelease, RequestsServe, RequestsTake,
};
pub(crate) use reward::{ExportRollouts, Recompute, Reward, RewardCommand, RolloutFormat, RolloutLayout, ServeRewards};
pub(crate) use verify::Verify;

/// Heading of the global flags, which separates them from those of the command.
const GLOBAL: &str = "Options of every command";

/// Overnight campaigns that make GPU programs faster.
#[derive(Debug, Parser)]
#[command(
    name = "nightshift", version, about, propagate_version = true, arg_required_else_help = true,
    help_template = groups::help_template()
)]
pub(crate) struct Cli {
    /// Flags of every command.
    #[command(flatten)]
    pub(crate) global: Global,
    /// The command.
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Cli {
    /// Returns the flags that override the configuration.
    pub(crate) fn flags(&self) -> Flags {
        let mut flags = self.global.flags();
        if let Command::Work(work) = &self.command {
            flags.values.extend(work.devices.clone().map(|list| ("--devices", "worker.devices", list)));
            let contexts = work.gpu_contexts.map(|contexts| contexts.to_string());
            flags.values.extend(contexts.map(|contexts| ("--gpu-contexts", "worker.gpu_contexts", contexts)));
        }
        flags
    }
}

/// Flags of every command.
#[derive(Debug, Args)]
pub(crate) struct Global {
    /// Write only JSON to standard output; messages go to standard error
    #[arg(long, global = true, help_heading = GLOBAL)]
    pub(crate) json: bool,
    /// Configuration file, instead of the one in the user's configuration folder
    #[arg(long, global = true, help_heading = GLOBAL, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Folder of the database
    #[arg(long, global = true, help_heading = GLOBAL, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// Use this server instead of a local one
    #[arg(long, global = true, help_heading = GLOBAL, value_name = "URL")]
    pub(crate) server: Option<String>,
    /// Token of the server (a variable or the configuration file keeps it out of the process list)
    #[arg(long, global = true, help_heading = GLOBAL, value_name = "TOKEN")]
    pub(crate) token: Option<String>,
    /// Log more to standard error: -v for events, -vv for details
    #[arg(short, long, global = true, help_heading = GLOBAL, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Use no colours, as with the variable `NO_COLOR`
    #[arg(long, global = true, help_heading = GLOBAL)]
    pub(crate) no_color: bool,
}

impl Global {
    /// Returns the flags of every command.
    fn flags(&self) -> Flags {
        let mut flags = Flags { config: self.config.clone(), values: Vec::new() };
        if let Some(folder) = &self.data_dir {
            flags.values.push(("--data-dir", "data_dir", folder.to_string_lossy().into_owned()));
        }
        if let Some(url) = &self.server {
            flags.values.push(("--server", "server.url", url.clone()));
        }
        if let Some(token) = &self.token {
            flags.values.push(("--token", "server.token", token.clone()));
        }
        match self.verbose {
            0 => {}
            1 => flags.values.push(("-v", "log", "info".to_owned())),
            _ => flags.values.push(("-vv", "log", "debug".to_owned())),
        }
        flags
    }
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a campaign over the bundled examples, without key, GPU or database
    Demo(Demo),
    /// Make one model or program faster: search, print times before and after, and write the faster program
    Optimize(Box<Optimize>),
    /// Run a campaign over tasks of your own
    Run(Box<Run>),
    /// Check and time programs of one task, without server, campaign or database
    Verify(Box<Verify>),
    /// Serve tools to a coding agent over standard input and output (Model Context Protocol)
    Mcp(Mcp),
    /// Continue all unfinished runs, or the named ones
    Resume(Resume),
    /// Start the server with a local worker
    Serve(Serve),
    /// Start a worker for a server on another machine
    Work(Work),
    /// List campaigns, runs, attempts, workers or servers
    List(Box<List>),
    /// Search sources, replies, diagnoses, errors and findings of runs
    Search(Search),
    /// Show a campaign, a run, or an attempt as RUN/NUMBER
    Show(Named),
    /// Follow a campaign or a run until it ends
    Watch(Named),
    /// Show the log of a run, or the prompts, replies and compiler output of one of its steps
    Logs(Logs),
    /// Add advice to the next prompts of a run's agents
    Hint(Hint),
    /// Let a run pass the gate at which it waits
    Approve(Approve),
    /// Reject the result at the gate of a run, which then makes a new plan
    Reject(Reject),
    /// Pause a campaign, a run, or many runs: no new steps are leased
    Pause(Control),
    /// Cancel a campaign, a run, or many runs
    Cancel(Control),
    /// Retry failed runs from their failed steps
    Retry(Retry),
    /// Change the priority of a campaign or a run
    Priority(Priority),
    /// Show or change the budgets and windows of a campaign
    Limits(Limits),
    /// Let a worker finish its steps and end
    Drain(Drain),
    /// Test a quarantined GPU, and use it again if it passes
    Release(Release),
    /// Create, list and revoke tokens of the server
    Token(Token),
    /// Take and answer the open model calls of campaigns that ask the model `external`
    Requests(Requests),
    /// Have a coding agent of this machine work on open agent sessions, with the MCP server of each
    Agent(Agent),
    /// Carry out a campaign on a machine without a network, and import its results
    Handover(Handover),
    /// Create, list and revoke read-only links to a campaign or a run
    Share(Share),
    /// Export a campaign to one file, or training rows to a folder
    Export(Export),
    /// Recompute rewards, or score programs for a trainer
    Reward(Reward),
    /// Import a campaign from a file of `export`, or create tasks from PyTorch models
    Import(Box<Import>),
    /// Delete old campaigns, and artifacts that are no longer referenced
    Prune(Prune),
    /// Check the requirements of campaigns on this machine, with remedies for what is missing
    Doctor(Doctor),
    /// Check the prompts
    Prompts(Prompts),
    /// Show the configuration
    Config(Config),
    /// Fill the database with plausible attempts, for measurements and for trying the pages out
    #[command(name = "__generate", hide = true)]
    Generate(Generate),
    /// Write the completions of a shell to standard output
    Completions(Completions),
}

/// `doctor`.
#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Install nvcc from Python's package index, to build CUDA programs without the CUDA toolkit
    #[arg(long)]
    pub(crate) install_nvcc: bool,
    /// Install cuBLAS and cuBLASLt too, for tasks that allow them: another 420 MB
    #[arg(long, requires = "install_nvcc")]
    pub(crate) with_cublas: bool,
    /// Where to install; by default a folder in the data folder
    #[arg(long, value_name = "FOLDER", requires = "install_nvcc")]
    pub(crate) folder: Option<PathBuf>,
}

/// `demo`.
#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Only this example; may be given several times
    #[arg(long = "task", value_name = "NAME")]
    pub(crate) tasks: Vec<String>,
    /// The examples for this hardware: `cpu`, or `cuda` where there is a GPU
    #[arg(long, value_parser = target, default_value = "cpu", conflicts_with = "tasks")]
    pub(crate) target: Target,
    /// How to follow the campaign
    #[command(flatten)]
    pub(crate) follow: Following,
}

/// What `demo` and `run` share.
#[derive(Debug, Args)]
pub(crate) struct Following {
    /// End after the result table instead of serving the pages until Ctrl-C
    #[arg(long)]
    pub(crate) exit: bool,
    /// Begin a new campaign instead of continuing an unfinished one with the same content
    #[arg(long)]
    pub(crate) new: bool,
    /// Where the server of this command listens; by default a free port of this machine
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    pub(crate) bind: Option<SocketAddr>,
}

/// `run`.
#[derive(Debug, Args)]
pub(crate) struct Run {
    /// Folders with a task.toml, or names of bundled examples
    #[arg(required = true, value_name = "TASK")]
    pub(crate) tasks: Vec<String>,
    /// Which models it asks
    #[command(flatten)]
    pub(crate) models: ModelFlags,
    /// Record the replies below this folder, for playback with `--model scripted`
    #[arg(long, value_name = "DIR")]
    pub(crate) record: Option<PathBuf>,
    /// Name of the campaign
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Run the model's code even if this machine has no file and network sandbox
    #[arg(long)]
    pub(crate) allow_unsandboxed: bool,
    /// Add no optimization notes to the prompts
    #[arg(long)]
    pub(crate) no_notes: bool,
    /// Neither use lessons of other runs, nor record lessons for them
    #[arg(long)]
    pub(crate) no_lessons: bool,
    /// Required precision of programs, instead of that of the tasks
    #[arg(long, value_name = "NAME", value_parser = policy())]
    pub(crate) policy: Option<PrecisionPolicy>,
    /// Stop a run when the lower bound of its confirmed speedup reaches this
    #[arg(long, value_name = "FACTOR", value_parser = positive, allow_negative_numbers = true)]
    pub(crate) target_speedup: Option<f64>,
    /// The baseline of that speedup: `fastest`, the fastest way to run the reference (the default), or `reference`
    #[arg(long, value_name = "BASELINE", value_parser = target_baseline())]
    pub(crate) target_baseline: Option<TargetBaseline>,
    /// Maximum number of attempts of a run
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_ATTEMPTS)))]
    pub(crate) max_attempts: Option<u32>,
    /// Maximum number of new plans of a run
    #[arg(long, value_name = "N")]
    pub(crate) max_replans: Option<u32>,
    #[arg(long, value_name = "NAME", default_value = DEFAULT_STRATEGY, value_parser = strategy, help = STRATEGY_HELP.as_str())]
    pub(crate) strategy: String,
    /// Number of parallel candidates: those of a round of `beam`, or the answers to one prompt of `group`
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_CANDIDATES_PER_ROUND)))]
    pub(crate) candidates: Option<u32>,
    /// Groups of answers after which a run with `--strategy group` stops
    #[arg(long, value_name = "N", conflicts_with = "max_attempts", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_ATTEMPTS)))]
    pub(crate) groups: Option<u32>,
    /// Maximum number of fixes of a program that does not build within an attempt; by default 2, with `--strategy group` 0
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=i64::from(MAX_FIX_TURNS)))]
    pub(crate) max_fix_turns: Option<u32>,
    /// Maximum number of turns of the agent session of a run with `--strategy agent`; 40 by default
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_TURNS)))]
    pub(crate) max_turns: Option<u32>,
    /// Maximum number of variants of a program's tunables to try; 0 tries none
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=i64::from(MAX_CONFIGURATIONS)))]
    pub(crate) max_variants: Option<u32>,
    /// What it may use and when it may work
    #[command(flatten)]
    pub(crate) limits: LimitFlags,
    /// How to follow the campaign
    #[command(flatten)]
    pub(crate) follow: Following,
}

/// Help of options that choose a strategy.
static STRATEGY_HELP: LazyLock<String> = LazyLock::new(|| {
    let names: Vec<&str> = known().into_iter().map(|(name, _)| name).collect();
    let (last, others) = names.split_last().unwrap_or((&"", &[]));
    format!("How a run searches: {}, or {last}", others.join(", "))
});

fn strategy(text: &str) -> Result<String, String> {
    if is_known(text) { Ok(text.to_owned()) } else { Err(format!("expected one of {}", known_names())) }
}

fn target(text: &str) -> Result<Target, String> {
    Target::ALL.into_iter().find(|target| target.as_str() == text).ok_or_else(|| {
        let names: Vec<&str> = Target::ALL.iter().map(|target| target.as_str()).collect();
        format!("expected one of {}", names.join(", "))
    })
}

fn target_baseline() -> impl TypedValueParser<Value = TargetBaseline> {
    PossibleValuesParser::new(TargetBaseline::ALL.map(TargetBaseline::as_str))
        .map(|name| TargetBaseline::ALL.into_iter().find(|baseline| baseline.as_str() == name).unwrap_or_default())
}

fn policy() -> impl TypedValueParser<Value = PrecisionPolicy> {
    PossibleValuesParser::new(PrecisionPolicy::ALL.map(PrecisionPolicy::as_str))
        .map(|name| PrecisionPolicy::ALL.into_iter().find(|policy| policy.as_str() == name).unwrap_or_default())
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "expected IP:PORT, for example 127.0.0.1:7777, or with port 0 for a free one".to_owned())
}

fn positive(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| format!("`{text}` is no number"))?;
    if number.is_finite() && number > 0.0 { Ok(number) } else { Err(format!("`{text}` is not above zero")) }
}

/// `serve`.
#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// Where to listen, for example 0.0.0.0:7777; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    pub(crate) bind: Option<SocketAddr>,
    /// Start no worker: workers on other machines do the work
    #[arg(long)]
    pub(crate) no_worker: bool,
    /// Display name of this server, if several share a database
    #[arg(long)]
    pub(crate) name: Option<String>,
}

/// `work`.
#[derive(Debug, Args)]
pub(crate) struct Work {
    /// Display name of this worker
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// GPUs that it may use, by number or name as nvidia-smi prints them, separated by commas
    #[arg(long, value_name = "LIST")]
    pub(crate) devices: Option<String>,
    /// Maximum number of CUDA contexts on this machine's GPUs: a process with PyTorch counts as one, other ones as half
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) gpu_contexts: Option<u32>,
}

/// A command about one thing.
#[derive(Debug, Args)]
pub(crate) struct Named {
    /// Id, the beginning of one, or the last digits of one
    #[arg(value_name = "ID")]
    pub(crate) id: String,
}

/// `logs`.
#[derive(Debug, Args)]
pub(crate) struct Logs {
    /// Run
    #[arg(value_name = "RUN")]
    pub(crate) id: String,
    /// Only this step, with its prompts, replies and compiler output, for example subtask1/attempt1/build
    #[arg(long, value_name = "KEY")]
    pub(crate) step: Option<String>,
    /// Follow the log until the run ends
    #[arg(short, long, conflicts_with = "step")]
    pub(crate) follow: bool,
}

/// `config`.
#[derive(Debug, Args)]
pub(crate) struct Config {
    /// What to show
    #[command(subcommand)]
    pub(crate) command: ConfigCommand,
}

/// What `config` shows.
#[derive(Debug, Clone, Copy, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Every value with its origin; secrets hidden
    Show,
    /// The configuration file that is read
    Path,
}

/// `completions`.
#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// The shell
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_search_without_a_model_is_told_of_both_ways_to_name_one() {
        let said =
            Cli::try_parse_from(["nightshift", "optimize", "row_softmax"]).map(drop).map_err(|error| error.to_string());
        assert!(said.is_err_and(|said| said.contains("<--model <MODEL>|--agent <AGENT>>")));
    }
}
