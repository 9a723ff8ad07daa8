//! The flags of the hidden command that fills a database.

use clap::Args;

/// `__generate`: campaigns that look as if nights of work had been done, the same for the same seed.
///
/// Every attempt has its row in lists, its state (stage, verdict, findings, measurements, diagnosis, rubric, reward, price,
/// route), its source and its replies. The logs of a few runs (`--complete`) hold every step with input and output, made by
/// the very workflow that carries runs out; those of the others hold their creation and their end only, so that their
/// attempts know no prompts and no steps. The texts of every tenth run can be searched.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Generate {
    /// About so many attempts: whole runs of 20, fewer where a complete run ends early
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub(crate) attempts: u64,
    /// Seed of the random numbers
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Runs whose logs are complete
    #[arg(long, default_value_t = 20)]
    pub(crate) complete: u64,
    /// One campaign with hostile texts, sizes and numbers instead of plausible ones
    #[arg(long, conflicts_with_all = ["attempts", "complete"])]
    pub(crate) hostile: bool,
    /// A Postgres database instead of the one of the configuration
    #[arg(long, value_name = "URL")]
    pub(crate) database: Option<String>,
}
