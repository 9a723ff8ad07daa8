//! The HTTP client under the SDK's ingress client: plain HTTP/1.1 with kept connections, as loopback needs no more.

use std::num::NonZeroU32;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use restate_sdk::ingress::RequestExecutor;

/// Sends requests to servers on this machine.
#[derive(Clone)]
pub(crate) struct LoopbackHttp(Client<HttpConnector, Full<Bytes>>);

impl LoopbackHttp {
    /// A client that keeps a connection for each workflow in flight.
    pub(crate) fn new(in_flight: NonZeroU32) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let kept = usize::try_from(in_flight.get()).unwrap_or(usize::MAX);
        Self(Client::builder(TokioExecutor::new()).pool_max_idle_per_host(kept).build(connector))
    }
}

/// Why an exchange failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExchangeError {
    #[error("sending the request: {0}")]
    Send(#[from] hyper_util::client::legacy::Error),
    #[error("reading the answer: {0}")]
    Read(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl RequestExecutor for LoopbackHttp {
    type Error = ExchangeError;

    async fn execute(&self, request: Request<Bytes>) -> Result<Response<Bytes>, ExchangeError> {
        let (parts, body) = self.0.request(request.map(Full::new)).await?.into_parts();
        let body = body.collect().await.map_err(|source| ExchangeError::Read(source.into()))?;
        Ok(Response::from_parts(parts, body.to_bytes()))
    }
}
