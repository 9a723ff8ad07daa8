//! Sends due deliveries: signed, with a timeout, and again later after a failure.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use hmac::{Hmac, KeyInit, Mac};
use nightshift_engine::store::{DeliveryEnd, StoreError, WebhookRecord, WebhookStore};
use nightshift_protocol::api::{DELIVERY_HEADER, Delivery, EVENT_HEADER, SIGNATURE_HEADER};
use nightshift_protocol::time::TimestampMs;
use reqwest::header::CONTENT_TYPE;
use sha2::Sha256;

use super::address::{PublicAddresses, is_private};
use crate::shared::Shared;

/// Maximum number of parallel deliveries per webhook.
const MAX_AT_ONCE: u32 = 8;
/// Timeout of one attempt.
const TRY_TIMEOUT: Duration = Duration::from_secs(10);
/// Lease duration of a delivery, in milliseconds: several times the timeout.
const KEPT_FROM_OTHERS_MS: u64 = 60_000;
/// Number of attempts before a delivery is given up.
pub(super) const MAX_TRIES: u32 = 8;
/// Delay after the first attempt, in milliseconds. Each later one is four times as long.
const FIRST_DELAY_MS: u64 = 10_000;
/// Maximum delay, in milliseconds: six hours.
const MAX_DELAY_MS: u64 = 6 * 60 * 60 * 1_000;
/// Maximum length of a stored problem, in characters.
const MAX_PROBLEM_CHARS: usize = 300;

/// Sends deliveries.
pub(super) struct Sender {
    /// A client that never calls a private address, whatever a name resolves to.
    public: reqwest::Client,
    any: reqwest::Client,
}

impl Sender {
    pub(super) fn new() -> Result<Self, reqwest::Error> {
        // A proxy would resolve names by itself, and a redirect could lead anywhere.
        let builder =
            || reqwest::Client::builder().timeout(TRY_TIMEOUT).redirect(reqwest::redirect::Policy::none()).no_proxy();
        Ok(Self { public: builder().dns_resolver(Arc::new(PublicAddresses)).build()?, any: builder().build()? })
    }

    /// Sends the due deliveries of a webhook.
    pub(super) async fn send_due(
        &self,
        shared: &Shared,
        store: &dyn WebhookStore,
        webhook: &WebhookRecord,
    ) -> Result<(), StoreError> {
        let now = shared.clock.now();
        let until = now.plus_ms(KEPT_FROM_OTHERS_MS);
        let due = store.take_deliveries(&webhook.view.id, now, until, MAX_AT_ONCE).await?;
        let tried = join_all(due.iter().map(|delivery| self.attempt(delivery, webhook, now))).await;
        for (delivery, problem) in due.iter().zip(tried) {
            let end = end_of(delivery.tries, problem, shared.clock.now());
            if let DeliveryEnd::GivenUp { problem } = &end {
                tracing::warn!(delivery.id = %delivery.id, webhook.id = %delivery.webhook, problem, "a webhook delivery failed");
            }
            store.end_delivery(&delivery.id, delivery.tries, end).await?;
        }
        Ok(())
    }

    /// Makes one attempt. Returns the problem, if any.
    async fn attempt(&self, delivery: &Delivery, webhook: &WebhookRecord, now: TimestampMs) -> Option<String> {
        self.post(webhook, delivery, now).await.err().map(|problem| problem.chars().take(MAX_PROBLEM_CHARS).collect())
    }

    async fn post(&self, webhook: &WebhookRecord, delivery: &Delivery, now: TimestampMs) -> Result<(), String> {
        let url: reqwest::Url = webhook.view.url.parse().map_err(|error| format!("the address is wrong: {error}"))?;
        let literal = url.host_str().and_then(|host| host.trim_matches(['[', ']']).parse().ok());
        let client = if webhook.view.allow_private {
            &self.any
        } else if literal.is_some_and(is_private) {
            return Err("the address is a private one, which this webhook may not call".to_owned());
        } else {
            &self.public
        };
        let body = serde_json::to_vec(&delivery.message).map_err(|error| error.to_string())?;
        let request = client
            .post(url)
            .header(CONTENT_TYPE, "application/json")
            .header(EVENT_HEADER, delivery.message.event.as_str())
            .header(DELIVERY_HEADER, delivery.id.as_str())
            .header(SIGNATURE_HEADER, signature(&webhook.secret, now, &body))
            .body(body);
        let answer = request.send().await.map_err(|error| innermost(&error.without_url()))?;
        // The body of the answer is not read.
        if answer.status().is_success() { Ok(()) } else { Err(format!("it answered {}", answer.status())) }
    }
}

/// Returns what follows an attempt.
fn end_of(tries: u32, problem: Option<String>, now: TimestampMs) -> DeliveryEnd {
    match problem {
        None => DeliveryEnd::Delivered,
        Some(problem) if tries >= MAX_TRIES => DeliveryEnd::GivenUp { problem },
        Some(problem) => DeliveryEnd::Again { at: now.plus_ms(delay_ms(tries)), problem },
    }
}

fn delay_ms(tries: u32) -> u64 {
    FIRST_DELAY_MS.saturating_mul(4_u64.saturating_pow(tries.saturating_sub(1))).min(MAX_DELAY_MS)
}

/// Returns `t=SECONDS,v1=HEX`. With the secret, a receiver verifies the sender and detects replays.
fn signature(secret: &str, now: TimestampMs, body: &[u8]) -> String {
    let seconds = now.0 / 1_000;
    let mut text = format!("t={seconds},v1=");
    // HMAC takes keys of any length.
    if let Ok(mut mac) = <Hmac<Sha256> as KeyInit>::new_from_slice(secret.as_bytes()) {
        mac.update(format!("{seconds}.").as_bytes());
        mac.update(body);
        for byte in mac.finalize().into_bytes() {
            // Writing to a string does not fail.
            let _ = write!(text, "{byte:02x}");
        }
    }
    text
}

fn innermost(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signature_is_an_hmac_over_moment_and_body() {
        // Computed with another implementation: printf '1700000000.{"a":1}' | openssl dgst -sha256 -hmac 'key of a test'.
        let expected = "t=1700000000,v1=9351ec6f135052d40e8dec1d84f585f76af15ad7db79ab830a1e3ecb117a3494";
        assert_eq!(signature("key of a test", TimestampMs(1_700_000_000_999), b"{\"a\":1}"), expected);
    }

    #[test]
    fn a_delivery_is_tried_again_with_growing_delays_and_given_up_in_the_end() {
        let delays: Vec<u64> = (1..MAX_TRIES).map(delay_ms).collect();
        assert!(delays.windows(2).all(|pair| pair[0] <= pair[1]), "{delays:?}");
        assert_eq!((delays[0], delay_ms(u32::MAX)), (FIRST_DELAY_MS, MAX_DELAY_MS));
        let problem = || Some("no answer".to_owned());
        assert!(
            matches!(end_of(1, problem(), TimestampMs(5)), DeliveryEnd::Again { at, .. } if at == TimestampMs(10_005))
        );
        assert!(matches!(end_of(MAX_TRIES, problem(), TimestampMs(5)), DeliveryEnd::GivenUp { .. }));
        assert_eq!(end_of(MAX_TRIES, None, TimestampMs(5)), DeliveryEnd::Delivered);
    }
}
