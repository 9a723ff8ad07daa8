//! The limits of answers, waits and inputs.
//!
//! Clients cut what is longer: some at 10,000 tokens, some end a call after a minute.

use std::time::Duration;

/// Most bytes of an answer of the default size.
pub const MAX_ANSWER_BYTES: usize = 8 * 1024;
/// Most bytes of a window of text, as JSON, when the caller asks for that much.
pub const MAX_WINDOW_BYTES: usize = 24 * 1024;
/// Bytes of a window of text, as JSON, by default.
pub(crate) const WINDOW_BYTES: usize = 6 * 1024;
/// Most bytes that an answer has beside its window.
pub(crate) const AROUND_WINDOW_BYTES: usize = 2 * 1024;
/// Most bytes of a resource. The rest is read with the tool and an offset.
pub(crate) const MAX_RESOURCE_BYTES: usize = 256 * 1024;
/// Most bytes of an error.
pub(crate) const MAX_ERROR_BYTES: usize = 2 * 1024;
/// Most bytes, as JSON, of a short text in an answer: a name, a reason.
pub(crate) const MAX_LINE_BYTES: usize = 300;
/// Most entries of a short list in an answer.
pub(crate) const MAX_LINES: usize = 6;
/// Rows of a list by default.
pub(crate) const ROWS: u32 = 10;
/// Most rows of a list.
pub(crate) const MAX_ROWS: u32 = 15;

/// Most bytes of a program.
pub const MAX_PROGRAM_BYTES: usize = 1024 * 1024;
/// Longest time that a call waits, in seconds. The default limit of some clients is 60 s.
pub const MAX_WAIT_S: u32 = 45;
/// The wait of a call by default, in seconds.
pub(crate) const WAIT_S: u32 = 30;
/// Time between two reports of progress.
pub(crate) const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);
/// Longest time until a server has to say which role a token has.
pub(crate) const ROLE_TIMEOUT: Duration = Duration::from_secs(5);

/// Verifications that may wait or be in work at the same time.
pub(crate) const MAX_OPEN_VERIFICATIONS: usize = 16;
/// Ended verifications that stay readable.
pub(crate) const MAX_ENDED_VERIFICATIONS: usize = 64;
/// Longest idempotency key, in characters.
pub(crate) const MAX_KEY_CHARS: usize = 128;
/// Longest time that the end of an open verification may take when the process ends.
pub(crate) const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);
