//! Options for a task that is one file of `PyTorch`.

use clap::Args;
use nightshift_protocol::task::Target;

use super::files::Precision;

/// Heading of these options.
const HEADING: &str = "Options for a file of PyTorch";

/// Options of calling a PyTorch model.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct ModelUse {
    /// The hardware for a PyTorch file; by default a GPU if there is one
    #[arg(long, value_parser = super::target, help_heading = HEADING)]
    pub(crate) target: Option<Target>,
    /// The element type of the model's inputs; 16 bits need the target `cuda`
    #[arg(long, value_enum, default_value = "fp32", help_heading = HEADING)]
    pub(crate) precision: Precision,
    /// Call the model in evaluation mode
    #[arg(long, help_heading = HEADING)]
    pub(crate) eval: bool,
}
