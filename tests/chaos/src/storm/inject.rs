//! Breaks one thing after the other. What takes time goes on beside the next faults; the same thing is not broken twice at once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nightshift_client::Client;
use nightshift_testbed::postgres::{Cluster, PostgresError};
use rustix::process::Signal;
use sqlx::{Connection as _, PgConnection};
use tokio::sync::OwnedMutexGuard;
use tokio::task::JoinSet;

use super::database::Database;
use super::fault::{Effect, Fault, MAX_CLOCK_MS, Message, Plan};
use super::fleet::{Fleet, Seat};
use super::process::Process;
use super::proxy::Proxy;
use crate::node::{Control, TOKEN};

/// How long a message fault waits for its message.
const MAX_WAIT_FOR_MESSAGE: Duration = Duration::from_secs(10);
/// Room that a database has left when it is made too small.
const LITTLE_ROOM_BYTES: u64 = 8 * 4_096;
/// Connections that are taken at most.
const MAX_TAKEN: usize = 200;
/// Clocks at the end: later than any lease or timer that was written under another clock.
const LATEST_CLOCK_MS: i64 = MAX_CLOCK_MS + 10_000;

/// Injects faults.
pub(super) struct Injector {
    fleet: Arc<Fleet>,
    done: Arc<Mutex<BTreeMap<&'static str, u32>>>,
}

type Guards = Vec<OwnedMutexGuard<()>>;

impl Injector {
    pub(super) fn new(fleet: Arc<Fleet>) -> Self {
        Self { fleet, done: Arc::default() }
    }

    /// Faults that were injected, by kind.
    pub(super) fn done(&self) -> BTreeMap<&'static str, u32> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How many.
    pub(super) fn count(&self) -> u32 {
        self.done().values().sum()
    }

    /// Injects so many faults of the plan, and waits until all are over. One that found nothing to break, because no
    /// message came, does not count: another follows.
    pub(super) async fn inject(&self, mut plan: Plan, faults: u32) {
        let mut going_on = JoinSet::new();
        while self.count() < faults {
            let missing = usize::try_from(faults - self.count()).unwrap_or(usize::MAX);
            if going_on.len() >= missing.min(40) {
                going_on.join_next().await;
                continue;
            }
            let (pause_ms, fault) = plan.next();
            tokio::time::sleep(Duration::from_millis(pause_ms)).await;
            let guards = self.guards(&fault).await;
            let (fleet, done) = (self.fleet.clone(), self.done.clone());
            going_on.spawn(async move {
                tracing::info!(fault = ?fault, "a fault");
                match one(&fleet, &fault, guards).await {
                    Ok(true) => {
                        *done.lock().unwrap_or_else(PoisonError::into_inner).entry(fault.kind()).or_default() += 1;
                    }
                    Ok(false) => {}
                    Err(error) => eprintln!("{fault:?} could not be injected: {error:#}"),
                }
            });
            while going_on.try_join_next().is_some() {}
        }
        while going_on.join_next().await.is_some() {}
    }

    /// Waits until what the fault breaks is whole, and keeps it.
    async fn guards(&self, fault: &Fault) -> Guards {
        let seat = match fault {
            Fault::KillServer { server, .. }
            | Fault::StallServer { server, .. }
            | Fault::SkewClock { server, .. }
            | Fault::FullDisk { server, .. }
            | Fault::WriteLimit { server, .. }
            | Fault::FullDatabase { server, .. } => self.fleet.servers.get(*server),
            Fault::KillWorker { worker, .. } | Fault::StallWorker { worker, .. } => self.fleet.workers.get(*worker),
            Fault::EndBackends
            | Fault::CrashBackend
            | Fault::CrashPostgres { .. }
            | Fault::TakeConnections { .. }
            | Fault::LockTables { .. } => return vec![self.fleet.database_busy.clone().lock_owned().await],
            Fault::SetClocks { .. } => {
                let mut guards = Vec::new();
                for server in &self.fleet.servers {
                    guards.push(server.busy.clone().lock_owned().await);
                }
                return guards;
            }
            Fault::ObjectsDown { .. } => return vec![self.fleet.objects_busy.clone().lock_owned().await],
            Fault::Flood { .. } | Fault::Message { .. } | Fault::Objects { .. } => None,
        };
        match seat {
            Some(seat) => vec![seat.busy.clone().lock_owned().await],
            None => Vec::new(),
        }
    }

