//! A typed HTTP client over the protocol, for worker, command line and dashboard.
//!
//! It has one method per call of the API under `/api/v1`, and every failure is a [`ClientError`] with a stable code.
//! With several addresses, it uses the next replica when one is unreachable. Apart from that and from resuming
//! transfers of artifacts, it never retries, because the caller knows whether a call may be repeated. It never follows
//! redirects, reads no environment and starts no runtime, so it also compiles to wasm.

mod addresses;
mod artifacts;
mod attempts;
mod campaigns;
mod download;
mod error;
mod exports;
mod handovers;
mod live;
mod operations;
mod requests;
mod runs;
mod scores;
mod session;
mod team;
mod transport;
mod webhooks;
mod workers;

pub use addresses::Addresses;
pub use artifacts::{MAX_WHOLE_UPLOAD_BYTES, Sink};
pub use download::Download;
pub use error::ClientError;
pub use live::{LiveStream, MAX_EVENT_BYTES, MAX_LIVE};
pub use transport::{Client, LONG_POLL_GRACE, MAX_REPLY_BYTES, REQUEST_TIMEOUT};
