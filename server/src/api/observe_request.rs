//! Records answered requests: metrics by route, and a span for each request with a trace context.

use std::sync::Arc;

use axum::extract::{MatchedPath, Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::Response;
use nightshift_protocol::trace::{Span, SpanId, SpanKind, SpanSink, TRACEPARENT_HEADER, TraceParent};

use crate::shared::Shared;
use crate::telemetry::{RequestLabels, Telemetry};

/// Route label of a request without a matching route.
const NO_ROUTE: &str = "-";

/// Counts a request, and creates its span.
pub(crate) async fn observe_request(
    State(shared): State<Arc<Shared>>,
    State(telemetry): State<Arc<Telemetry>>,
    request: Request,
    next: Next,
) -> Response {
    let route = request.extensions().get::<MatchedPath>().map_or(NO_ROUTE, MatchedPath::as_str).to_owned();
    let method = method_name(request.method());
    let place = telemetry.spans.as_ref().and_then(|_| place_of(&request));
    let begin = shared.clock.now();
    let response = next.run(request).await;
    let status = response.status().as_u16();
    telemetry.metrics.answered(&RequestLabels { method, route: route.clone(), status });
    if let (Some(spans), Some(place)) = (&telemetry.spans, place) {
        spans.take(Span {
            trace: place.trace,
            id: SpanId::derived(&[&shared.new_uuid().simple().to_string()]),
            parent: Some(place.span),
            name: format!("{method} {route}"),
            kind: SpanKind::Server,
            begin,
            end: shared.clock.now(),
            attributes: vec![
                ("http.request.method", method.into()),
                ("http.route", route.as_str().into()),
                ("http.response.status_code", u64::from(status).into()),
            ],
            error: (status >= 500).then(|| format!("answered with {status}")),
        });
    }
    response
}

fn place_of(request: &Request) -> Option<TraceParent> {
    TraceParent::parse(request.headers().get(TRACEPARENT_HEADER)?.to_str().ok()?)
}

/// Returns the method as a label with few values.
fn method_name(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        _ => "other",
    }
}
