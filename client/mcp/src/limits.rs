//! The limits of answers, waits and inputs.
//!
//! Clients truncate longer answers, some at 10,000 tokens, and some end a call after a minute.

use std::time::Duration;

/// Default maximum size of an answer, in bytes.
pub const MAX_ANSWER_BYTES: usize = 8 * 1024;
/// Maximum size of a window of text on request, in bytes of JSON.
pub const MAX_WINDOW_BYTES: usize = 24 * 1024;
/// Default size of a window of text, in bytes of JSON.
pub(crate) const WINDOW_BYTES: usize = 6 * 1024;
/// Default size of the text of a turn next to its evidence, in bytes of JSON.
pub(crate) const TURN_TEXT_BYTES: u32 = 3 * 1024;
/// Maximum size of an answer in addition to its window, in bytes.
pub(crate) const AROUND_WINDOW_BYTES: usize = 2 * 1024;
/// Maximum size of a resource, in bytes. The tool reads the rest with an offset.
pub(crate) const MAX_RESOURCE_BYTES: usize = 256 * 1024;
/// Maximum size of an error, in bytes.
pub(crate) const MAX_ERROR_BYTES: usize = 2 * 1024;
/// Maximum size of a short text in an answer (a name, a reason), in bytes of JSON.
pub(crate) const MAX_LINE_BYTES: usize = 300;
/// Maximum number of entries of a short list in an answer.
pub(crate) const MAX_LINES: usize = 6;
/// Default number of rows of a list.
pub(crate) const ROWS: u32 = 10;
/// Maximum number of rows of a list.
pub(crate) const MAX_ROWS: u32 = 15;

/// Maximum size of a program, in bytes.
pub const MAX_PROGRAM_BYTES: usize = 1024 * 1024;
/// Maximum number of files of a task.
pub(crate) const MAX_TASK_FILES: usize = 8;
/// Maximum wait of a call, in seconds. The default timeout of some clients is 60 s.
pub const MAX_WAIT_S: u32 = 45;
/// Default wait of a call, in seconds.
pub(crate) const WAIT_S: u32 = 30;
/// Time between two progress reports.
pub(crate) const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);
/// Timeout for asking a server for the role of a token.
pub(crate) const ROLE_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum number of queued and running verifications.
pub(crate) const MAX_OPEN_VERIFICATIONS: usize = 16;
/// Maximum number of ended verifications that stay readable.
pub(crate) const MAX_ENDED_VERIFICATIONS: usize = 64;
/// Maximum length of an idempotency key, in characters.
pub(crate) const MAX_KEY_CHARS: usize = 128;
/// Maximum time to end open verifications when the process ends.
pub(crate) const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);
