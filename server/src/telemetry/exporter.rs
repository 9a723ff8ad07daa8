//! Sends spans by OTLP/HTTP in JSON.
//!
//! The OpenTelemetry SDK is not used. Spans are created from durable records afterwards, with computed ids, which the
//! SDK's tracer does not support. One request with a JSON body remains, for which the SDK would add protocol buffers
//! and a second HTTP client.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nightshift_protocol::trace::{Span, SpanSink, otlp_request};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::backoff::Backoff;
use crate::error::ServerError;

/// Maximum number of queued spans. Further ones are dropped and counted.
pub const MAX_QUEUED_SPANS: usize = 8_192;
/// Maximum number of spans per request.
const MAX_SPANS_PER_REQUEST: usize = 512;
/// Time to collect spans before a request.
const COLLECT_FOR: Duration = Duration::from_millis(500);
/// Timeout of a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of tries before spans are dropped.
const MAX_TRIES: u32 = 5;
/// Timeout of the last spans when the process ends.
const LAST_WORDS: Duration = Duration::from_secs(3);
/// Path of the traces below an endpoint.
const TRACES_PATH: &str = "/v1/traces";

/// The queue of finished spans. Cheap to clone.
#[derive(Clone)]
pub struct SpanExporter(Arc<Queue>);

struct Queue {
    spans: Mutex<VecDeque<Span>>,
    came: Notify,
    dropped: AtomicU64,
    sent: AtomicU64,
}

/// The task that sends them.
pub(crate) struct SpanExport {
    queue: Arc<Queue>,
    http: reqwest::Client,
    url: String,
    process: Process,
}

/// The process that created the spans.
struct Process {
    service: String,
    version: String,
    instance: String,
}

impl SpanExporter {
    /// Sends the spans of a process to a collector, for example `http://127.0.0.1:4318`, until `shutdown`.
    ///
    /// `service` and `version` name its program, `instance` the process. Also for other processes than the server, for
    /// example a worker.
    pub fn start(
        endpoint: &str,
        service: &str,
        version: &str,
        instance: &str,
        shutdown: CancellationToken,
    ) -> Result<(Self, tokio::task::JoinHandle<()>), ServerError> {
        let (exporter, export) = Self::new(endpoint, service, version, instance)?;
        Ok((exporter, tokio::spawn(export.run(shutdown))))
    }

    pub(crate) fn new(
        endpoint: &str,
        service: &str,
        version: &str,
        instance: &str,
    ) -> Result<(Self, SpanExport), ServerError> {
        let url = traces_url(endpoint)?;
        let http = reqwest::Client::builder()
            .timeout(REQUEST_TIMEOUT)
            .build()
            .map_err(|error| ServerError::Config(format!("spans cannot be exported: {error}")))?;
        let queue = Arc::new(Queue {
            spans: Mutex::default(),
            came: Notify::new(),
            dropped: AtomicU64::new(0),
            sent: AtomicU64::new(0),
        });
        let process =
            Process { service: service.to_owned(), version: version.to_owned(), instance: instance.to_owned() };
        Ok((Self(queue.clone()), SpanExport { queue, http, url, process }))
    }

    /// Returns the number of sent spans, and of spans that were dropped.
    #[must_use]
    pub fn counts(&self) -> (u64, u64) {
        (self.0.sent.load(Ordering::Relaxed), self.0.dropped.load(Ordering::Relaxed))
    }
}

impl std::fmt::Debug for SpanExporter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SpanExporter").field("counts", &self.counts()).finish_non_exhaustive()
    }
}

