//! Who asks, as the log of a run names them.

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;

/// The name of the token that a request carries; access control puts it into the request's extensions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Actor(pub(crate) String);

impl Actor {
    /// Who shows the token that the server was started with.
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
