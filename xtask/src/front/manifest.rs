//! What is known about a bundle that is kept.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::checksum::sha256;
use super::sources::Sources;

/// Window of the compressor, as a power of two: everything fits.
const WINDOW_BITS: u32 = 22;
/// The best that the compressor can do: it happens once, and every visitor gains.
const QUALITY: u32 = 11;
const BUFFER_BYTES: usize = 64 * 1024;

/// The manifest.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Manifest {
    /// The files as browsers get them, uncompressed: another version of the compressor changes nothing here.
    pub(super) files: BTreeMap<String, FileFacts>,
    /// Hash over the sources.
    pub(super) digest: String,
    /// What went in.
    pub(super) sources: Sources,
}

/// A file.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileFacts {
    pub(super) sha256: String,
    pub(super) size_bytes: usize,
}

impl FileFacts {
    pub(super) fn of(content: &[u8]) -> Self {
        Self { sha256: sha256(content), size_bytes: content.len() }
    }
}

impl Manifest {
    pub(super) fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("{} is missing: run `cargo xtask front`", path.display()))?;
        serde_json::from_str(&text).with_context(|| format!("{} is not a manifest", path.display()))
    }

    pub(super) fn to_json(&self) -> Result<String> {
        Ok(format!("{}\n", serde_json::to_string_pretty(self)?))
    }
}

pub(super) fn compress(content: &[u8]) -> Result<Vec<u8>> {
    let mut stored = Vec::new();
    let mut writer = brotli::CompressorWriter::new(&mut stored, BUFFER_BYTES, QUALITY, WINDOW_BITS);
    writer.write_all(content)?;
    writer.flush()?;
    drop(writer);
    Ok(stored)
}

pub(super) fn decompress(stored: &[u8]) -> Result<Vec<u8>> {
    let mut content = Vec::new();
    brotli::BrotliDecompress(&mut &stored[..], &mut content).context("it is not compressed with brotli")?;
    Ok(content)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn what_was_compressed_comes_back() {
        let content = b"abc".repeat(1000);
        let stored = compress(&content).unwrap();
        assert!(stored.len() < 100);
        assert_eq!(decompress(&stored).unwrap(), content);
        assert!(decompress(b"no brotli at all").is_err());
    }
}
