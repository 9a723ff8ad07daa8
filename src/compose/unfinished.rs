//! Campaigns that an earlier command left unfinished: a command for one campaign pays for that one only.

use nightshift_engine::clock::Clock as _;
use nightshift_engine::store::{PageRequest, Store};
use nightshift_protocol::campaign::CampaignSpec;
use nightshift_protocol::id::CampaignId;
use nightshift_protocol::run::{RunStatus, RunTransition};
use nightshift_server::SystemClock;

use crate::failure::Result;

/// Campaigns that are read at once.
const PAGE_ROWS: u32 = 500;
/// The actor in the logs of runs.
const PAUSED_BY: &str = "a command for another campaign";

/// What a server does with unfinished campaigns that it finds at its start.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Unfinished {
    /// It goes on with them.
    GoOn,
    /// It pauses them, but for the newest one with this request.
    Pause {
        /// The request.
        except: Option<Box<CampaignSpec>>,
    },
}

/// A campaign that was paused at the start.
#[derive(Debug, Clone)]
pub(crate) struct PausedCampaign {
    /// Its id.
    pub(crate) id: CampaignId,
    /// Its name.
    pub(crate) name: String,
}

/// Pauses the running runs of all campaigns but the newest one with the request `except`. A database that machines share is
/// left alone: its campaigns belong to a team, and its servers may come back.
pub(super) async fn pause(store: &Store, except: Option<&CampaignSpec>) -> Result<Vec<PausedCampaign>> {
    if store.database.database_now().await?.is_some() {
        return Ok(Vec::new());
    }
    let mut except = except;
    let mut paused = Vec::new();
    let mut page = PageRequest { limit: PAGE_ROWS, before: None };
    loop {
        let campaigns = store.campaigns.list_campaigns(page).await?;
        let last = campaigns.last().map(|campaign| campaign.id.to_string());
        for campaign in campaigns {
            let is_excepted = except.is_some_and(|spec| is_same(&campaign.spec, spec));
            if is_excepted {
                except = None;
            } else if campaign.runs.running > 0 {
                pause_runs(store, &campaign.id).await?;
                paused.push(PausedCampaign { id: campaign.id, name: campaign.name });
            }
        }
        if last.is_none() {
            return Ok(paused);
        }
        page = PageRequest { limit: PAGE_ROWS, before: last };
    }
}

fn is_same(stored: &serde_json::Value, spec: &CampaignSpec) -> bool {
    serde_json::from_value::<CampaignSpec>(stored.clone()).is_ok_and(|stored| stored == *spec)
}

async fn pause_runs(store: &Store, campaign: &CampaignId) -> Result<()> {
    let mut page = PageRequest { limit: PAGE_ROWS, before: None };
    loop {
        let runs = store.runs.list_runs(Some(campaign), Some(RunStatus::Running), page).await?;
        let Some(last) = runs.last().map(|run| run.id.to_string()) else { return Ok(()) };
        for run in runs {
            store.run_control.control_run(&run.id, RunTransition::Pause, Some(PAUSED_BY), SystemClock.now()).await?;
        }
        page = PageRequest { limit: PAGE_ROWS, before: Some(last) };
    }
}
