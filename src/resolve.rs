//! From what a person types to an id.

use nightshift_client::Client;
use nightshift_protocol::id::{CampaignId, RunId};
use serde_json::json;

use crate::failure::{Failure, Result};

/// Matches that a message names.
const MAX_NAMED: usize = 8;

/// What an id stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// A campaign.
    Campaign(CampaignId),
    /// A run.
    Run(RunId),
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Campaign(id) => id.fmt(f),
            Self::Run(id) => id.fmt(f),
        }
    }
}

/// The campaign or run that is meant.
pub(crate) async fn any(client: &Client, text: &str) -> Result<Target> {
    let (campaigns, runs) = find(client, text).await?;
    let targets = campaigns.into_iter().map(Target::Campaign).chain(runs.into_iter().map(Target::Run)).collect();
    one(text, targets, "id.not_found", "campaign or run")
}

/// The run that is meant.
pub(crate) async fn run(client: &Client, text: &str) -> Result<RunId> {
    let (_, runs) = find(client, text).await?;
    one(text, runs, "run.not_found", "run")
}

/// The campaign that is meant.
pub(crate) async fn campaign(client: &Client, text: &str) -> Result<CampaignId> {
    let (campaigns, _) = find(client, text).await?;
    one(text, campaigns, "campaign.not_found", "campaign")
}

async fn find(client: &Client, text: &str) -> Result<(Vec<CampaignId>, Vec<RunId>)> {
    // A whole id fits itself alone; whether it exists is answered where it is used.
    if let Ok(id) = text.parse() {
        return Ok((vec![id], Vec::new()));
    }
    if let Ok(id) = text.parse() {
        return Ok((Vec::new(), vec![id]));
    }
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if !plain {
        return Ok((Vec::new(), Vec::new()));
    }
    let found = client.find_ids(text).await?;
    Ok((found.campaigns, found.runs))
}

fn one<T: std::fmt::Display>(text: &str, found: Vec<T>, missing: &str, noun: &str) -> Result<T> {
    let list = if noun == "campaign" { "nightshift list" } else { "nightshift list runs" };
    only(text, found, ToString::to_string, missing, noun, list)
}

/// Returns whether a text means this id: the whole, a beginning with or without its prefix, or an ending.
pub(crate) fn fits(id: &str, prefix: &str, text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    let digits = id.strip_prefix(prefix).unwrap_or(id);
    !text.is_empty() && (id.starts_with(&text) || digits.starts_with(&text) || digits.ends_with(&text))
}

/// The only one of those that were found. `shown_by` is the command that shows what there is.
pub(crate) fn only<T>(
    text: &str,
    mut found: Vec<T>,
    id: impl Fn(&T) -> String,
    missing: &str,
    noun: &str,
    shown_by: &str,
) -> Result<T> {
    match (found.len(), found.pop()) {
        (1, Some(only)) => Ok(only),
        (_, None) => Err(Failure::new(missing, format!("there is no {noun} `{text}`"))
            .hint(format!("`{shown_by}` shows what there is"))),
        (number, Some(last)) => {
            found.push(last);
            let ids: Vec<String> = found.iter().map(id).collect();
            let named = ids.iter().take(MAX_NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
            let more = if number > MAX_NAMED { ", ..." } else { "" };
            Err(Failure::new("run.ambiguous", format!("`{text}` fits {number} ids: {named}{more}"))
                .hint("give more digits; the last ones differ most")
                .details(json!({ "matches": ids })))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_matches_are_named_and_none_is_chosen() {
        let Err(failure) = one("ab", vec!["run_1ab", "run_2ab"], "run.not_found", "run") else { panic!("chosen") };
        assert_eq!(failure.error.code, "run.ambiguous");
        assert!(failure.error.message.contains("run_1ab, run_2ab"));
        assert_eq!(failure.error.details, json!({ "matches": ["run_1ab", "run_2ab"] }));
    }

    #[test]
    fn an_id_is_meant_by_itself_its_beginning_or_its_ending() {
        for text in ["tok_01ab", "TOK_01", "01a", "1ab", "01ab"] {
            assert!(fits("tok_01ab", "tok_", text), "{text}");
        }
        for text in ["", "1a", "tok_1", "b_01ab"] {
            assert!(!fits("tok_01ab", "tok_", text), "{text}");
        }
    }

    #[test]
    fn no_match_says_what_was_looked_for() {
        let Err(failure) = one::<String>("zz", Vec::new(), "run.not_found", "run") else { panic!("chosen") };
        assert_eq!(failure.error.code, "run.not_found");
        assert!(failure.error.message.contains("zz"));
    }
}
