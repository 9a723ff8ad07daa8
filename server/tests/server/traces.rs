//! Tests of the spans of a run across processes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::State;
use axum::routing::post;
use nightshift_engine::clock::Clock;
use nightshift_protocol::api::TryOutcome;
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::id::RunId;
use nightshift_protocol::run::RunStatus;
use nightshift_protocol::trace::{Span, SpanId, SpanKind, SpanSink, TRACEPARENT_HEADER, TraceId, TraceParent};
use nightshift_server::{SpanExporter, SystemClock};
use reqwest::Method;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::setup::{TestServer, WORKER, Wish, until};
use crate::toy::prepared_output;

/// A collector that stores the received spans by service name.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<(String, Value)>>>);

impl Collector {
    async fn start() -> (Self, String) {
        let collector = Self::default();
        let router = Router::new().route("/v1/traces", post(Self::take)).with_state(collector.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        (collector, endpoint)
    }

    #[expect(clippy::unused_async, reason = "handlers are async")]
    async fn take(State(collector): State<Self>, axum::Json(body): axum::Json<Value>) {
        for resource in body["resourceSpans"].as_array().unwrap() {
            let attributes = resource["resource"]["attributes"].as_array().unwrap();
            let name = attributes.iter().find(|attribute| attribute["key"] == "service.name").unwrap();
            let service = name["value"]["stringValue"].as_str().unwrap();
            for span in resource["scopeSpans"][0]["spans"].as_array().unwrap() {
                collector.0.lock().unwrap().push((service.to_owned(), span.clone()));
            }
        }
    }

    /// Returns the spans of a trace by service and name.
    fn of(&self, trace: &str) -> HashMap<String, Value> {
        let spans = self.0.lock().unwrap();
        let of_trace = spans.iter().filter(|(_, span)| span["traceId"] == trace);
        of_trace
            .map(|(service, span)| (format!("{service}: {}", span["name"].as_str().unwrap()), span.clone()))
            .collect()
    }
}

#[tokio::test]
async fn the_spans_of_a_run_carry_one_trace_also_those_of_a_worker() {
    let (collector, endpoint) = Collector::start().await;
    let wish = Wish { otlp_endpoint: Some(endpoint.clone()), ..Wish::default() };
    let (server, _folder) = TestServer::start(wish).await;
    let (_, run) = server.campaign().await;
    let worker = server.register().await;
    let step = server.claim_one(&worker).await;

    // Like a worker: calls carry the trace context, and it exports spans of its own.
    let place = TraceParent::parse(step.traceparent.as_deref().unwrap()).unwrap();
    assert_eq!(place.trace, TraceId::of_run(&run));
    let hash = ArtifactHash::of(b"a log");
    let put = server.call(Method::PUT, &format!("/artifacts/{hash}"), WORKER).body("a log");
    put.header(TRACEPARENT_HEADER, place.to_string()).send().await.unwrap();
    let ending = CancellationToken::new();
    let (exporter, exporting) =
        SpanExporter::start(&endpoint, "nightshift-worker", "0", worker.as_str(), ending.clone()).unwrap();
    exporter.take(Span {
        trace: place.trace,
        id: SpanId::derived(&["compile"]),
        parent: Some(place.span),
        name: "compile".to_owned(),
        kind: SpanKind::Internal,
        begin: SystemClock.now(),
        end: SystemClock.now(),
        attributes: Vec::new(),
        error: None,
    });
    until("the arrival of the worker's span", || async { (exporter.counts() == (1, 0)).then_some(()) }).await;
    ending.cancel();
    exporting.await.unwrap();
    assert_eq!(exporter.counts(), (1, 0));

    server.report(&worker, &step, TryOutcome::Completed { output: Box::new(prepared_output()) }).await;
    server.until_status(&run, RunStatus::Completed).await;
    let trace = run.as_str().strip_prefix(RunId::PREFIX).unwrap().to_owned();
    let wanted = [
        "nightshift-server: run",
        "nightshift-server: wait for prepare_task",
        "nightshift-server: prepare_task",
        "nightshift-server: PUT /api/v1/artifacts/{hash}",
        "nightshift-worker: compile",
        "nightshift-server: plan",
        "nightshift-server: model call",
    ];
    let spans = until("the arrival of all spans", || async {
        let spans = collector.of(&trace);
        wanted.iter().all(|name| spans.contains_key(*name)).then_some(spans)
    })
    .await;
    let (root, try_span) = (&spans[wanted[0]], &spans[wanted[2]]);
    assert_eq!(root.get("parentSpanId"), None);
    assert_eq!(try_span["parentSpanId"], root["spanId"]);
    assert_eq!(try_span["spanId"], place.span.to_string());
    for name in ["nightshift-server: PUT /api/v1/artifacts/{hash}", "nightshift-worker: compile"] {
        assert_eq!(spans[name]["parentSpanId"], try_span["spanId"], "{name}");
    }
    assert_eq!(spans["nightshift-server: model call"]["parentSpanId"], spans["nightshift-server: plan"]["spanId"]);
    server.stop().await;
}

#[tokio::test]
async fn a_collector_that_is_not_there_stops_nothing() {
    let wish = Wish { otlp_endpoint: Some("http://127.0.0.1:9".to_owned()), ..Wish::default() };
    let (server, _folder) = TestServer::start(wish).await;
    let (_, run) = server.campaign().await;
    let worker = server.register().await;
    let step = server.claim_one(&worker).await;
    server.report(&worker, &step, TryOutcome::Completed { output: Box::new(prepared_output()) }).await;
    server.until_status(&run, RunStatus::Completed).await;
    server.stop().await;
}

#[tokio::test]
async fn an_endpoint_that_is_none_is_refused_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let store = crate::setup::open_store(&folder).await;
    let wish = Wish { otlp_endpoint: Some("collector:4317".to_owned()), ..Wish::default() };
    let Err(error) = TestServer::try_on(store.ports(), &wish).await else { panic!("the server started") };
    assert_eq!(error.code(), "config.server");
}