    /// Everything is whole again; clocks show the latest time that they ever showed, so that nothing lies in the future.
    pub(super) async fn heal(&self) {
        for proxy in self.fleet.proxies.iter().chain([&self.fleet.objects.proxy]) {
            proxy.heal();
        }
        let _database = self.fleet.database_busy.lock().await;
        if let Some(cluster) = self.fleet.database.cluster() {
            // A fault that was interrupted may have left the database stopped.
            let resumed = tokio::task::spawn_blocking(move || {
                if cluster.wait_until_it_answers().is_err() { cluster.restart() } else { Ok(()) }
            });
            if let Ok(Err(error)) = resumed.await {
                eprintln!("Postgres does not come back: {error}");
            }
        }
        for seat in self.fleet.servers.iter().chain(&self.fleet.workers) {
            let _busy = seat.busy.lock().await;
            seat.with(|process| {
                process.limit_files(None);
                process.signal(Signal::CONT);
            });
            let healed = seat.set_clock(LATEST_CLOCK_MS).and_then(|_| seat.tell(Control::default()));
            if let Err(error) = healed {
                eprintln!("{} cannot be healed: {error}", seat.name);
            }
        }
    }
}

/// One fault from its beginning to its end; whether there was something to break.
async fn one(fleet: &Arc<Fleet>, fault: &Fault, guards: Guards) -> anyhow::Result<bool> {
    match fault {
        Fault::KillServer { server, down_ms } => restart(seat(&fleet.servers, *server), *down_ms).await?,
        Fault::KillWorker { worker, down_ms } => restart(seat(&fleet.workers, *worker), *down_ms).await?,
        Fault::StallServer { server, stalled_ms } => stall(seat(&fleet.servers, *server), *stalled_ms).await,
        Fault::StallWorker { worker, stalled_ms } => stall(seat(&fleet.workers, *worker), *stalled_ms).await,
        Fault::SkewClock { server, offset_ms, skewed_ms } => {
            let seat = seat(&fleet.servers, *server);
            let before_ms = seat.set_clock(*offset_ms)?;
            pause(*skewed_ms).await;
            seat.set_clock(before_ms)?;
        }
        Fault::SetClocks { offsets_ms } => {
            for (server, offset_ms) in fleet.servers.iter().zip(offsets_ms) {
                server.set_clock(*offset_ms)?;
            }
        }
        Fault::FullDisk { server, full_ms } => {
            let seat = seat(&fleet.servers, *server);
            seat.tell(Control { full: true })?;
            pause(*full_ms).await;
            seat.tell(Control::default())?;
        }
        Fault::WriteLimit { server, limited_ms } => {
            let (seat, bytes) = (seat(&fleet.servers, *server), fleet.database.largest_file_bytes());
            seat.with(|process| process.limit_files(Some(bytes)));
            pause(*limited_ms).await;
            seat.with(|process| process.limit_files(None));
        }
        Fault::FullDatabase { server, full_ms } => {
            let seat = seat(&fleet.servers, *server);
            seat.with(Process::kill);
            let bytes = fleet.database.largest_file_bytes() + LITTLE_ROOM_BYTES;
            seat.start(&["--max-size-bytes".to_owned(), bytes.to_string()])?;
            pause(*full_ms).await;
            restart(seat, 0).await?;
        }
        Fault::Flood { server, requests } => flood(fleet, *server, *requests).await?,
        Fault::Message { server, of, effect } => {
            let Some(proxy) = fleet.proxies.get(*server) else { return Ok(false) };
            return Ok(break_message(proxy, *of, *effect).await);
        }
        Fault::Objects { effect } => return Ok(break_message(&fleet.objects.proxy, Message::Any, *effect).await),
        Fault::ObjectsDown { down_ms } => {
            fleet.objects.proxy.set_down(true);
            pause(*down_ms).await;
            fleet.objects.proxy.set_down(false);
        }
        Fault::EndBackends
        | Fault::CrashBackend
        | Fault::CrashPostgres { .. }
        | Fault::TakeConnections { .. }
        | Fault::LockTables { .. } => return break_postgres(fleet, fault).await,
    }
    drop(guards);
    Ok(true)
}

