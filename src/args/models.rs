//! Which models a campaign asks.

use clap::Args;

/// Models of a campaign.
#[derive(Debug, Args)]
pub(crate) struct ModelFlags {
    /// PROVIDER/NAME, or `scripted` for the replies beside the tasks; after a comma, models that are asked in this order
    /// when the one before cannot answer
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: String,
    /// The same for the Planner alone
    #[arg(long, value_name = "MODEL")]
    pub(crate) planner_model: Option<String>,
    /// The same for the Coder alone
    #[arg(long, value_name = "MODEL")]
    pub(crate) coder_model: Option<String>,
    /// The same for the Verifier alone
    #[arg(long, value_name = "MODEL")]
    pub(crate) verifier_model: Option<String>,
    /// The same for the judge alone
    #[arg(long, value_name = "MODEL")]
    pub(crate) judge_model: Option<String>,
}
