//! Data stored in addition to runs: answered model calls, artifacts, tokens.

use nightshift_protocol::access::TokenView;
use nightshift_protocol::budget::Amount;
use nightshift_protocol::id::RunId;
use nightshift_protocol::time::TimestampMs;
use serde_json::Value;

/// An answered model call. A stored call is never paid for again.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelCallRecord {
    /// The run.
    pub run: RunId,
    /// The step's key.
    pub step_key: String,
    /// Turn within the step, from 1.
    pub turn: u32,
    /// blake3 over model, parameters and rendered prompt.
    pub request_hash: String,
    /// The summary, as JSON.
    pub summary: Value,
    /// Reservations of the call that are released with it.
    pub released: Vec<Amount>,
    /// Amounts that the call used.
    pub used: Vec<Amount>,
    /// Time of the answer.
    pub at: TimestampMs,
}

/// A token with the hash of its secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenRecord {
    /// The view in lists.
    pub view: TokenView,
    /// blake3 of the secret, as hexadecimal digits.
    pub secret_hash: String,
}

/// Upload progress of an artifact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArtifactProgress {
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Bytes that are stored.
    pub stored_bytes: u64,
    /// Whether all bytes are stored and the hash matches.
    pub complete: bool,
}
