//! A process that competes with another one. It reads the prize and the start time from standard input, and writes the
//! result to standard output.

use std::io::{BufRead as _, Write as _};
use std::sync::Arc;

use clap::Args;
use nightshift_client::Client;
use nightshift_engine::clock::Clock as _;
use nightshift_engine::store::{
    BudgetStore as _, ChangeStore as _, ClaimRequest, Ownership, OwnershipStore as _, Reservation,
};
use nightshift_protocol::api::{Claim, CreateCampaign, FreeDevice, FreeSlots, LeasedStep, Report, TryOutcome};
use nightshift_protocol::budget::Amount;
use nightshift_protocol::id::{RunId, ServerId, StepId, WorkerId};
use nightshift_server::SystemClock;
use nightshift_store::SqlStore;
use serde::{Deserialize, Serialize};

use super::server::{TOKEN, WORKER_TOKEN, open};
use crate::toy::now_us;

/// How long a lease lasts that is won, in milliseconds.
const LEASE_MS: u64 = 60_000;

#[derive(Args)]
pub(crate) struct Options {
    /// The server to speak to.
    #[arg(long)]
    server: Option<String>,
    /// The database to use directly.
    #[arg(long)]
    database: Option<String>,
}

/// What to compete for, and when to begin by the machine's monotonic clock.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) at_us: i64,
    pub(crate) contest: Contest,
}

/// What to compete for.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "contest", rename_all = "snake_case")]
pub(crate) enum Contest {
    /// To create the campaign of a key.
    Create { key: String, request: Box<CreateCampaign> },
    /// To lease the only step, through a server.
    Claim { worker: WorkerId },
    /// To report, through a server.
    Report { step: Box<LeasedStep>, worker: WorkerId, outcome: TryOutcome },
    /// To lease the only step of a route, from the database.
    Take { worker: WorkerId, route: String },
    /// To own a run.
    Own { server: ServerId, run: RunId },
    /// To set aside what is left of a budget.
    Reserve { step: StepId, epoch: u64, amount: Amount },
    /// To have the database for itself.
    Open { database: String },
}

/// What came out.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Prize {
    pub(crate) won: bool,
    /// What was won, or why it was not.
    pub(crate) told: String,
}

pub(super) async fn run(options: Options) -> anyhow::Result<()> {
    let operator = client(options.server.as_deref(), TOKEN)?;
    let worker = client(options.server.as_deref(), WORKER_TOKEN)?;
    let store = match &options.database {
        Some(database) => Some(open(database, None, None).await?),
        None => None,
    };
    let racer = Racer { operator, worker, store };
    for line in std::io::stdin().lock().lines() {
        let order: Order = serde_json::from_str(&line?)?;
        while now_us() < order.at_us {
            std::hint::spin_loop();
        }
        let prize =
            racer.compete(order.contest).await.unwrap_or_else(|error| Prize { won: false, told: error.to_string() });
        let mut out = std::io::stdout();
        writeln!(out, "{}", serde_json::to_string(&prize)?)?;
        out.flush()?;
    }
    Ok(())
}

fn client(server: Option<&str>, token: &str) -> anyhow::Result<Option<Client>> {
    server.map(|server| Ok(Client::new(server, Some(token.to_owned().into()))?)).transpose()
}

struct Racer {
    operator: Option<Client>,
    worker: Option<Client>,
    store: Option<Arc<SqlStore>>,
}

impl Racer {
    async fn compete(&self, contest: Contest) -> anyhow::Result<Prize> {
        let missing = || anyhow::anyhow!("this racer has no server or no database");
        let server = self.worker.as_ref().ok_or_else(missing);
        let store = self.store.as_ref().ok_or_else(missing);
        let at = SystemClock.now();
        Ok(match contest {
            Contest::Create { key, request } => {
                let operator = self.operator.as_ref().ok_or_else(missing)?;
                let created = operator.create_campaign(&request, &key).await?;
                Prize { won: !created.existed, told: created.campaign.to_string() }
            }
            Contest::Claim { worker } => {
                let free = FreeSlots { cpu: 1, devices: vec![FreeDevice { index: 0, exclusive: true, shared: 0 }] };
                let claimed = server?.claim(&worker, &Claim { free, wait_ms: 0 }).await?;
                Prize { won: !claimed.steps.is_empty(), told: serde_json::to_string(&claimed.steps)? }
            }
            Contest::Report { step, worker, outcome } => {
                let report = Report { worker, epoch: step.epoch, result: outcome, free: None };
                let reply = server?.report(&step.step, &report).await?;
                Prize { won: true, told: format!("{:?}", reply.result) }
            }
            Contest::Take { worker, route } => {
                let claim = ClaimRequest {
                    worker,
                    routes: vec![route],
                    cpu_slots: 1,
                    devices: Vec::new(),
                    at,
                    expires_at: at.plus_ms(LEASE_MS),
                };
                let steps = store?.claim(claim).await?;
                Prize { won: !steps.is_empty(), told: format!("{} steps", steps.len()) }
            }
            Contest::Own { server, run } => {
                let ownership = store?.acquire_run(&server, &run, at).await?;
                Prize { won: matches!(ownership, Ownership::Mine(_)), told: format!("{ownership:?}") }
            }
            Contest::Reserve { step, epoch, amount } => {
                let reservation = store?.reserve(&step, epoch, &[amount], at).await?;
                Prize { won: reservation == Reservation::Granted, told: format!("{reservation:?}") }
            }
            Contest::Open { database } => match open(&database, None, None).await {
                Ok(store) => {
                    // Long enough for the other one to find it taken.
                    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
                    store.close().await?;
                    Prize { won: true, told: "opened".to_owned() }
                }
                Err(error) => Prize { won: false, told: format!("{error:#}") },
            },
        })
    }
}
