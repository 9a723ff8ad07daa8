//! A typed HTTP client over the protocol, for worker, command line and dashboard.
//!
//! One method for each call of the API under `/api/v1`; every failure is a [`ClientError`] with a stable code. It never
//! retries by itself (the caller knows whether a call may be repeated), never follows redirects, reads no environment
//! and starts no runtime, so that it also compiles to wasm.

mod artifacts;
mod campaigns;
mod error;
mod runs;
mod transport;
mod workers;

pub use error::ClientError;
pub use transport::{Client, LONG_POLL_GRACE, MAX_REPLY_BYTES, REQUEST_TIMEOUT};
