//! Secrets of tokens, sessions, links and leases.

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use nightshift_engine::clock::Random;

/// Prefix of the secret of a stored token.
const SECRET_PREFIX: &str = "nst_";
/// Characters after the prefix: 32 bytes in base64url.
const SECRET_CHARS: usize = 43;

/// Returns whether a text has the form of a stored token's secret. Other texts are not looked up.
pub(crate) fn is_well_formed(secret: &str) -> bool {
    is_well_formed_secret(secret, SECRET_PREFIX)
}

/// Returns whether a text has the form of a secret with this prefix.
pub(crate) fn is_well_formed_secret(secret: &str, prefix: &str) -> bool {
    secret.strip_prefix(prefix).is_some_and(|rest| {
        rest.len() == SECRET_CHARS && rest.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    })
}

/// Creates a new secret. A UUID has 74 random bits, so four of them are hashed into 256 bits.
pub(crate) fn new_secret(random: &dyn Random) -> String {
    new_secret_of(random, SECRET_PREFIX)
}

/// Creates a new secret with this prefix.
pub(crate) fn new_secret_of(random: &dyn Random, prefix: &str) -> String {
    let mut hasher = blake3::Hasher::new_derive_key("nightshift 2026 secret of an API token");
    for _ in 0..4 {
        hasher.update(&random.uuid().to_be_bytes());
    }
    format!("{prefix}{}", BASE64_URL_SAFE_NO_PAD.encode(hasher.finalize().as_bytes()))
}

/// Creates a new signing secret for a webhook.
pub(crate) fn new_webhook_secret(random: &dyn Random) -> String {
    new_secret_of(random, "nsw_")
}

/// Creates a new lease token for a request.
pub(crate) fn new_request_lease(random: &dyn Random) -> String {
    new_secret_of(random, "nsl_")
}

/// Returns the stored hash of a secret.
pub(crate) fn secret_hash(secret: &str) -> String {
    blake3::hash(secret.as_bytes()).to_hex().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::OsRandom;

    #[test]
    fn secrets_are_well_formed_and_differ() {
        let secrets: std::collections::HashSet<String> = (0..100).map(|_| new_secret(&OsRandom)).collect();
        assert_eq!(secrets.len(), 100);
        assert!(secrets.iter().all(|secret| is_well_formed(secret)));
        for text in ["", "nst_", "nst_short", "guess", &format!("nst_{}", "é".repeat(43))] {
            assert!(!is_well_formed(text), "{text}");
        }
    }
}
