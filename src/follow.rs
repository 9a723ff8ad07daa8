//! Following campaigns until their runs have ended.

use std::collections::BTreeMap;
use std::time::Duration;

use nightshift_client::{Client, ClientError};
use nightshift_protocol::api::{CampaignDetail, RunSummary};
use nightshift_protocol::id::{CampaignId, RunId};
use nightshift_protocol::run::RunStatus;

use crate::context::Context;
use crate::failure::Result;
use crate::output::printable;
use crate::progress::Progress;
use crate::server_file;

/// Time between two looks.
pub(crate) const LOOK_PAUSE: Duration = Duration::from_millis(300);
/// Maximum number of failed polls in a row before the server counts as lost: about a minute.
const MAX_FAILED_LOOKS: u32 = 60;
/// Poll interval while the server does not answer.
const FAILED_PAUSE: Duration = Duration::from_secs(1);

/// Number of polls with the same activity before the command asks what the run waits for: about five seconds.
const LOOKS_BEFORE_ASKING: u32 = 16;
/// Runs that are asked for at once.
const MAX_ASKED: usize = 20;

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

/// Returns the campaigns as they are now, for a command that stops following them.
pub(crate) async fn now(client: &Client, ids: &[CampaignId]) -> Result<Followed> {
    Ok(Followed { campaigns: look(client, ids).await?, until: Until::Interrupted })
}

async fn look_until(
    context: &Context,
    client: &Client,
    ids: &[CampaignId],
    progress: &mut Progress,
) -> Result<Followed> {
    let mut outage = Outage::default();
    let mut stuck = Stuck::default();
    let mut store_fault = None;
    loop {
        let Some(campaigns) = outage.answer(context, client, look(client, ids).await).await? else { continue };
        let runs: Vec<RunSummary> = campaigns.iter().flat_map(|campaign| campaign.runs.clone()).collect();
        if stuck.look(client, &runs).await {
            note_store_fault(context, client, &mut store_fault).await;
        }
        progress.show(&runs, &stuck.waits);
        if runs.iter().all(|run| run.status.is_final()) {
            return Ok(Followed { campaigns, until: Until::Ended });
        }
        if runs.iter().all(|run| run.status.is_final() || run.status == RunStatus::Paused) {
            return Ok(Followed { campaigns, until: Until::Paused });
        }
        if context.interrupt.is_cancelled() {
            return Ok(Followed { campaigns, until: Until::Interrupted });
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK_PAUSE) => {}
            () = context.interrupt.cancelled() => {}
        }
    }
}

/// Prints a note when the server cannot write to its database, once for each kind of fault. Reading may still work.
async fn note_store_fault(context: &Context, client: &Client, noted: &mut Option<String>) {
    let fault = client.health().await.err().filter(|error| error.code().starts_with("store."));
    let code = fault.as_ref().map(|error| error.code().to_owned());
    if let Some(error) = fault.filter(|_| code != *noted) {
        let told = format!("{error}; the campaign waits and continues when the database can be used");
        context.output.note(&printable(&told));
    }
    *noted = code;
}

/// Polls of a server that failed in a row.
#[derive(Default)]
pub(crate) struct Outage {
    failed: u32,
}

impl Outage {
    /// Returns the answer of a poll. After an error that may pass, waits and returns nothing, so that the caller polls
    /// again.
    pub(crate) async fn answer<T>(
        &mut self,
        context: &Context,
        client: &Client,
        answer: std::result::Result<T, ClientError>,
    ) -> Result<Option<T>> {
        let error = match answer {
            Ok(answer) => {
                if self.failed > 0 {
                    context.output.note("the server answers again");
                }
                self.failed = 0;
                return Ok(Some(answer));
            }
            Err(error) => error,
        };
        self.failed += 1;
        let may_pass = error.is_transient() || renew_token(context, client, &error)?;
        if !may_pass || self.failed >= MAX_FAILED_LOOKS || context.interrupt.is_cancelled() {
            return Err(error.into());
        }
        if self.failed == 1 {
            context.output.note(&printable(&format!("{error}; trying again")));
        }
        tokio::select! {
            () = tokio::time::sleep(FAILED_PAUSE) => {}
            () = context.interrupt.cancelled() => {}
        }
        Ok(None)
    }
}

/// Reads the token of the local server again after it was refused: a server that is started again has another one. Returns
/// false for other errors, and for a server whose token was given.
fn renew_token(context: &Context, client: &Client, error: &ClientError) -> Result<bool> {
    let config = context.config();
    if error.code() != "auth.wrong_token" || config.server.url.is_some() {
        return Ok(false);
    }
    if let Some(server) = server_file::read(&config.data_dir).filter(|server| server.address == client.address()) {
        client.replace_token(&server.token)?;
    }
    Ok(true)
}

/// Runs that have not moved for a while, and what they wait for.
#[derive(Default)]
pub(crate) struct Stuck {
    /// The activity that was seen last, and how often.
    seen: BTreeMap<RunId, (String, u32)>,
    /// What runs wait for.
    pub(crate) waits: BTreeMap<RunId, String>,
}

impl Stuck {
    /// Asks for runs that have shown the same activity for some looks: in turns, as each costs a call. Returns whether there
    /// were some.
    pub(crate) async fn look(&mut self, client: &Client, runs: &[RunSummary]) -> bool {
        let mut due = Vec::new();
        for run in runs {
            let (activity, looks) = self.seen.entry(run.id.clone()).or_default();
            if run.status.is_final() || *activity != run.digest.activity {
                run.digest.activity.clone_into(activity);
                *looks = 0;
                self.waits.remove(&run.id);
            } else {
                *looks = looks.saturating_add(1);
                if looks.is_multiple_of(LOOKS_BEFORE_ASKING) {
                    due.push(&run.id);
                }
            }
        }
        let asks = !due.is_empty();
        for id in due.into_iter().take(MAX_ASKED) {
            // Only a word more for the person who watches: the next look says it when the server is gone.
            let Ok(detail) = client.run(id).await else { continue };
            let wait = detail.open_steps.iter().find_map(|step| {
                let wait = step.waiting_for.as_ref()?;
                Some(match &step.failure {
                    Some(failure) => because(wait, &failure.code, &failure.message),
                    None => wait.clone(),
                })
            });
            match wait {
                Some(wait) => self.waits.insert(id.clone(), wait),
                None => self.waits.remove(id),
            };
        }
        asks
    }
}

/// What is waited for, and since which error, once: a retry names the beginning of its error itself.
fn because(wait: &str, code: &str, message: &str) -> String {
    if wait.contains(message) {
        return wait.to_owned();
    }
    let after = format!(" after {code}: ");
    match wait.split_once(&after) {
        Some((what, _)) => format!("{what}{after}{message}"),
        None => format!("{wait}, because of {code}: {message}"),
    }
}

async fn look(client: &Client, ids: &[CampaignId]) -> std::result::Result<Vec<CampaignDetail>, ClientError> {
    let mut campaigns = Vec::with_capacity(ids.len());
    for id in ids {
        campaigns.push(client.campaign(id).await?);
    }
    Ok(campaigns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_run_waits_for_names_its_error_once_and_whole() {
        let (code, message) = ("model.command_failed", "no credit left");
        for (wait, said) in [
            (
                "retry in 5 s after model.command_failed: no cre…",
                "retry in 5 s after model.command_failed: no credit left",
            ),
            ("a worker", "a worker, because of model.command_failed: no credit left"),
            ("no credit left; it may come until noon", "no credit left; it may come until noon"),
        ] {
            assert_eq!(because(wait, code, message), said);
        }
    }
}