fn seat(seats: &[Arc<Seat>], number: usize) -> &Seat {
    &seats[number % seats.len()]
}

/// Breaks the next message of a kind. Returns whether one came.
async fn break_message(proxy: &Proxy, of: Message, effect: Effect) -> bool {
    let came = tokio::time::timeout(MAX_WAIT_FOR_MESSAGE, proxy.arm(of, effect)).await;
    matches!(came, Ok(Ok(())))
}

async fn pause(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

async fn restart(seat: &Seat, down_ms: u64) -> anyhow::Result<()> {
    seat.with(Process::kill);
    pause(down_ms).await;
    seat.start(&[])
}

async fn stall(seat: &Seat, stalled_ms: u64) {
    seat.with(|process| process.signal(Signal::STOP));
    pause(stalled_ms).await;
    seat.with(|process| process.signal(Signal::CONT));
}

async fn flood(fleet: &Fleet, server: usize, requests: u32) -> anyhow::Result<()> {
    let Some(addr) = seat(&fleet.servers, server).direct else { return Ok(()) };
    let client = Client::new(&format!("http://{addr}"), Some(TOKEN.to_owned().into()))?;
    let mut asked = JoinSet::new();
    for _ in 0..requests {
        let client = client.clone();
        // Whether it is answered does not matter: it is asked.
        asked.spawn(async move { client.campaigns(Some(50), None).await.is_ok() });
    }
    let all = async { while asked.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(Duration::from_secs(5), all).await;
    Ok(())
}

async fn break_postgres(fleet: &Fleet, fault: &Fault) -> anyhow::Result<bool> {
    let (Some(cluster), Database::Postgres { database, .. }) = (fleet.database.cluster(), &fleet.database) else {
        return Ok(false);
    };
    match fault {
        Fault::EndBackends => {
            let ended = blocking(cluster, Cluster::kill_backends).await?;
            return Ok(ended > 0);
        }
        Fault::CrashBackend => {
            return blocking(cluster, |cluster| {
                let crashed = cluster.crash_backend()?;
                cluster.wait_until_it_answers()?;
                Ok(crashed)
            })
            .await;
        }
        Fault::CrashPostgres { down_ms } => {
            blocking(cluster.clone(), Cluster::stop_immediate).await?;
            pause(*down_ms).await;
            blocking(cluster, Cluster::resume).await?;
        }
        Fault::TakeConnections { taken_ms } => {
            // Those who have one lose it, and find none again.
            blocking(cluster, Cluster::kill_backends).await?;
            let mut taken = Vec::new();
            while taken.len() < MAX_TAKEN {
                let Ok(connection) = PgConnection::connect(&database.url).await else { break };
                taken.push(connection);
            }
            pause(*taken_ms).await;
        }
        Fault::LockTables { locked_ms } => {
            let mut locker = PgConnection::connect(&database.url).await?;
            let mut transaction = locker.begin().await?;
            sqlx::query("LOCK TABLE run IN ACCESS EXCLUSIVE MODE").execute(&mut *transaction).await?;
            pause(*locked_ms).await;
            transaction.rollback().await?;
        }
        _ => return Ok(false),
    }
    Ok(true)
}

async fn blocking<T: Send + 'static>(
    cluster: Arc<Cluster>,
    act: impl FnOnce(&Cluster) -> Result<T, PostgresError> + Send + 'static,
) -> anyhow::Result<T> {
    Ok(tokio::task::spawn_blocking(move || act(&cluster)).await??)
}
