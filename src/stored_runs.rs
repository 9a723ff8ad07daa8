//! Runs of history: those that are named, or all.

use std::collections::BTreeSet;

use nightshift_client::Client;
use nightshift_protocol::id::{CampaignId, RunId};

use crate::failure::{Failure, Result};
use crate::resolve::{self, Target};

/// Runs of one page.
const PAGE: u32 = 500;
/// Runs that one command goes over.
const MAX_RUNS: usize = 100_000;

/// The runs that these ids mean, campaigns standing for all of theirs; every stored run where none is named.
pub(crate) async fn named(client: &Client, ids: &[String]) -> Result<Vec<RunId>> {
    let mut runs = Vec::new();
    if ids.is_empty() {
        all(client, None, &mut runs).await?;
    }
    for text in ids {
        match resolve::any(client, text).await? {
            Target::Run(id) => runs.push(id),
            Target::Campaign(id) => all(client, Some(&id), &mut runs).await?,
        }
    }
    let mut seen = BTreeSet::new();
    runs.retain(|run| seen.insert(run.clone()));
    Ok(runs)
}

async fn all(client: &Client, campaign: Option<&CampaignId>, runs: &mut Vec<RunId>) -> Result<()> {
    let mut before = None;
    loop {
        let page = client.runs(campaign, None, Some(PAGE), before.as_deref()).await?;
        runs.extend(page.items.into_iter().map(|run| run.id));
        if runs.len() > MAX_RUNS {
            return Err(Failure::new("request.too_large", format!("there are more than {MAX_RUNS} runs"))
                .hint("name campaigns, and do it in parts"));
        }
        before = page.next;
        if before.is_none() {
            return Ok(());
        }
    }
}
