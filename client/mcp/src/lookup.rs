//! Resolves ids, runs, attempts and texts that a model names.

use std::str::FromStr;

use nightshift_client::Client;
use nightshift_protocol::api::RunDetail;
use nightshift_protocol::attempt::Attempt;
use nightshift_protocol::id::{CampaignId, RunId};

use crate::error::ToolError;
use crate::text::name;

/// Maximum length of a text to resolve.
const MAX_ID_CHARS: usize = 64;

/// Returns the run of a whole id, or of a part that is unique.
pub(crate) async fn run(client: &Client, text: &str) -> Result<RunId, ToolError> {
    match RunId::from_str(text) {
        Ok(id) => Ok(id),
        Err(_) => only(text, find(client, text).await?.1, "run", "list_runs"),
    }
}

/// Loads the run of a whole id, or of a part that is unique.
pub(crate) async fn run_detail(client: &Client, text: &str) -> Result<RunDetail, ToolError> {
    Ok(client.run(&run(client, text).await?).await?)
}

/// Returns the named campaign, if any.
pub(crate) async fn named_campaign(client: &Client, text: Option<&str>) -> Result<Option<CampaignId>, ToolError> {
    match text {
        Some(text) => campaign(client, text).await.map(Some),
        None => Ok(None),
    }
}

/// Returns the campaign of a whole id, or of a part that is unique.
pub(crate) async fn campaign(client: &Client, text: &str) -> Result<CampaignId, ToolError> {
    match CampaignId::from_str(text) {
        Ok(id) => Ok(id),
        Err(_) => only(text, find(client, text).await?.0, "campaign", "list_campaigns"),
    }
}

async fn find(client: &Client, text: &str) -> Result<(Vec<CampaignId>, Vec<RunId>), ToolError> {
    let plain = !text.is_empty()
        && text.len() <= MAX_ID_CHARS
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if !plain {
        return Ok((Vec::new(), Vec::new()));
    }
    let found = client.find_ids(text).await?;
    Ok((found.campaigns, found.runs))
}

fn only<T: ToString>(text: &str, found: Vec<T>, noun: &str, shown_by: &str) -> Result<T, ToolError> {
    let count = found.len();
    let mut found = found.into_iter();
    match (found.next(), count) {
        (Some(only), 1) => Ok(only),
        (None, _) => Err(ToolError::new(&format!("{noun}.not_found"), format!("there is no {noun} `{}`", name(text)))
            .hint(format!("{shown_by} shows what there is"))),
        (Some(_), count) => {
            Err(ToolError::new("run.ambiguous", format!("`{}` fits {count} ids of a {noun}", name(text)))
                .hint("give the whole id"))
        }
    }
}

/// Returns an attempt of a run.
pub(crate) fn attempt(detail: &RunDetail, number: u32) -> Result<&Attempt, ToolError> {
    let attempts = &detail.view.attempts;
    attempts.iter().find(|attempt| attempt.number == number).ok_or_else(|| {
        ToolError::new("attempt.not_found", format!("the run {} has no attempt {number}", detail.summary.id))
            .hint(format!("it has {} attempts so far", attempts.len()))
    })
}

/// Returns the text of an artifact.
pub(crate) async fn text(
    client: &Client,
    hash: &nightshift_protocol::artifact::ArtifactHash,
) -> Result<String, ToolError> {
    let bytes = client.get_artifact(hash).await?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
