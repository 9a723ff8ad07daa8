//! The server's API as the lease loop uses it. It is a trait, so that tests can use a server in memory.

use std::future::Future;
use std::time::Duration;

use nightshift_client::{Client, ClientError};
use nightshift_protocol::api::{
    Claim, Claimed, Heartbeat, HeartbeatReply, LeasedStep, RegisterWorker, Report, ReportReply, WorkerRegistered,
};
use nightshift_protocol::id::WorkerId;

/// Error code of a server that does not know this worker: its data was restored, or the worker was removed.
pub const UNKNOWN_WORKER: &str = "worker.not_found";

/// The error of a call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ServerApiError {
    /// Stable code.
    pub code: String,
    /// Message for people.
    pub message: String,
    /// Whether the same call may succeed later.
    pub transient: bool,
}

impl ServerApiError {
    /// Returns whether the server does not know this worker.
    #[must_use]
    pub fn is_unknown_worker(&self) -> bool {
        self.code == UNKNOWN_WORKER
    }
}

impl From<ClientError> for ServerApiError {
    fn from(error: ClientError) -> Self {
        Self { code: error.code().to_owned(), message: error.to_string(), transient: error.is_transient() }
    }
}

/// The four calls of a worker.
pub trait ServerApi: Send + Sync + 'static {
    /// Registers this worker.
    fn register(
        &self,
        request: &RegisterWorker,
    ) -> impl Future<Output = Result<WorkerRegistered, ServerApiError>> + Send;
    /// Claims steps.
    fn claim(&self, worker: &WorkerId, claim: &Claim) -> impl Future<Output = Result<Claimed, ServerApiError>> + Send;
    /// Extends all leases. Fails with a transient error when there is no answer `within` this time.
    fn heartbeat(
        &self,
        worker: &WorkerId,
        heartbeat: &Heartbeat,
        within: Duration,
    ) -> impl Future<Output = Result<HeartbeatReply, ServerApiError>> + Send;
    /// Reports the outcome of a try. The call is idempotent.
    fn report(
        &self,
        step: &LeasedStep,
        report: &Report,
    ) -> impl Future<Output = Result<ReportReply, ServerApiError>> + Send;
}

impl ServerApi for Client {
    async fn register(&self, request: &RegisterWorker) -> Result<WorkerRegistered, ServerApiError> {
        Ok(self.register_worker(request).await?)
    }

    async fn claim(&self, worker: &WorkerId, claim: &Claim) -> Result<Claimed, ServerApiError> {
        Ok(Client::claim(self, worker, claim).await?)
    }

    async fn heartbeat(
        &self,
        worker: &WorkerId,
        heartbeat: &Heartbeat,
        within: Duration,
    ) -> Result<HeartbeatReply, ServerApiError> {
        Ok(self.heartbeat_within(worker, heartbeat, within).await?)
    }

    async fn report(&self, step: &LeasedStep, report: &Report) -> Result<ReportReply, ServerApiError> {
        let client = self.in_trace(step.traceparent.as_deref());
        Ok(Client::report(&client, &step.step, report).await?)
    }
}
