//! Arguments of the commands that steer what is there.

use clap::{Args, Subcommand};
use nightshift_protocol::access::Role;
use nightshift_protocol::campaign::{MAX_PRIORITY, MAX_WEIGHT, MIN_PRIORITY};
use nightshift_protocol::run::RunStatus;
use nightshift_protocol::signal::Gate;

use crate::limits::{BudgetFlags, WindowFlags, duration_ms, gate};

/// Heading of the flags that select runs.
const FILTER: &str = "Instead of an ID: every run that fits all of these";

/// The selection of runs of a command without an id.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Filters {
    /// All unfinished runs; with `retry` all failed runs
    #[arg(long, help_heading = FILTER)]
    pub(crate) all: bool,
    /// Runs of this campaign
    #[arg(long, value_name = "ID", help_heading = FILTER)]
    pub(crate) campaign: Option<String>,
    /// Runs of this status
    #[arg(long, value_parser = super::list::status, help_heading = FILTER)]
    pub(crate) status: Option<RunStatus>,
    /// Runs of this task
    #[arg(long, value_name = "NAME", help_heading = FILTER)]
    pub(crate) task: Option<String>,
    /// Runs that are older than this, for example 2h or 3d
    #[arg(long, value_name = "TIME", value_parser = duration_ms, help_heading = FILTER)]
    pub(crate) older_than: Option<u64>,
    /// Only print the selected runs
    #[arg(long, help_heading = FILTER)]
    pub(crate) dry_run: bool,
    /// Do not ask for confirmation
    #[arg(short, long, help_heading = FILTER)]
    pub(crate) yes: bool,
}

impl Filters {
    /// Returns whether any flag selects runs.
    pub(crate) fn chooses(&self) -> bool {
        self.all || self.campaign.is_some() || self.status.is_some() || self.task.is_some() || self.older_than.is_some()
    }
}

/// `pause`, `cancel`.
#[derive(Debug, Args)]
pub(crate) struct Control {
    /// Campaign or run: an id, the beginning of one, or the last digits of one
    #[arg(value_name = "ID", conflicts_with_all = ["all", "campaign", "status", "task", "older_than", "dry_run"])]
    pub(crate) id: Option<String>,
    /// Which runs, instead of an id
    #[command(flatten)]
    pub(crate) filters: Filters,
}

/// `resume`.
#[derive(Debug, Args)]
pub(crate) struct Resume {
    /// Campaign or run; named or selected runs are also resumed from a pause
    #[arg(value_name = "ID", conflicts_with_all = ["all", "campaign", "status", "task", "older_than", "dry_run"])]
    pub(crate) id: Option<String>,
    /// End after the result table instead of serving the pages until Ctrl-C
    #[arg(long)]
    pub(crate) exit: bool,
    /// Which runs, instead of an id
    #[command(flatten)]
    pub(crate) filters: Filters,
}

/// `retry`.
#[derive(Debug, Args)]
pub(crate) struct Retry {
    /// Run
    #[arg(value_name = "RUN", conflicts_with_all = ["all", "campaign", "status", "task", "older_than", "dry_run"])]
    pub(crate) id: Option<String>,
    /// Only this step
    #[arg(long, value_name = "KEY", requires = "id")]
    pub(crate) step: Option<String>,
    /// Which runs, instead of an id
    #[command(flatten)]
    pub(crate) filters: Filters,
}

/// `hint`.
#[derive(Debug, Args)]
pub(crate) struct Hint {
    /// Run
    #[arg(value_name = "RUN")]
    pub(crate) id: String,
    /// The advice, or `-` to read it from standard input
    #[arg(value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) text: String,
}

/// `approve`.
#[derive(Debug, Args)]
pub(crate) struct Approve {
    /// Run
    #[arg(value_name = "RUN")]
    pub(crate) id: String,
    /// The gate: plan or `new_best`; the one that the run waits at without it
    #[arg(long, value_name = "GATE", value_parser = gate)]
    pub(crate) gate: Option<Gate>,
}

/// `reject`.
#[derive(Debug, Args)]
pub(crate) struct Reject {
    /// Run
    #[arg(value_name = "RUN")]
    pub(crate) id: String,
    /// The reason, which the agents read as a hint for a new plan
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: String,
    /// The gate: plan or `new_best`; the one that the run waits at without it
    #[arg(long, value_name = "GATE", value_parser = gate)]
    pub(crate) gate: Option<Gate>,
}

/// `priority`.
#[derive(Debug, Args)]
pub(crate) struct Priority {
    /// Campaign or run
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// Priority of its steps, from -100 to 100; other campaigns still make progress
    #[arg(value_name = "N", allow_negative_numbers = true,
          value_parser = clap::value_parser!(i32).range(i64::from(MIN_PRIORITY)..=i64::from(MAX_PRIORITY)))]
    pub(crate) priority: i32,
}