impl SpanSink for SpanExporter {
    fn take(&self, span: Span) {
        let mut spans = self.0.spans();
        if spans.len() >= MAX_QUEUED_SPANS {
            self.0.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        spans.push_back(span);
        drop(spans);
        self.0.came.notify_one();
    }
}

impl Queue {
    fn spans(&self) -> MutexGuard<'_, VecDeque<Span>> {
        self.spans.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn batch(&self) -> Vec<Span> {
        let mut spans = self.spans();
        let count = spans.len().min(MAX_SPANS_PER_REQUEST);
        spans.drain(..count).collect()
    }
}

impl SpanExport {
    /// Sends until the shutdown, and then the remaining spans.
    pub(crate) async fn run(self, shutdown: CancellationToken) {
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                () = self.queue.came.notified() => {}
            }
            tokio::select! {
                () = shutdown.cancelled() => break,
                () = tokio::time::sleep(COLLECT_FOR) => {}
            }
            tokio::select! {
                biased;
                () = self.send_all() => {}
                () = async {
                    shutdown.cancelled().await;
                    tokio::time::sleep(LAST_WORDS).await;
                } => return,
            }
        }
        if tokio::time::timeout(LAST_WORDS, self.send_all()).await.is_err() {
            tracing::warn!("the last spans were not sent in time and are dropped");
        }
    }

    async fn send_all(&self) {
        loop {
            let batch = self.queue.batch();
            if batch.is_empty() {
                return;
            }
            self.send(&batch).await;
        }
    }

    async fn send(&self, batch: &[Span]) {
        let Process { service, version, instance } = &self.process;
        let body = otlp_request(service, version, instance, batch);
        let count = u64::try_from(batch.len()).unwrap_or(u64::MAX);
        let mut backoff = Backoff::default();
        for attempt in 1..=MAX_TRIES {
            match self.http.post(&self.url).json(&body).send().await {
                Ok(answer) if answer.status().is_success() => {
                    self.queue.sent.fetch_add(count, Ordering::Relaxed);
                    return;
                }
                // The collector has rejected them, so a retry would not help.
                Ok(answer) if answer.status().is_client_error() && answer.status().as_u16() != 429 => {
                    tracing::warn!(
                        http.status = answer.status().as_u16(),
                        spans = count,
                        "the collector refuses spans"
                    );
                    break;
                }
                Ok(answer) => {
                    tracing::debug!(
                        http.status = answer.status().as_u16(),
                        attempt,
                        "the collector does not accept spans"
                    );
                }
                Err(error) => tracing::debug!(error = %error, attempt, "the collector does not answer"),
            }
            if attempt < MAX_TRIES {
                tokio::time::sleep(backoff.failed()).await;
            } else {
                tracing::warn!(spans = count, "the collector did not accept spans; they are dropped");
            }
        }
        self.queue.dropped.fetch_add(count, Ordering::Relaxed);
    }
}

/// Returns the address of the traces. An endpoint may include the path or not.
fn traces_url(endpoint: &str) -> Result<String, ServerError> {
    let endpoint = endpoint.trim().trim_end_matches('/');
    if !(endpoint.starts_with("http://") || endpoint.starts_with("https://")) {
        return Err(ServerError::Config(format!(
            "`{endpoint}` is no endpoint for spans: it begins with http:// or https://, for example \
             http://127.0.0.1:4318 (OTLP over HTTP)"
        )));
    }
    Ok(if endpoint.ends_with(TRACES_PATH) { endpoint.to_owned() } else { format!("{endpoint}{TRACES_PATH}") })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use nightshift_protocol::id::RunId;
    use nightshift_protocol::time::TimestampMs;
    use nightshift_protocol::trace::{SpanId, SpanKind, TraceId};
    use uuid::Uuid;

    use super::*;

    #[test]
    fn an_endpoint_is_named_with_or_without_its_path() {
        for endpoint in ["http://c:4318", "http://c:4318/", "http://c:4318/v1/traces"] {
            assert_eq!(traces_url(endpoint).unwrap(), "http://c:4318/v1/traces");
        }
        for endpoint in ["", "c:4318", "grpc://c:4317"] {
            assert!(traces_url(endpoint).is_err(), "{endpoint}");
        }
    }

    #[test]
    fn spans_beyond_the_queue_are_dropped_and_counted() {
        let (exporter, _export) = SpanExporter::new("http://127.0.0.1:9", "a", "b", "c").unwrap();
        let run = RunId::from_uuid(Uuid::from_u128(1));
        for _ in 0..MAX_QUEUED_SPANS + 3 {
            exporter.take(Span {
                trace: TraceId::of_run(&run),
                id: SpanId::of_run(&run),
                parent: None,
                name: "run".to_owned(),
                kind: SpanKind::Internal,
                begin: TimestampMs(0),
                end: TimestampMs(0),
                attributes: Vec::new(),
                error: None,
            });
        }
        assert_eq!(exporter.counts(), (0, 3));
    }
}
