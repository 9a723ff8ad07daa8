//! The caller's name in the log of a run.

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;

/// The name of the request's token. Access control adds it to the request's extensions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Actor(pub(crate) String);

impl Actor {
    /// Name of the configured operator's token.
    const OPERATOR: &'static str = "operator";

    pub(crate) fn name(&self) -> &str {
        &self.0
    }
}

impl Default for Actor {
    fn default() -> Self {
        Self(Self::OPERATOR.to_owned())
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Actor {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(parts.extensions.get::<Self>().cloned().unwrap_or_default())
    }
}