/// `limits`.
#[derive(Debug, Args)]
pub(crate) struct Limits {
    /// Campaign
    #[arg(value_name = "CAMPAIGN")]
    pub(crate) id: String,
    /// New caps
    #[command(flatten)]
    pub(crate) budget: BudgetFlags,
    /// A new window
    #[command(flatten)]
    pub(crate) window: WindowFlags,
    /// A new share of machines relative to other campaigns, from 1 to 100
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_WEIGHT)))]
    pub(crate) weight: Option<u32>,
    /// Limits to remove
    #[command(flatten)]
    pub(crate) lifted: Lifted,
}

/// Limits to remove.
#[derive(Debug, Clone, Copy, Default, Args)]
#[expect(clippy::struct_excessive_bools, reason = "one flag of the command line each")]
pub(crate) struct Lifted {
    /// Remove the limit of the price
    #[arg(long, conflicts_with = "max_cost")]
    pub(crate) no_max_cost: bool,
    /// Remove the limit of tokens
    #[arg(long, conflicts_with = "max_tokens")]
    pub(crate) no_max_tokens: bool,
    /// Remove the limit of the time on devices
    #[arg(long, conflicts_with = "max_device_time")]
    pub(crate) no_max_device_time: bool,
    /// Remove the limit of the time since the campaign began
    #[arg(long, conflicts_with = "max_wall_time")]
    pub(crate) no_max_wall_time: bool,
    /// Remove the limit of attempts
    #[arg(long, conflicts_with = "max_total_attempts")]
    pub(crate) no_max_total_attempts: bool,
    /// Remove the window
    #[arg(long, conflicts_with = "window")]
    pub(crate) no_window: bool,
}

/// `drain`.
#[derive(Debug, Args)]
pub(crate) struct Drain {
    /// Worker: its id, the beginning or the last digits of it, or its name
    #[arg(value_name = "WORKER")]
    pub(crate) worker: String,
    /// Undo: the worker takes new steps again
    #[arg(long)]
    pub(crate) undo: bool,
}

/// `release`.
#[derive(Debug, Args)]
pub(crate) struct Release {
    /// GPU: the driver's name of it, or the beginning of that; `list workers` shows them
    #[arg(value_name = "DEVICE")]
    pub(crate) device: String,
}

/// `token`.
#[derive(Debug, Args)]
pub(crate) struct Token {
    /// What to do
    #[command(subcommand)]
    pub(crate) command: TokenCommand,
}

/// What `token` does.
#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Create a token; its secret is shown only once
    Create(TokenCreate),
    /// List tokens, revoked and expired ones too; never their secrets
    List,
    /// Revoke a token
    Revoke(TokenRevoke),
}

/// `token create`.
#[derive(Debug, Args)]
pub(crate) struct TokenCreate {
    /// Display name, which the log of a run shows as the author of actions
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// viewer, operator, worker or admin
    #[arg(long, value_parser = role)]
    pub(crate) role: Role,
    /// When it expires, for example 30d; by default never
    #[arg(long, value_name = "TIME", value_parser = duration_ms)]
    pub(crate) valid_for: Option<u64>,
}

/// `token revoke`.
#[derive(Debug, Args)]
pub(crate) struct TokenRevoke {
    /// Token: an id, the beginning of one, or the last digits of one
    #[arg(value_name = "ID")]
    pub(crate) id: String,
}

/// `share`.
#[derive(Debug, Args)]
pub(crate) struct Share {
    /// What to do
    #[command(subcommand)]
    pub(crate) command: ShareCommand,
}

/// What `share` does.
#[derive(Debug, Subcommand)]
pub(crate) enum ShareCommand {
    /// Create a link to a campaign or a run; it is shown only once
    Create(ShareCreate),
    /// List links, revoked and expired ones too; never their secrets
    List,
    /// Revoke a link
    Revoke(ShareRevoke),
}

/// `share create`.
#[derive(Debug, Args)]
pub(crate) struct ShareCreate {
    /// Campaign or run: an id, the beginning of one, or the last digits of one
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// A label for the list of links
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) label: String,
    /// When it expires
    #[arg(long, value_name = "TIME", value_parser = duration_ms, default_value = "7d")]
    pub(crate) valid_for: u64,
}

/// `share revoke`.
#[derive(Debug, Args)]
pub(crate) struct ShareRevoke {
    /// Link: an id, the beginning of one, or the last digits of one
    #[arg(value_name = "ID")]
    pub(crate) id: String,
}

fn role(text: &str) -> Result<Role, String> {
    Role::parse(text).ok_or_else(|| {
        let names: Vec<&str> = Role::ALL.iter().map(|role| role.as_str()).collect();
        format!("expected one of {}", names.join(", "))
    })
}
