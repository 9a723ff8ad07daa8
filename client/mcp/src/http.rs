//! The tools over HTTP, as part of a server: with the tokens and roles of its API.
//!
//! No session is kept: every request stands alone, so that it does not matter which replica answers it.

use std::sync::Arc;

use async_trait::async_trait;
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue, ORIGIN, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use nightshift_client::Client;
use nightshift_protocol::access::Role;
use nightshift_protocol::error::{ApiError, ApiErrorBody};
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};

use crate::error::ToolError;
use crate::limits::MAX_PROGRAM_BYTES;
use crate::ports::{Caller, Connection, Servers, Tasks};
use crate::service::{Offer, Service};

/// Where the tools are.
pub const PATH: &str = "/mcp";

/// Bytes of a request beside a program.
const AROUND_PROGRAM_BYTES: usize = 256 * 1024;

/// Calls the API of the server that this is part of, with the rights of the caller.
struct OnBehalf {
    client: Client,
}

impl OnBehalf {
    fn client(&self, caller: &Caller) -> Client {
        // Without cookies: a browser would send them for a page of another site, too.
        self.client.on_behalf_of(caller.authorization.clone(), None, caller.host.clone())
    }
}

#[async_trait]
impl Servers for OnBehalf {
    async fn connect(&self, caller: &Caller) -> Result<Connection, ToolError> {
        Ok(Connection { client: self.client(caller), drives: true, release: None })
    }
}

/// Returns the route of the tools. The client is one of the server itself, without a token.
pub fn router(client: Client, tasks: Arc<dyn Tasks>, version: &str) -> Router {
    let offer = Offer {
        servers: Box::new(OnBehalf { client: client.clone() }),
        tasks,
        // Programs are judged by workers, never in the process of a server.
        judge: None,
        read_only: false,
        version: version.to_owned(),
    };
    let service = Service::new(offer);
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        // The server has looked at the name already.
        .disable_allowed_hosts()
        .with_max_request_body_bytes(MAX_PROGRAM_BYTES + AROUND_PROGRAM_BYTES);
    let sessions = Arc::new(NeverSessionManager::default());
    let served = StreamableHttpService::new(move || Ok(service.clone()), sessions, config);
    let known = Arc::new(OnBehalf { client });
    Router::new().route_service(PATH, served).layer(from_fn_with_state(known, admit))
}

/// Admits callers that may read. Each tool checks further rights, and the API checks them again.
async fn admit(State(known): State<Arc<OnBehalf>>, request: Request, next: Next) -> Response {
    let headers = request.headers();
    if !is_from_here(headers) {
        return refused(
            StatusCode::FORBIDDEN,
            &ApiError::new("request.origin_not_allowed", "a page of another site may not call this server"),
        );
    }
    let header = |name| headers.get(name).cloned();
    let caller = Caller { authorization: header(AUTHORIZATION), host: header(HOST) };
    match known.client(&caller).session().await {
        Ok(session) if session.role.is_some_and(|role| role.includes(Role::Viewer)) => next.run(request).await,
        Ok(session) => match session.role {
            Some(role) => refused(
                StatusCode::FORBIDDEN,
                &ApiError::new(
                    "access.role_needed",
                    format!("the tools need a token with the role viewer, and this one has the role {}", role.as_str()),
                ),
            ),
            None => refused(
                StatusCode::UNAUTHORIZED,
                &ApiError::new(
                    "auth.required",
                    "the tools need a token with the role viewer: send the header `authorization: Bearer TOKEN`",
                ),
            ),
        },
        Err(error) => {
            let status = error.status().and_then(|status| StatusCode::from_u16(status).ok());
            refused(status.unwrap_or(StatusCode::SERVICE_UNAVAILABLE), &error.to_api_error())
        }
    }
}

/// Whether a browser, if one sends this, sends it for a page of this server.
fn is_from_here(headers: &HeaderMap) -> bool {
    let Some(origin) = headers.get(ORIGIN) else { return true };
    let origin = origin.to_str().ok().and_then(|origin| origin.parse::<Uri>().ok());
    let named = headers.get(HOST).and_then(|host| host.to_str().ok());
    let authority = origin.as_ref().and_then(Uri::authority).map(axum::http::uri::Authority::as_str);
    named.is_some() && authority == named
}

/// An error in the form of the API's.
fn refused(status: StatusCode, error: &ApiError) -> Response {
    let body = serde_json::to_vec(&ApiErrorBody { error: error.clone() }).unwrap_or_default();
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if status == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_another_site_is_told_from_one_of_this_server() {
        let headers = |origin: Option<&'static str>| {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, HeaderValue::from_static("127.0.0.1:7777"));
            if let Some(origin) = origin {
                headers.insert(ORIGIN, HeaderValue::from_static(origin));
            }
            headers
        };
        assert!(is_from_here(&headers(None)));
        assert!(is_from_here(&headers(Some("http://127.0.0.1:7777"))));
        for origin in ["http://127.0.0.1:7778", "https://example.com", "null", "http://127.0.0.1"] {
            assert!(!is_from_here(&headers(Some(origin))), "{origin}");
        }
    }
}
