//! Leptos pages: campaigns, runs, attempts. Rendered on the server, readable without scripts.
//!
//! Pages read through the same HTTP API as everybody else and change nothing. Whatever a model or a program wrote is
//! shown as text, never as markup.

mod format;
mod page;
mod router;
mod shell;

pub use router::router;
