//! Writes the journal of live events, and streams it.

mod follow;
mod streams;
mod survey;

pub(crate) use self::follow::run;
pub(crate) use self::streams::stream;
