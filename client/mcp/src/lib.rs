//! The MCP server of Nightshift: the tools of a coding agent.
//!
//! The same tools are available over stdio (`nightshift mcp`) and over HTTP (`/mcp` of a server). Each tool is one type
//! in `tools/`, with a schema for its arguments and one for its answer. Answers are small: the verdict comes first,
//! long texts come in windows and as resources.
//!
//! This crate starts no process, reads no file and knows no database. The traits of [`ports`] run programs, read task
//! folders and find servers.

mod answer;
mod bound;
mod ellipsis;
mod error;
mod guide;
pub mod http;
pub mod install;

mod limits;
mod lookup;
pub mod ports;
mod program;
mod progress;
mod resource;
mod service;
mod session;
mod shared;
mod stdio;
mod text;
mod tool;
#[expect(clippy::doc_markdown, reason = "models read these texts in the schemas: marks would only cost tokens")]
mod tools;
mod verification;

pub use error::ToolError;
pub use limits::{MAX_ANSWER_BYTES, MAX_PROGRAM_BYTES, MAX_WAIT_S, MAX_WINDOW_BYTES};
pub use service::{Offer, Service};
pub use stdio::{StdioError, serve_stdio};
