//! Options for a task that is one file of `PyTorch`.

use clap::Args;
use nightshift_protocol::task::Target;

use super::files::Precision;

/// Heading of these options.
const HEADING: &str = "Options for a file of PyTorch";

/// How a model is called, and where.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct ModelUse {
    /// The hardware that a file of PyTorch is judged on; a GPU where there is one
    #[arg(long, value_parser = super::target, help_heading = HEADING)]
    pub(crate) target: Option<Target>,
    /// The element type that the model is called with; 16 bits are for the target `cuda`
    #[arg(long, value_enum, default_value = "fp32", help_heading = HEADING)]
    pub(crate) precision: Precision,
    /// Call the model in evaluation mode
    #[arg(long, help_heading = HEADING)]
    pub(crate) eval: bool,
}
