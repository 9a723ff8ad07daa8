//! Callers, as their credentials identify them.

use nightshift_protocol::access::Role;
use nightshift_protocol::api::Target;
use nightshift_protocol::time::TimestampMs;

/// The caller, identified by its token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Caller {
    /// The token's name.
    pub(crate) name: String,
    /// Its permissions.
    pub(crate) role: Role,
    /// The only object that the caller may read, for share links. None does not restrict reading.
    pub(crate) limited_to: Option<Target>,
    /// Whether a browser sent the credentials automatically, as a session cookie.
    pub(crate) by_cookie: bool,
    /// Whether the worker runs in this server's process.
    pub(crate) embedded: bool,
    /// Expiry of the credentials.
    pub(crate) ends_at: Option<TimestampMs>,
}

impl Caller {
    /// Creates a caller whose credentials do not expire.
    pub(crate) fn new(name: &str, role: Role) -> Self {
        Self { name: name.to_owned(), role, limited_to: None, by_cookie: false, embedded: false, ends_at: None }
    }
}
