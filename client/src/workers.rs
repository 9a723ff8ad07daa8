//! Workers: registration, claims, heartbeats, reports.

use std::time::Duration;

use nightshift_protocol::api::{
    Claim, Claimed, Drain, Heartbeat, HeartbeatReply, Page, QuarantineView, RegisterWorker, Report, ReportReply,
    WorkerRegistered, WorkerView,
};
use nightshift_protocol::id::{StepId, WorkerId};
use reqwest::Method;

use crate::error::ClientError;
use crate::transport::{Client, LONG_POLL_GRACE};

/// Timeout of a heartbeat: a later answer would arrive after the lease expired.
const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(10);

impl Client {
    /// Lists workers, most recently seen first. The server limits their number.
    pub async fn workers(&self) -> Result<Vec<WorkerView>, ClientError> {
        let page: Page<WorkerView> = self.get(self.url(&["workers"], &[])).await?;
        Ok(page.items)
    }

    /// Registers a worker process. Returns its id.
    pub async fn register_worker(&self, request: &RegisterWorker) -> Result<WorkerRegistered, ClientError> {
        self.post(self.url(&["workers"], &[]), request).await
    }

    /// Claims steps. If none is ready, the server holds the call for up to `claim.wait_ms`.
    pub async fn claim(&self, worker: &WorkerId, claim: &Claim) -> Result<Claimed, ClientError> {
        let url = self.url(&["workers", worker.as_str(), "claim"], &[]);
        let timeout = Duration::from_millis(claim.wait_ms).saturating_add(LONG_POLL_GRACE);
        self.json(self.request(Method::POST, url).timeout(timeout).json(claim)).await
    }

    /// Extends all leases of a worker.
    pub async fn heartbeat(&self, worker: &WorkerId, heartbeat: &Heartbeat) -> Result<HeartbeatReply, ClientError> {
        self.heartbeat_within(worker, heartbeat, HEARTBEAT_TIMEOUT).await
    }

    /// Like [`Self::heartbeat`], with a timeout.
    pub async fn heartbeat_within(
        &self,
        worker: &WorkerId,
        heartbeat: &Heartbeat,
        within: Duration,
    ) -> Result<HeartbeatReply, ClientError> {
        let url = self.url(&["workers", worker.as_str(), "heartbeat"], &[]);
        self.json(self.request(Method::POST, url).timeout(within.min(HEARTBEAT_TIMEOUT)).json(heartbeat)).await
    }

    /// Asks a worker to take no new steps and to end, or to resume.
    pub async fn drain_worker(&self, worker: &WorkerId, draining: bool) -> Result<(), ClientError> {
        let url = self.url(&["workers", worker.as_str(), "drain"], &[]);
        self.tell(url, &Drain { draining }).await
    }

    /// Lists quarantined devices, newest first.
    pub async fn quarantined_devices(&self) -> Result<Vec<QuarantineView>, ClientError> {
        let page: Page<QuarantineView> = self.get(self.url(&["devices", "quarantined"], &[])).await?;
        Ok(page.items)
    }

    /// Requests that a quarantined device, by the driver's name, is tested and used again.
    pub async fn release_device(&self, device: &str) -> Result<QuarantineView, ClientError> {
        self.json(self.request(Method::POST, self.url(&["devices", device, "release"], &[]))).await
    }

    /// Reports how a try ended. Repeating a report is safe.
    pub async fn report(&self, step: &StepId, report: &Report) -> Result<ReportReply, ClientError> {
        self.post(self.url(&["steps", step.as_str(), "report"], &[]), report).await
    }
}
