//! Sessions of browsers, `/session`.

use serde::{Deserialize, Serialize};

use super::team::Target;
use crate::access::Role;
use crate::time::TimestampMs;

/// Header by which a script of our own pages shows that it is one: a form of a foreign page cannot send it.
pub const REQUEST_HEADER: &str = "x-nightshift-request";

/// `POST /session`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SignIn {
    /// A token, or the secret of a link.
    pub token: String,
    /// How long the session lasts, in milliseconds; twelve hours without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid_for_ms: Option<u64>,
}

impl std::fmt::Debug for SignIn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SignIn").field("valid_for_ms", &self.valid_for_ms).finish_non_exhaustive()
    }
}

/// The identity and permissions of a caller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SessionView {
    /// How the caller was authenticated.
    pub by: SignedInBy,
    /// Name of the token or link; none for a caller without either.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Role of the caller; none where reading needs a token and the request has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// All that they may read; everything without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limited_to: Option<Target>,
    /// When the session ends by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<TimestampMs>,
}

/// How a caller was authenticated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum SignedInBy {
    /// Not at all.
    Nothing,
    /// By a token in the request.
    Token,
    /// By the cookie of a session.
    Session,
}

/// A browser that is signed in, as administrators see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OpenSession {
    /// Names the session. It cannot be used to sign in.
    pub id: String,
    /// Name of the token that was shown, or of the link.
    pub name: String,
    /// What it may do.
    pub role: Role,
    /// All that it may read; everything without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limited_to: Option<Target>,
    /// When it began.
    pub created_at: TimestampMs,
    /// When it ends by itself.
    pub expires_at: TimestampMs,
    /// Whether it is the caller's own.
    #[serde(default)]
    pub own: bool,
}
