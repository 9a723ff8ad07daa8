//! Arguments of `verify`.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use nightshift_protocol::baseline::BaselineKind;
use nightshift_protocol::task::PrecisionPolicy;

use super::model_use::ModelUse;

/// The value of `--baselines` that names all of them.
const ALL_BASELINES: &str = "all";

/// Text below the options of `verify`.
const AFTER_HELP: &str = "\
Exit codes:
    0  right and faster
   10  right, and not faster
   11  wrong: it does not build, does not come to its end, or its results are wrong
   12  rejected: refused by the screening, or a rule of the contract was broken
   13  not judged: the machine or the reference failed
  Of several programs, the highest one counts. Other codes are those of every command.

Examples:
  nightshift verify row_softmax my_softmax.cpp
  nightshift verify tasks/attention attempt1.cu attempt2.cu --against best.cu
  nightshift verify level1/19_ReLU.py model_new.py --json
  nightshift verify level3/5_AlexNet.py --baselines";

/// `verify`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Verify {
    /// Folder with a task.toml, name of a bundled example, or a PyTorch file with `Model`, `get_inputs` and `get_init_inputs`
    #[arg(value_name = "TASK")]
    pub(crate) task: String,
    /// Programs: C++ or CUDA, or for a PyTorch task a Python file with `ModelNew`
    #[arg(value_name = "PROGRAM", required_unless_present = "baselines")]
    pub(crate) programs: Vec<PathBuf>,
    /// Compare with this program instead of the reference; it must be correct
    #[arg(long, value_name = "FILE")]
    pub(crate) against: Option<PathBuf>,
    /// Measure other ways to run the reference on a GPU, too, and compare programs with the fastest: `torch.compile` in three
    /// modes and a CUDA graph of a model, or the task's `library.cu`; with names and commas, only these. Takes minutes for a
    /// model, once for each machine
    #[arg(long, value_name = "NAMES", conflicts_with = "against", num_args = 0..=1, require_equals = true)]
    #[arg(value_delimiter = ',', default_missing_value = ALL_BASELINES, value_parser = baselines())]
    pub(crate) baselines: Vec<Vec<BaselineKind>>,
    /// Required precision of programs, instead of that of the task
    #[arg(long, value_name = "NAME", value_parser = super::policy())]
    pub(crate) policy: Option<PrecisionPolicy>,
    /// Judge only at this shape of the task
    #[arg(long, value_name = "NAME")]
    pub(crate) shape: Option<String>,
    /// Profile programs that are right
    #[arg(long)]
    pub(crate) profile: bool,
    /// Run programs even if this machine has no file and network sandbox
    #[arg(long)]
    pub(crate) allow_unsandboxed: bool,
    /// Options of calling a PyTorch model.
    #[command(flatten)]
    pub(crate) model_use: ModelUse,
}

/// Parses one value of `--baselines` into the baselines that it names.
fn baselines() -> impl TypedValueParser<Value = Vec<BaselineKind>> {
    let names = BaselineKind::MEASURED.map(BaselineKind::as_str);
    PossibleValuesParser::new([ALL_BASELINES].into_iter().chain(names)).map(|name| {
        BaselineKind::MEASURED.into_iter().filter(|kind| name == ALL_BASELINES || kind.as_str() == name).collect()
    })
}
