//! Random texts that cannot be guessed and never repeat.

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;

use crate::failure::{Failure, Result};

/// Random bytes of a text.
const BYTES: usize = 32;

/// A random text: a token, or a key that only this call of a command uses.
pub(crate) fn random_text() -> Result<String> {
    use rand::TryRng;
    let mut bytes = [0_u8; BYTES];
    rand::rngs::SysRng
        .try_fill_bytes(&mut bytes)
        .map_err(|error| Failure::new("internal.random", format!("the system gives no random numbers: {error}")))?;
    Ok(BASE64_URL_SAFE_NO_PAD.encode(bytes))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn texts_are_long_and_never_the_same() {
        let (one, other) = (random_text().unwrap(), random_text().unwrap());
        assert!(one.len() > BYTES);
        assert_ne!(one, other);
    }
}
