//! One registration and all that is done under it: heartbeats, the guard of its leases, claims, and its end.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use nightshift_protocol::api::{Heartbeat, RegisterWorker, WorkerRegistered};
use nightshift_protocol::id::WorkerId;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::device::ReportedQuarantines;
use super::held::{HeldSteps, StopCause};
use super::readings::{LOOK_INTERVAL, Readings, temperatures};
use super::slots::Slots;
use super::{KILL_GRACE, Stop, Work};
use crate::gpu::DeviceHealthMonitor;
use crate::server_api::{ServerApi, ServerApiError};

/// Bounds on what a server may ask for.
const HEARTBEAT_BOUNDS: (Duration, Duration) = (Duration::from_millis(10), Duration::from_mins(1));

/// How long the last word of a worker may take.
const FAREWELL: Duration = Duration::from_secs(2);

/// Why a session ended.
#[derive(Debug, Clone)]
pub(super) enum End {
    /// It was asked to.
    ShutDown,
    /// It was asked to take nothing more.
    Drained {
        /// Whether the server asked, and not the one who started the worker.
        by_server: bool,
    },
    /// The server does not know the worker.
    Forgotten,
    /// The server refuses the worker.
    Refused(ServerApiError),
}

/// One registration and all that is done under it.
pub(super) struct WorkerSession<P, W> {
    pub(super) port: Arc<P>,
    pub(super) work: Arc<W>,
    pub(super) worker: WorkerId,
    pub(super) embedded: bool,
    lease: Duration,
    heartbeat: Duration,
    pub(super) held: HeldSteps,
    pub(super) slots: Arc<Slots>,
    /// The GPUs, when there are some.
    pub(super) monitor: Option<Arc<DeviceHealthMonitor>>,
    /// What this session told the server of them.
    reported: ReportedQuarantines,
    /// What it has to tell of how they are.
    pub(super) readings: Readings,
    /// Steps, until their reports are acknowledged.
    pub(super) steps: TaskTracker,
    /// Claims on their way.
    pub(super) claims: TaskTracker,
    /// Whether the last claim failed: told once for all of them.
    pub(super) claims_fail: AtomicBool,
    /// Nothing more is taken.
    pub(super) draining: CancellationToken,
    pub(super) draining_by_server: AtomicBool,
    /// Nothing more is done.
    pub(super) over: CancellationToken,
    end: OnceLock<End>,
}

impl<P: ServerApi, W: Work> WorkerSession<P, W> {
    pub(super) fn new(
        port: Arc<P>,
        work: Arc<W>,
        introduction: &RegisterWorker,
        registered: WorkerRegistered,
        monitor: Option<Arc<DeviceHealthMonitor>>,
    ) -> Self {
        let lease = Duration::from_millis(registered.lease_ms.max(1));
        let heartbeat = Duration::from_millis(registered.heartbeat_ms).clamp(HEARTBEAT_BOUNDS.0, HEARTBEAT_BOUNDS.1);
        Self {
            port,
            work,
            worker: registered.worker,
            embedded: introduction.embedded,
            lease,
            heartbeat: heartbeat.min(lease / 3),
            held: HeldSteps::new(lease),
            slots: Slots::new(&introduction.offers),
            monitor,
            reported: ReportedQuarantines::new(&introduction.offers),
            readings: Readings::new(&introduction.offers),
            steps: TaskTracker::new(),
            claims: TaskTracker::new(),
            claims_fail: AtomicBool::new(false),
            draining: CancellationToken::new(),
            draining_by_server: AtomicBool::new(false),
            over: CancellationToken::new(),
            end: OnceLock::new(),
        }
    }

    pub(super) async fn run(self: Arc<Self>, stop: &Stop, drain_timeout: Duration) -> End {
        let loops = TaskTracker::new();
        loops.spawn(Arc::clone(&self).send_heartbeats());
        loops.spawn(Arc::clone(&self).guard());
        loops.spawn(Arc::clone(&self).claim());
        loops.spawn(Arc::clone(&self).mind_devices());
        loops.spawn(Arc::clone(&self).look_at_devices());
        loops.close();
        tokio::select! {
            () = stop.shutdown.cancelled() => self.finish(End::ShutDown),
            () = self.over.cancelled() => {}
            () = self.drained(stop, drain_timeout) => {
                self.finish(End::Drained { by_server: self.draining_by_server.load(Ordering::Relaxed) });
            }
        }
        let end = self.end.get().cloned().unwrap_or(End::ShutDown);
        let is_asked = matches!(end, End::ShutDown | End::Drained { .. });
        let cause = if is_asked { StopCause::ShuttingDown } else { StopCause::Lost };
        // A claim that is answered in this moment must not slip past the killing.
        self.claims.close();
        let loops_end = async {
            loops.wait().await;
            self.claims.wait().await;
        };
        if tokio::time::timeout(KILL_GRACE, loops_end).await.is_err() {
            tracing::error!("a loop of the worker does not end");
        }
        self.held.stop_all(cause);
        self.steps.close();
        if tokio::time::timeout(KILL_GRACE * 2, self.steps.wait()).await.is_err() {
            tracing::error!(steps = self.steps.len(), "steps did not end after they were killed");
        }
        if is_asked && !self.embedded {
            self.sign_off().await;
        }
        end
    }

