//! Compression of large texts: zstd, then base64, after a prefix with which no JSON text begins.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;

/// Prefix of a compressed text.
const PREFIX: &str = "zstd:";
/// Minimum length for compression, in bytes.
const PACKED_FROM_BYTES: usize = 1024;
/// Compression level: the fastest regular level.
const LEVEL: i32 = 1;
/// Maximum length of an unpacked text, in bytes.
const MAX_UNPACKED_BYTES: usize = 256 * 1024 * 1024;

/// A text that cannot be compressed, or is damaged.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PackError {
    /// The text after the prefix is not base64.
    #[error("a compressed text is damaged: {0}")]
    Encoding(#[from] base64::DecodeError),
    /// The compressed bytes are damaged, or too long.
    #[error("a text cannot be compressed or unpacked: {0}")]
    Compression(#[from] std::io::Error),
    /// The unpacked bytes are not UTF-8.
    #[error("a compressed text is not UTF-8: {0}")]
    Text(#[from] std::string::FromUtf8Error),
}

/// Compresses a large text. A short one is returned unchanged.
pub(crate) fn pack(text: String) -> Result<String, PackError> {
    if text.len() < PACKED_FROM_BYTES {
        return Ok(text);
    }
    let compressed = zstd::bulk::compress(text.as_bytes(), LEVEL)?;
    let mut packed = String::with_capacity(PREFIX.len() + compressed.len() * 4 / 3 + 4);
    packed.push_str(PREFIX);
    STANDARD_NO_PAD.encode_string(compressed, &mut packed);
    Ok(packed)
}

/// Returns the original of a stored text.
pub(crate) fn unpack(text: &str) -> Result<Cow<'_, str>, PackError> {
    let Some(encoded) = text.strip_prefix(PREFIX) else { return Ok(Cow::Borrowed(text)) };
    let bytes = zstd::bulk::decompress(&STANDARD_NO_PAD.decode(encoded)?, MAX_UNPACKED_BYTES)?;
    Ok(Cow::Owned(String::from_utf8(bytes)?))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
mod tests {
    use super::*;

    #[test]
    fn a_large_text_is_stored_short_and_read_as_it_was() {
        let text = "{\"source\": \"__global__ void k() {}\"}".repeat(1_000);
        let packed = pack(text.clone()).unwrap();
        assert!(packed.len() < text.len() / 10);
        assert_eq!(unpack(&packed).unwrap(), text);
    }

    #[test]
    fn a_short_text_stays_readable() {
        assert_eq!(pack("{}".to_owned()).unwrap(), "{}");
        assert_eq!(unpack("{}").unwrap(), "{}");
    }

    #[test]
    fn damage_is_an_error() {
        assert!(unpack("zstd:?").is_err());
        assert!(unpack("zstd:AAAA").is_err());
        let packed = pack("x".repeat(5_000)).unwrap();
        assert!(unpack(&packed[..packed.len() - 8]).is_err());
    }
}
