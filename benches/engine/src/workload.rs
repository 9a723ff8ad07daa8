//! A closed loop of workflows: so many in flight, and for each that has ended the next one begins.

use std::sync::Arc;
use std::time::Instant;

use anyhow::Context as _;
use nightshift_engine::clock::Clock as _;
use nightshift_engine::store::{NewCampaign, NewRun, Store};
use nightshift_protocol::budget::BudgetCaps;
use nightshift_protocol::id::{CampaignId, RunId, ServerId};
use nightshift_protocol::time::TimestampMs;
use nightshift_server::SystemClock;
use serde_json::json;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::figure::{Durations, Timing};
use crate::trivial;
use crate::watch::{Ended, Watch};

/// Most runs that are created at once.
const MOST_AT_ONCE: usize = 500;

/// How much to run, from the command line.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Load {
    /// Workflows in flight at once
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) in_flight: u32,
    /// Workflows in the timed part
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) workflows: u64,
    /// Workflows before the timed part, under the same number in flight
    #[arg(long, default_value_t = 20)]
    pub(crate) warm_up: u64,
    /// Sequential steps of each workflow
    #[arg(long, default_value_t = trivial::STEPS_PER_WORKFLOW, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) steps: u64,
}

/// Workflows on a store, created through its port as the API does it, and owned by a server from the start.
pub(crate) struct Loop {
    store: Store,
    /// The servers, which own the campaigns in turn.
    owners: Vec<ServerId>,
    room: Arc<Semaphore>,
    watch: Arc<Watch>,
    ends: mpsc::UnboundedReceiver<anyhow::Result<Ended>>,
    listener: JoinHandle<()>,
    next: u64,
}

impl Loop {
    /// A loop on the store of servers that have started. Several of them have a database at this address.
    pub(crate) async fn new(store: Store, several: Option<String>, in_flight: u32, steps: u64) -> anyhow::Result<Self> {
        let owners = store.servers.list_servers().await?.into_iter().map(|server| server.id).collect();
        let room = Arc::new(Semaphore::new(usize::try_from(in_flight)?));
        let (watch, ends) = Watch::new(store.clone(), steps, Arc::clone(&room));
        let listener = match several {
            None => tokio::spawn(Arc::clone(&watch).listen()),
            Some(url) => tokio::spawn(Arc::clone(&watch).query(url)),
        };
        Ok(Self { store, owners, room, watch, ends, listener, next: 0 })
    }

    /// Runs this many to their end; when each ended, in this order, and how long all of it took.
    pub(crate) async fn run(&mut self, workflows: u64) -> anyhow::Result<(Timing, Vec<Instant>)> {
        let began = Instant::now();
        let mut to_begin = workflows;
        let mut ended: Vec<Ended> = Vec::new();
        while u64::try_from(ended.len())? < workflows {
            tokio::select! {
                end = self.ends.recv() => ended.push(end.context("the watch ended")??),
                places = places(&self.room, to_begin), if to_begin > 0 => {
                    let count = places?;
                    self.begin(count).await?;
                    to_begin -= count;
                }
            }
        }
        let whole = began.elapsed();
        let mut at: Vec<Instant> = ended.iter().map(|ended| ended.at).collect();
        at.sort_unstable();
        let each = Durations::new(ended.into_iter().map(|ended| ended.took).collect());
        Ok((Timing { whole, each }, at))
    }

    /// Begins so many workflows, as one campaign.
    async fn begin(&mut self, count: u64) -> anyhow::Result<()> {
        let numbers = self.next..self.next + count;
        self.next += count;
        let turn = usize::try_from(numbers.start)? % self.owners.len().max(1);
        let campaign = campaign(numbers.clone(), self.owners.get(turn).cloned())?;
        for (run, number) in campaign.runs.iter().zip(numbers) {
            self.watch.expect(run.id.clone(), number);
        }
        self.store.campaigns.create_campaign(campaign).await?;
        Ok(())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

/// Takes all places that are free, at least one and at most so many.
async fn places(room: &Semaphore, most: u64) -> anyhow::Result<u64> {
    room.acquire().await?.forget();
    let more = room.available_permits().min(usize::try_from(most - 1).unwrap_or(usize::MAX)).min(MOST_AT_ONCE - 1);
    let more = match u32::try_from(more).ok().filter(|more| *more > 0).map(|more| room.try_acquire_many(more)) {
        Some(Ok(permits)) => {
            permits.forget();
            u64::try_from(more)?
        }
        _ => 0,
    };
    Ok(1 + more)
}

/// A campaign of runs that begin with these numbers.
pub(crate) fn campaign(numbers: std::ops::Range<u64>, owner: Option<ServerId>) -> anyhow::Result<NewCampaign> {
    let mut runs = Vec::new();
    for number in numbers {
        runs.push(NewRun {
            id: RunId::from_uuid(Uuid::now_v7()),
            input: trivial::run_input(number)?,
            digest: trivial::digest(number, 0),
        });
    }
    Ok(NewCampaign {
        id: CampaignId::from_uuid(Uuid::now_v7()),
        name: "trivial".to_owned(),
        spec: json!({ "strategy": "trivial" }),
        at: now(),
        idempotency: None,
        budget: BudgetCaps::default(),
        schedule: None,
        priority: 0,
        weight: 1,
        owner,
        runs,
    })
}

fn now() -> TimestampMs {
    SystemClock.now()
}
