//! The visitor of a page, extracted from the request.

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use axum::http::header::{ACCEPT_ENCODING, AUTHORIZATION, COOKIE, HOST, HeaderMap, HeaderName};
use axum::http::request::Parts;
use nightshift_client::Client;

use crate::address::Address;
use crate::assets::Encodings;
use crate::keys;
use crate::theme::Theme;
use crate::who::Who;

/// A visitor: the client with their rights, and their preferences.
#[derive(Debug, Clone)]
pub(crate) struct Visitor {
    /// Client that reads with the visitor's rights.
    pub(crate) client: Client,
    /// Colour theme.
    pub(crate) theme: Theme,
    /// Whether single-key shortcuts are off.
    pub(crate) keys_are_off: bool,
    /// Path and query of the page.
    pub(crate) address: String,
    /// Session and rights.
    pub(crate) who: Who,
    /// Encodings that the browser accepts.
    pub(crate) encodings: Encodings,
}

/// Prefix of the names of session cookies.
const SESSION_COOKIE: &str = "nightshift_session";

impl FromRequestParts<Client> for Visitor {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, client: &Client) -> Result<Self, Infallible> {
        let headers = &parts.headers;
        let cookies = text(headers, &COOKIE);
        let client = client.on_behalf_of(
            headers.get(AUTHORIZATION).cloned(),
            headers.get(COOKIE).cloned(),
            headers.get(HOST).cloned(),
        );
        let has_cookie = cookies.split(';').any(|cookie| cookie.trim_start().starts_with(SESSION_COOKIE));
        let address = parts.uri.path_and_query().map_or_else(|| "/".to_owned(), ToString::to_string);
        let sign_in = sign_in(&address);
        let shows_something = has_cookie || headers.contains_key(AUTHORIZATION);
        let who = if shows_something { Who::of(&client, sign_in).await } else { Who::anonymous(sign_in) };
        Ok(Self {
            client,
            who,
            theme: Theme::from_cookies(cookies),
            keys_are_off: keys::are_off(cookies),
            address,
            encodings: Encodings::accepted(text(headers, &ACCEPT_ENCODING)),
        })
    }
}

impl Visitor {
    /// Returns the address of the sign-in page that leads back to this page.
    pub(crate) fn sign_in(&self) -> String {
        self.who.sign_in().to_owned()
    }
}

/// Returns the address of the sign-in page that leads back to this address.
fn sign_in(address: &str) -> String {
    let next = Some(address).filter(|address| !address.starts_with("/sign-in"));
    Address::parse("/sign-in").with("next", next).href()
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}
