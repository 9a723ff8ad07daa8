//! Following campaigns until their runs have ended.

use std::time::Duration;

use nightshift_client::{Client, ClientError};
use nightshift_protocol::api::{CampaignDetail, RunSummary};
use nightshift_protocol::id::CampaignId;
use nightshift_protocol::run::RunStatus;

use crate::context::Context;
use crate::failure::Result;
use crate::progress::Progress;

/// Time between two looks.
const LOOK_PAUSE: Duration = Duration::from_millis(300);
/// Looks in a row that may fail before the server counts as gone: about a minute.
const MAX_FAILED_LOOKS: u32 = 60;
/// Time between two looks while the server does not answer.
const FAILED_PAUSE: Duration = Duration::from_secs(1);

/// Why following ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    /// Every run has ended.
    Ended,
    /// What is left is paused.
    Paused,
    /// A signal came.
    Interrupted,
}

/// The campaigns as they were last seen, and why following ended.
pub(crate) struct Followed {
    /// Campaigns with their runs.
    pub(crate) campaigns: Vec<CampaignDetail>,
    /// Why.
    pub(crate) until: Until,
}

impl Followed {
    /// All runs.
    pub(crate) fn runs(&self) -> impl Iterator<Item = &RunSummary> {
        self.campaigns.iter().flat_map(|campaign| &campaign.runs)
    }
}

/// Follows campaigns and shows their progress.
pub(crate) async fn campaigns(context: &Context, client: &Client, ids: &[CampaignId]) -> Result<Followed> {
    let mut progress = Progress::new(context.output);
    let followed = look_until(context, client, ids, &mut progress).await;
    progress.finish();
    followed
}

async fn look_until(
    context: &Context,
    client: &Client,
    ids: &[CampaignId],
    progress: &mut Progress,
) -> Result<Followed> {
    let mut failed = 0;
    loop {
        let pause = match look(client, ids).await {
            Ok(campaigns) => {
                if failed > 0 {
                    progress.note("the server answers again");
                }
                failed = 0;
                let runs: Vec<RunSummary> = campaigns.iter().flat_map(|campaign| campaign.runs.clone()).collect();
                progress.show(&runs);
                if runs.iter().all(|run| run.status.is_final()) {
                    return Ok(Followed { campaigns, until: Until::Ended });
                }
                if runs.iter().all(|run| run.status.is_final() || run.status == RunStatus::Paused) {
                    return Ok(Followed { campaigns, until: Until::Paused });
                }
                if context.interrupt.is_cancelled() {
                    return Ok(Followed { campaigns, until: Until::Interrupted });
                }
                LOOK_PAUSE
            }
            Err(error) => {
                failed += 1;
                if !error.is_transient() || failed >= MAX_FAILED_LOOKS || context.interrupt.is_cancelled() {
                    return Err(error.into());
                }
                if failed == 1 {
                    progress.note(&format!("{error}; trying again"));
                }
                FAILED_PAUSE
            }
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = context.interrupt.cancelled() => {}
        }
    }
}

async fn look(client: &Client, ids: &[CampaignId]) -> std::result::Result<Vec<CampaignDetail>, ClientError> {
    let mut campaigns = Vec::with_capacity(ids.len());
    for id in ids {
        campaigns.push(client.campaign(id).await?);
    }
    Ok(campaigns)
}
