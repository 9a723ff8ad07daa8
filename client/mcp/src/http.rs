//! The tools over HTTP, as part of a server, with the tokens and roles of its API.
//!
//! There is no session: every request is independent, so any replica can answer it.

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
use nightshift_protocol::error::{ApiError, PROBLEM_CONTENT_TYPE, Problem};
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};

use crate::error::ToolError;
use crate::ports::{Caller, Connection, Servers, Tasks};
use crate::service::{Offer, Service};

/// Path of the tools.
pub const PATH: &str = "/mcp";

/// Maximum size of a request in bytes: an answer of 2 MiB, as JSON.
const MAX_BODY_BYTES: usize = 4 * 1024 * 1024;

/// Calls the API of this server with the permissions of the caller.
struct OnBehalf {
    client: Client,
}

impl OnBehalf {
    fn client(&self, caller: &Caller) -> Client {
        // Without cookies, because a browser would send them for a page of another site, too.
        self.client.on_behalf_of(caller.authorization.clone(), None, caller.host.clone())
    }
}

#[async_trait]
impl Servers for OnBehalf {
    async fn connect(&self, caller: &Caller) -> Result<Connection, ToolError> {
        Ok(Connection { client: self.client(caller), drives: true, release: None })
    }
}

/// Returns the route of the tools. `client` connects to this server without a token.
pub fn router(client: Client, tasks: Arc<dyn Tasks>, version: &str) -> Router {
    let offer = Offer {
        servers: Box::new(OnBehalf { client: client.clone() }),
        tasks,
        // Workers verify programs, never the process of a server.
        judge: None,
        read_only: false,
        run: None,
        version: version.to_owned(),
    };
    let service = Service::new(offer);
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        // The server has checked the host already.
        .disable_allowed_hosts()
        .with_max_request_body_bytes(MAX_BODY_BYTES);
    let sessions = Arc::new(NeverSessionManager::default());
    let served = StreamableHttpService::new(move || Ok(service.clone()), sessions, config);
    let known = Arc::new(OnBehalf { client });
    Router::new().route_service(PATH, served).layer(from_fn_with_state(known, admit))
}

/// Admits callers that may read. Each tool checks further permissions, and the API checks them again.
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

/// Returns whether the request comes from a page of this server, if a browser sent it.
fn is_from_here(headers: &HeaderMap) -> bool {
    let Some(origin) = headers.get(ORIGIN) else { return true };
    let origin = origin.to_str().ok().and_then(|origin| origin.parse::<Uri>().ok());
    let named = headers.get(HOST).and_then(|host| host.to_str().ok());
    let authority = origin.as_ref().and_then(Uri::authority).map(axum::http::uri::Authority::as_str);
    named.is_some() && authority == named
}

/// Returns an error in the form of the API.
fn refused(status: StatusCode, error: &ApiError) -> Response {
    let body = serde_json::to_vec(&Problem::new(status.as_u16(), error.clone())).unwrap_or_default();
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_CONTENT_TYPE));
    if status == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_other_sites_are_distinguished_from_pages_of_this_server() {
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
