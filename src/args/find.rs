//! The flags of commands that look through attempts: `list attempts`, `search`.

use clap::Args;
use nightshift_protocol::api::{AttemptSort, SearchKind};
use nightshift_protocol::attempt::{AttemptOutcome, Stage};

/// Filters and order of `list attempts`.
#[derive(Debug, Default, PartialEq, Args)]
#[command(next_help_heading = "Attempts")]
pub(crate) struct AttemptFlags {
    /// Only attempts of this run
    #[arg(long, value_name = "ID")]
    pub(crate) run: Option<String>,
    /// Only attempts at this task
    #[arg(long, value_name = "NAME")]
    pub(crate) task: Option<String>,
    /// Only attempts that this model wrote: scripted, or ENDPOINT/MODEL
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// Only attempts of this strategy
    #[arg(long, value_name = "NAME")]
    pub(crate) strategy: Option<String>,
    /// Only attempts that were timed on this device
    #[arg(long, value_name = "NAME")]
    pub(crate) device: Option<String>,
    /// Only attempts with one of these outcomes, with commas: `crashed`, `incorrect`, `correct_faster` and others
    #[arg(long, value_name = "OUTCOME", value_delimiter = ',', value_parser = outcome)]
    pub(crate) outcome: Vec<AttemptOutcome>,
    /// Only attempts of one of these stages, with commas: `draft`, `repair_compile`, `optimize` and others
    #[arg(long, value_name = "STAGE", value_delimiter = ',', value_parser = stage)]
    pub(crate) stage: Vec<Stage>,
    /// Only attempts that gave right results; `--correct false`: only those that did not
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub(crate) correct: Option<bool>,
    /// Only attempts whose speedup was confirmed in a fresh process
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub(crate) confirmed: Option<bool>,
    /// Only attempts with at least this speedup over the reference
    #[arg(long, value_name = "FACTOR")]
    pub(crate) min_speedup: Option<f64>,
    /// Only attempts with at most this speedup over the reference
    #[arg(long, value_name = "FACTOR")]
    pub(crate) max_speedup: Option<f64>,
    /// Only attempts with at least this speedup over the fastest baseline
    #[arg(long, value_name = "FACTOR")]
    pub(crate) min_speedup_over_fastest: Option<f64>,
    /// Only attempts with at most this speedup over the fastest baseline
    #[arg(long, value_name = "FACTOR")]
    pub(crate) max_speedup_over_fastest: Option<f64>,
    /// Only attempts with at least this reward
    #[arg(long, value_name = "REWARD", allow_hyphen_values = true)]
    pub(crate) min_reward: Option<f64>,
    /// Only attempts with at most this reward
    #[arg(long, value_name = "REWARD", allow_hyphen_values = true)]
    pub(crate) max_reward: Option<f64>,
    /// Only attempts with this tag of the team
    #[arg(long, value_name = "TAG")]
    pub(crate) tag: Option<String>,
    /// Only attempts whose task, model, strategy or device contains these words
    #[arg(long = "match", value_name = "TEXT")]
    pub(crate) text: Option<String>,
    /// Sort key: created, finished, speedup, `speedup_over_fastest`, reward, cost, or tokens
    #[arg(long, value_name = "KEY", value_parser = sort)]
    pub(crate) sort: Option<AttemptSort>,
    /// The smallest or oldest first
    #[arg(long)]
    pub(crate) ascending: bool,
}

/// `search`.
#[derive(Debug, Args)]
pub(crate) struct Search {
    /// Words to find; "words in quotation marks" are a phrase, wor* is a prefix
    #[arg(value_name = "TEXT", required = true)]
    pub(crate) text: Vec<String>,
    /// Only texts of these kinds, with commas: source, reply, diagnosis, error, finding
    #[arg(long, value_name = "KIND", value_delimiter = ',', value_parser = kind)]
    pub(crate) kind: Vec<SearchKind>,
    /// Only texts of this campaign
    #[arg(long, value_name = "ID")]
    pub(crate) campaign: Option<String>,
    /// Only texts of this run
    #[arg(long, value_name = "ID")]
    pub(crate) run: Option<String>,
    /// Maximum number of hits
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=500))]
    pub(crate) limit: u32,
    /// Only texts of the task of this name
    #[arg(long, value_name = "NAME")]
    pub(crate) task: Option<String>,
    /// Only hits before this position, which the end of the previous page shows
    #[arg(long, value_name = "CURSOR")]
    pub(crate) before: Option<String>,
}

fn outcome(text: &str) -> Result<AttemptOutcome, String> {
    AttemptOutcome::parse(text).ok_or_else(|| one_of(&AttemptOutcome::ALL.map(AttemptOutcome::as_str)))
}

fn stage(text: &str) -> Result<Stage, String> {
    Stage::parse(text).ok_or_else(|| one_of(&Stage::ALL.map(Stage::as_str)))
}

fn sort(text: &str) -> Result<AttemptSort, String> {
    AttemptSort::parse(text).ok_or_else(|| one_of(&AttemptSort::ALL.map(AttemptSort::as_str)))
}

fn kind(text: &str) -> Result<SearchKind, String> {
    SearchKind::parse(text).ok_or_else(|| one_of(&SearchKind::ALL.map(SearchKind::as_str)))
}

fn one_of(words: &[&str]) -> String {
    format!("expected one of {}", words.join(", "))
}
