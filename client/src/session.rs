//! Sessions. Only browsers sign in; other clients send a token with each call.

use nightshift_protocol::api::{OpenSession, Page, REQUEST_HEADER, SessionView, SignIn};
use reqwest::header::{HeaderMap, HeaderValue, SET_COOKIE};
use reqwest::{Method, RequestBuilder};

use crate::error::ClientError;
use crate::transport::Client;

/// Headers in which a browser or a reverse proxy states the origin and scheme of a request.
const SAID_BY_BROWSERS: [&str; 3] = ["origin", "sec-fetch-site", "x-forwarded-proto"];

impl Client {
    /// Returns the identity and permissions of this client.
    pub async fn session(&self) -> Result<SessionView, ClientError> {
        self.get(self.url(&["session"], &[])).await
    }

    /// Signs in a browser that sent a form, given its request headers. Returns the cookies to set.
    pub async fn sign_in(&self, token: &str, browser: &HeaderMap) -> Result<Vec<HeaderValue>, ClientError> {
        let wish = SignIn { token: token.to_owned(), valid_for_ms: None };
        self.cookies(self.for_a_browser(Method::POST, browser).json(&wish)).await
    }

    /// Signs the browser out. Returns the cookies that delete its own.
    pub async fn sign_out(&self, browser: &HeaderMap) -> Result<Vec<HeaderValue>, ClientError> {
        self.cookies(self.for_a_browser(Method::DELETE, browser).header(REQUEST_HEADER, "1")).await
    }

    /// Lists browser sessions, the latest first.
    pub async fn open_sessions(&self) -> Result<Vec<OpenSession>, ClientError> {
        let page: Page<OpenSession> = self.get(self.url(&["sessions"], &[])).await?;
        Ok(page.items)
    }

    fn for_a_browser(&self, method: Method, browser: &HeaderMap) -> RequestBuilder {
        let said = SAID_BY_BROWSERS.into_iter().filter_map(|name| Some((name, browser.get(name)?.clone())));
        let request = self.request(method, self.url(&["session"], &[]));
        said.fold(request, |request, (name, value)| request.header(name, value))
    }

    async fn cookies(&self, request: RequestBuilder) -> Result<Vec<HeaderValue>, ClientError> {
        let (_, headers, _) = self.send_with_headers(request).await?;
        Ok(headers.get_all(SET_COOKIE).iter().cloned().collect())
    }
}
