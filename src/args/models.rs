//! Which models a campaign asks.

use clap::Args;

/// Models of a campaign.
#[derive(Debug, Args)]
pub(crate) struct ModelFlags {
    /// PROVIDER/NAME, or `scripted` for the replies next to the tasks; after commas, fallback models in their order
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: String,
    /// Models of the Planner
    #[arg(long, value_name = "MODEL")]
    pub(crate) planner_model: Option<String>,
    /// Models of the Coder
    #[arg(long, value_name = "MODEL")]
    pub(crate) coder_model: Option<String>,
    /// Models of the Verifier
    #[arg(long, value_name = "MODEL")]
    pub(crate) verifier_model: Option<String>,
    /// Models of the judge
    #[arg(long, value_name = "MODEL")]
    pub(crate) judge_model: Option<String>,
}