    /// Says that nothing more is to be expected of this worker. Unheard, it is missed after a while.
    async fn sign_off(&self) {
        let farewell = Heartbeat { leases: Vec::new(), quarantined: None, leaving: true, readings: None };
        let call = self.port.heartbeat(&self.worker, &farewell, FAREWELL);
        if let Ok(Err(error)) = tokio::time::timeout(FAREWELL, call).await {
            tracing::debug!(error = %error, "the farewell heartbeat failed");
        }
    }

    /// Waits until the worker is asked to drain and then until it holds nothing, or until it has taken too long.
    async fn drained(&self, stop: &Stop, drain_timeout: Duration) {
        tokio::select! {
            () = stop.drain.cancelled() => self.draining.cancel(),
            () = self.draining.cancelled() => {}
        }
        tracing::info!(
            steps = self.steps.len(),
            timeout_ms = drain_timeout.as_millis(),
            "the worker drains: it claims nothing more and finishes what it holds"
        );
        // Only closed trackers can be waited for; a closed one takes what still comes all the same.
        self.steps.close();
        if tokio::time::timeout(drain_timeout, self.steps.wait()).await.is_err() {
            tracing::warn!(steps = self.steps.len(), "the time to drain is over: what still runs is killed");
        }
    }

    /// Ends this session; the first reason counts.
    pub(super) fn finish(&self, end: End) {
        let _ = self.end.set(end);
        self.over.cancel();
    }

    /// What follows a failed call that is not about one step: whether it may be repeated.
    pub(super) fn may_repeat(&self, error: &ServerApiError) -> bool {
        if error.is_unknown_worker() {
            self.finish(End::Forgotten);
        } else if !error.transient {
            self.finish(End::Refused(error.clone()));
        }
        error.transient && !error.is_unknown_worker()
    }

    /// Sends heartbeats: one for all leases. Goes on without leases, so that the server knows who is there.
    async fn send_heartbeats(self: Arc<Self>) {
        let mut failing = false;
        loop {
            let named = self.held.to_renew();
            let sent_at = Instant::now();
            let quarantined = self.reported.to_report(self.monitor.as_deref());
            let readings = self.readings.take();
            let heartbeat = Heartbeat { leases: named.clone(), quarantined, leaving: false, readings };
            let call = self.port.heartbeat(&self.worker, &heartbeat, self.lease / 2);
            let Some(answer) = self.unless_over(call).await else { return };
            match answer {
                Ok(reply) => {
                    self.held.renewed(&named, sent_at, &reply);
                    self.reported.acknowledge(heartbeat.quarantined);
                    self.release(reply.released);
                    if failing {
                        tracing::info!("heartbeats come through again");
                    }
                    failing = false;
                }
                Err(error) => {
                    if !self.may_repeat(&error) {
                        return;
                    }
                    if !failing {
                        tracing::warn!(error = %error, "a heartbeat failed; it is sent again until one comes through");
                    }
                    failing = true;
                }
            }
            // Soon after a failure: there is a lease to save.
            let pause = if failing { self.heartbeat / 4 } else { self.heartbeat };
            if self.unless_over(tokio::time::sleep(pause)).await.is_none() {
                return;
            }
        }
    }

    /// Watches the clock, apart from every call: kills the work of leases that are no longer surely valid.
    async fn guard(self: Arc<Self>) {
        let interval = (self.lease / 50).clamp(Duration::from_millis(2), Duration::from_millis(250));
        while self.unless_over(tokio::time::sleep(interval)).await.is_some() {
            for step in self.held.fence(Instant::now()) {
                tracing::warn!(step.id = %step, "no heartbeat came through: the step is given up and its work killed");
            }
        }
    }

    /// The future's output, or none when this session is over first.
    pub(super) async fn unless_over<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.over.cancelled() => None,
            output = future => Some(output),
        }
    }

    /// Looks at the devices now and then, until this session is over.
    pub(super) async fn look_at_devices(self: Arc<Self>) {
        loop {
            let (monitor, processors) = (self.monitor.clone(), self.readings.processors.clone());
            let looking = tokio::task::spawn_blocking(move || temperatures(monitor.as_deref(), &processors));
            let Some(temperatures) = self.unless_over(looking).await else { return };
            self.readings.put(&self.slots, &temperatures.unwrap_or_default());
            if self.unless_over(tokio::time::sleep(LOOK_INTERVAL)).await.is_none() {
                return;
            }
        }
    }
}
