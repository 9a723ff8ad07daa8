//! What is kept beside runs: answered model calls, artifacts, tokens.

use nightshift_protocol::access::TokenView;
use nightshift_protocol::budget::Amount;
use nightshift_protocol::id::RunId;
use nightshift_protocol::time::TimestampMs;
use serde_json::Value;

/// An answered model call. Once it is stored, the same call is never paid for again.
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
    /// What had been set aside for it and is now free again.
    pub released: Vec<Amount>,
    /// What it used up.
    pub used: Vec<Amount>,
    /// When it was answered.
    pub at: TimestampMs,
}

/// A token, when its secret is right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenRecord {
    /// As in a list.
    pub view: TokenView,
    /// blake3 of the secret, as hexadecimal digits.
    pub secret_hash: String,
}

/// A part of an artifact's way into the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArtifactProgress {
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Bytes that are there.
    pub stored_bytes: u64,
    /// Whether all are there and their hash is right.
    pub complete: bool,
}
