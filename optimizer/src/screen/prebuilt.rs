//! Machine code in place of a program: files of the build machine, and encoded bytes that the program loads or executes.
//!
//! Encoded bytes are base64, hexadecimal and similar texts, escaped bytes, and long lists of integers. Alone they may be a
//! table, and give a warning.

use nightshift_protocol::verdict::Finding;

use super::literal::Unit;
use super::report::{violation, warning};

/// Encoded bytes from which a source counts as holding data that could be a program: the smallest useful cubin, compressed,
/// is about this large.
pub(super) const SUSPICIOUS_BYTES: usize = 1024;
/// Shortest literal without blanks that counts.
const MIN_LITERAL_CHARS: usize = 40;
/// Fewest distinct characters of such a literal: a ruler of dashes has one.
const MIN_DISTINCT_CHARS: usize = 8;
/// Shortest list of integers that counts.
const MIN_INTEGERS: usize = 64;

/// Sum of the encoded bytes of a source.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct EncodedBytes {
    bytes: usize,
    first_line: Option<u32>,
}

impl EncodedBytes {
    /// Adds a literal that stands at this line.
    pub(super) fn add_literal(&mut self, units: impl Iterator<Item = Unit>, line: u32) {
        let (mut numeric, mut length, mut has_blanks) = (0, 0, false);
        let mut distinct = std::collections::BTreeSet::new();
        for unit in units {
            match unit {
                Unit::Numeric(_) => numeric += 1,
                Unit::Plain('\n') | Unit::Named('\n') | Unit::Continuation => {}
                Unit::Plain(c) | Unit::Named(c) => {
                    has_blanks |= c.is_whitespace();
                    distinct.insert(c);
                    length += 1;
                }
            }
        }
        let is_encoded = length >= MIN_LITERAL_CHARS && !has_blanks && distinct.len() >= MIN_DISTINCT_CHARS;
        self.add(numeric + if is_encoded { length } else { 0 }, line);
    }

    /// Adds a list of this many integers, which were written with this many digits.
    pub(super) fn add_integers(&mut self, count: usize, digits: usize, line: u32) {
        if count >= MIN_INTEGERS {
            self.add(count.max(digits / 2), line);
        }
    }

    /// Adds what another part of the source holds.
    pub(super) fn merge(&mut self, other: Self, line_of: impl Fn(u32) -> u32) {
        if let Some(line) = other.first_line {
            self.add(other.bytes, line_of(line));
        }
    }

    /// Returns the number of bytes and their first line, when they could be a program.
    pub(super) fn suspicious(self) -> Option<(usize, u32)> {
        self.first_line.filter(|_| self.bytes >= SUSPICIOUS_BYTES).map(|line| (self.bytes, line))
    }

    fn add(&mut self, bytes: usize, line: u32) {
        if bytes > 0 {
            self.bytes += bytes;
            self.first_line.get_or_insert(line);
        }
    }
}

/// A name that loads or executes bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Loader {
    pub(super) name: String,
    pub(super) line: u32,
}

/// Judges the encoded bytes of a program, with the first of its names that loads or executes bytes.
pub(super) fn data(loader: Option<&Loader>, encoded: EncodedBytes) -> Option<Finding> {
    let (bytes, line) = encoded.suspicious()?;
    let Some(Loader { name, line: loaded_at }) = loader else {
        let message = format!(
            "{bytes} encoded bytes begin here, which readers cannot check: compute tables where the program starts, or say \
             in a comment what they hold"
        );
        return Some(warning("embedded_data", message, line));
    };
    let message = format!(
        "{bytes} encoded bytes begin here, and `{name}` in line {loaded_at} loads or executes bytes: a program is its own \
         source, so write the kernel as C++, CUDA or Triton in this file"
    );
    Some(violation("prebuilt_code", message, line))
}

/// Refuses a directive that puts the bytes of a file into the program.
pub(super) fn file_in_program(directive: &str, line: u32) -> Finding {
    let message = format!(
        "`{directive}` puts the bytes of a file into the program: write the code itself, as C++, CUDA or inline PTX in this \
         source"
    );
    violation("prebuilt_code", message, line)
}
