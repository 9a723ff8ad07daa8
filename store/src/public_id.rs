//! Ids as they are stored.

use std::str::FromStr;

use crate::failure::Failure;

/// Parses a stored id, which can only be wrong in a damaged database.
pub(crate) fn public_id<Id: FromStr>(text: &str, what: &'static str) -> Result<Id, Failure>
where
    Id::Err: std::fmt::Display,
{
    text.parse().map_err(|error: Id::Err| Failure::unreadable(what, &error))
}
