//! The session of a registered worker: heartbeats, lease expiry, claims, and its end.

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

/// Bounds of the heartbeat interval that a server may set.
const HEARTBEAT_BOUNDS: (Duration, Duration) = (Duration::from_millis(10), Duration::from_mins(1));

/// Time limit of the farewell heartbeat.
const FAREWELL: Duration = Duration::from_secs(2);

/// Why a session ended.
#[derive(Debug, Clone)]
pub(super) enum End {
    /// A stop signal arrived.
    ShutDown,
    /// The worker was drained.
    Drained {
        /// Whether the server requested it, and not a local signal.
        by_server: bool,
    },
    /// The server does not know the worker.
    Forgotten,
    /// The server refuses the worker.
    Refused(ServerApiError),
}

/// The session of one registration.
pub(super) struct WorkerSession<P, W> {
    pub(super) port: Arc<P>,
    pub(super) work: Arc<W>,
    pub(super) worker: WorkerId,
    pub(super) embedded: bool,
    lease: Duration,
    heartbeat: Duration,
    pub(super) held: HeldSteps,
    pub(super) slots: Arc<Slots>,
    /// Health monitor of the GPUs, if there are any.
    pub(super) monitor: Option<Arc<DeviceHealthMonitor>>,
    /// The quarantines that the server knows.
    reported: ReportedQuarantines,
    /// Readings for the next heartbeat.
    pub(super) readings: Readings,
    /// Tasks of steps, until their reports are acknowledged.
    pub(super) steps: TaskTracker,
    /// Tasks of claims.
    pub(super) claims: TaskTracker,
    /// Whether the last claim failed, so that a series of failures is logged once.
    pub(super) claims_fail: AtomicBool,
    /// Set when the worker takes no new steps.
    pub(super) draining: CancellationToken,
    pub(super) draining_by_server: AtomicBool,
    /// Set when the session is over.
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
        // Steps of a claim that is answered at this moment must be killed, too.
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

    /// Sends the farewell heartbeat. If it is lost, the server notices the missing worker later.
    async fn sign_off(&self) {
        let farewell = Heartbeat { leases: Vec::new(), quarantined: None, leaving: true, readings: None };
        let call = self.port.heartbeat(&self.worker, &farewell, FAREWELL);
        if let Ok(Err(error)) = tokio::time::timeout(FAREWELL, call).await {
            tracing::debug!(error = %error, "the farewell heartbeat failed");
        }
    }

    /// Waits for a drain signal, and then until the worker holds no steps or the time limit passes.
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
        // Only a closed tracker can be waited for. It still accepts new tasks.
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

    /// Handles a failed call that is not about one step. Returns whether it may be repeated.
    pub(super) fn may_repeat(&self, error: &ServerApiError) -> bool {
        if error.is_unknown_worker() {
            self.finish(End::Forgotten);
        } else if !error.transient {
            self.finish(End::Refused(error.clone()));
        }
        error.transient && !error.is_unknown_worker()
    }

    /// Sends heartbeats, each for all leases. Also sends them without leases, so that the server knows the worker.
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
            // Retry soon after a failure, to save the leases.
            let pause = if failing { self.heartbeat / 4 } else { self.heartbeat };
            if self.unless_over(tokio::time::sleep(pause)).await.is_none() {
                return;
            }
        }
    }

    /// Kills the work of leases that are no longer surely valid. Independent of calls to the server.
    async fn guard(self: Arc<Self>) {
        let interval = (self.lease / 50).clamp(Duration::from_millis(2), Duration::from_millis(250));
        while self.unless_over(tokio::time::sleep(interval)).await.is_some() {
            for step in self.held.fence(Instant::now()) {
                tracing::warn!(step.id = %step, "no heartbeat came through: the step is given up and its work killed");
            }
        }
    }

    /// Returns the output of the future; `None` when this session is over first.
    pub(super) async fn unless_over<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.over.cancelled() => None,
            output = future => Some(output),
        }
    }

    /// Reads the devices periodically until this session is over.
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
