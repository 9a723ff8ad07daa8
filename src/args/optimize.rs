//! Arguments of `optimize`.

use std::path::PathBuf;

use clap::{ArgGroup, Args};
use nightshift_optimizer::strategy::{DEFAULT_STRATEGY, MAX_ATTEMPTS};
use nightshift_protocol::task::PrecisionPolicy;

use super::model_use::ModelUse;
use crate::limits::BudgetFlags;

/// Text below the options of `optimize`.
const AFTER_HELP: &str = "\
Exit codes:
    0  a faster program was found and written
    7  no right program was found, or the search did not end
   10  right programs were found, and none is faster than the reference
  Other codes are those of every command.

Examples:
  nightshift optimize model.py --model openai/MODEL_NAME --max-cost 5
  nightshift optimize model.py --agent claude
  nightshift optimize model.py --agent claude --strategy agent
  nightshift optimize row_softmax --model scripted --out softmax.cpp";

/// `optimize`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP, group = ArgGroup::new("model_or_agent").args(["model", "agent"]).required(true))]
pub(crate) struct Optimize {
    /// A PyTorch file with `Model`, `get_inputs` and `get_init_inputs`, a folder with a task.toml, or a bundled example's name
    #[arg(value_name = "TASK")]
    pub(crate) task: String,
    /// The model, as PROVIDER/NAME; after commas, fallback models in their order
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// The coding agent of this machine: `claude` (Claude Code), `codex`, or a command line that reads a prompt from
    /// standard input and writes its reply to standard output; with `--strategy agent` it works on the run with tools
    #[arg(long, value_name = "AGENT")]
    pub(crate) agent: Option<String>,
    /// The file of the faster program; by default next to the task's file, such as `model_optimized.py`
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Replace the files of an earlier result: goes on with a search that is not over, else begins a new one
    #[arg(long)]
    pub(crate) force: bool,
    /// Maximum number of attempts
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_ATTEMPTS)))]
    pub(crate) max_attempts: Option<u32>,
    /// Stop when the lower bound of the confirmed speedup over the fastest baseline reaches this
    #[arg(long, value_name = "FACTOR", value_parser = super::positive, allow_negative_numbers = true)]
    pub(crate) target_speedup: Option<f64>,
    #[arg(long, value_name = "NAME", default_value = DEFAULT_STRATEGY, value_parser = super::strategy, help = super::STRATEGY_HELP.as_str())]
    pub(crate) strategy: String,
    /// Required precision of programs, instead of that of the task
    #[arg(long, value_name = "NAME", value_parser = super::policy())]
    pub(crate) policy: Option<PrecisionPolicy>,
    /// Run the model's code even if this machine has no file and network sandbox
    #[arg(long)]
    pub(crate) allow_unsandboxed: bool,
    /// Begin a new search instead of continuing, or reporting, an earlier one with the same content
    #[arg(long)]
    pub(crate) new: bool,
    /// Budgets.
    #[command(flatten)]
    pub(crate) budget: BudgetFlags,
    /// Options of calling a PyTorch model.
    #[command(flatten)]
    pub(crate) model_use: ModelUse,
}
