//! Arguments of the commands that keep, rebuild and delete.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use nightshift_protocol::task::Target;

use super::reward::ExportRollouts;
use crate::limits::duration_ms;

/// The formats of `export`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    /// A campaign as one compressed file that `import` rebuilds.
    Archive,
    /// A campaign or a run as JSON for people and other programs; it cannot be imported.
    Json,
}

/// The format of an exported program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProgramForm {
    /// A folder that `cmake` builds, whose `build/compare` checks and times the program
    Cmake,
    /// A Python file with the class `ModelNew`, without checks
    ModelNew,
}

/// Other exports than campaigns.
#[derive(Debug, Subcommand)]
pub(crate) enum ExportCommand {
    /// Write training rows of both skills, as verl and TRL read them
    Rollouts(ExportRollouts),
    /// Write programs and results of a campaign in the layout of KernelBench, for its own scripts
    Kernelbench(ExportKernelbench),
}

/// `export kernelbench`.
#[derive(Debug, Args)]
pub(crate) struct ExportKernelbench {
    /// Campaign
    #[arg(value_name = "CAMPAIGN")]
    pub(crate) campaign: String,
    /// The folder to write into, which gets runs/ and results/timing/
    #[arg(long, value_name = "DIR", required_unless_present = "beside")]
    pub(crate) out: Option<PathBuf>,
    /// Export every program of a run in order; by default only its best one
    #[arg(long, requires = "out")]
    pub(crate) all: bool,
    /// Replace programs, results and timing files of an earlier export of the run
    #[arg(long, requires = "out")]
    pub(crate) force: bool,
    /// Compare the verdicts of this campaign with those in the folder that `import kernelbench-results` wrote
    #[arg(long, value_name = "DIR")]
    pub(crate) beside: Option<PathBuf>,
}

/// `export`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Export {
    /// Another export
    #[command(subcommand)]
    pub(crate) command: Option<ExportCommand>,
    /// Campaign; with `--format json` also a run; with `--as` an attempt, RUN/NUMBER
    #[arg(value_name = "ID", required = true)]
    pub(crate) id: Option<String>,
    /// The file to write; with `--as cmake` the folder
    #[arg(long, value_name = "FILE", required = true)]
    pub(crate) out: Option<PathBuf>,
    /// Export the program of an attempt, right or not, in this format
    #[arg(long = "as", value_enum, value_name = "FORM", conflicts_with = "format")]
    pub(crate) form: Option<ProgramForm>,
    /// The format
    #[arg(long, value_enum, default_value = "archive")]
    pub(crate) format: ExportFormat,
    /// Replace an existing file
    #[arg(long)]
    pub(crate) force: bool,
}

/// Other imports than campaigns.
#[derive(Debug, Subcommand)]
pub(crate) enum ImportCommand {
    /// Create tasks from files with a PyTorch model: those of KernelBench, or others with `Model`, `get_inputs` and
    /// `get_init_inputs`
    Kernelbench(ImportKernelbench),
    /// Read results in the layout of KernelBench, and create tasks from their programs
    KernelbenchResults(ImportKernelbenchResults),
}

/// `import`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Import {
    /// Another import
    #[command(subcommand)]
    pub(crate) command: Option<ImportCommand>,
    /// A file that `export` wrote
    #[arg(value_name = "FILE", required = true)]
    pub(crate) file: Option<PathBuf>,
}

/// The element type that a model is called with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Precision {
    /// 32-bit floats, as the files say.
    #[default]
    Fp32,
    /// 16-bit floats.
    Fp16,
    /// The upper half of 32-bit floats.
    Bf16,
}

impl Precision {
    /// `fp32`, `fp16` or `bf16`.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Fp32 => "fp32",
            Self::Fp16 => "fp16",
            Self::Bf16 => "bf16",
        }
    }
}

/// `import kernelbench`.
#[derive(Debug, Args)]
pub(crate) struct ImportKernelbench {
    /// A file, a folder with such files or with folders level1, level2, ..., or the address of a git repository
    #[arg(value_name = "PATH_OR_URL")]
    pub(crate) source: String,
    /// Only this level; may be given several times
    #[arg(long = "level", value_name = "N")]
    pub(crate) levels: Vec<u32>,
    /// Only this task: 40, 1/40, or `40_LayerNorm`; may be given several times
    #[arg(long = "task", value_name = "ID")]
    pub(crate) tasks: Vec<String>,
    /// Folder to write the tasks into
    #[arg(long, value_name = "DIR", default_value = "kernelbench")]
    pub(crate) out: PathBuf,
    /// Write programs as native libraries, or as Python files with `ModelNew`
    #[arg(long, value_name = "FORM", default_value = "native", value_parser = ["native", "torch"])]
    pub(crate) form: String,
    /// The hardware that programs are written for
    #[arg(long, value_parser = super::target, default_value = "cuda")]
    pub(crate) target: Target,
    /// The element type of models; 16 bits need the target `cuda`
    #[arg(long, value_enum, default_value = "fp32")]
    pub(crate) precision: Precision,
    /// Call models in evaluation mode; by default in the mode of the constructor, usually training
    #[arg(long)]
    pub(crate) eval: bool,
    /// The Python interpreter with PyTorch that inspects the files; by default the first one of the search path
    #[arg(long, value_name = "PATH")]
    pub(crate) python: Option<PathBuf>,
    /// The Hugging Face cache that the files may read; by default that of the configuration
    #[arg(long, value_name = "DIR")]
    pub(crate) hf_home: Option<PathBuf>,
    /// Time limit for the inspection of a file, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "120", value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub(crate) timeout_s: u32,
    /// Write folders anew that exist
    #[arg(long)]
    pub(crate) force: bool,
}

impl ImportKernelbench {
    /// Returns whether programs are files of Python.
    pub(crate) fn torch_form(&self) -> bool {
        self.form == "torch"
    }
}

/// `import kernelbench-results`.
#[derive(Debug, Args)]
pub(crate) struct ImportKernelbenchResults {
    /// The folder of a run (`eval_results.json` and programs), or one with the folders of several
    #[arg(value_name = "PATH")]
    pub(crate) path: PathBuf,
    /// Times of the references, a file of results/timing/HARDWARE/: without it there is no `fast_p`
    #[arg(long, value_name = "FILE")]
    pub(crate) baseline: Option<PathBuf>,
    /// The level of the run's tasks, if its folder does not name it
    #[arg(long, value_name = "N")]
    pub(crate) level: Option<u32>,
    /// Tasks that `nightshift import kernelbench` made
    #[arg(long, value_name = "DIR", requires = "out")]
    pub(crate) tasks: Option<PathBuf>,
    /// Folder to write the tasks with the programs of the run into, to judge them with `--model scripted`
    #[arg(long, value_name = "DIR", requires = "tasks")]
    pub(crate) out: Option<PathBuf>,
    /// Write folders anew that exist
    #[arg(long, requires = "out")]
    pub(crate) force: bool,
}

/// `prune`.
#[derive(Debug, Args)]
pub(crate) struct Prune {
    /// Minimum time since the last run of a campaign ended, for example 30d; at least an hour
    #[arg(long, value_name = "TIME", value_parser = duration_ms)]
    pub(crate) older_than: u64,
    /// Only print the selected campaigns
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not ask for confirmation
    #[arg(short, long)]
    pub(crate) yes: bool,
}
