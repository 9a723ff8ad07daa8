//! The dashboard: Leptos pages of campaigns, runs and attempts. They are rendered on the server, readable without
//! scripts, and updated live with them.
//!
//! Pages read through the public HTTP API with the rights of their visitor. They change nothing; the browser sends changes
//! to that API. Text from models and programs is shown as text, never as markup. The crate is built twice: with `ssr` for
//! the server, and with `hydrate` for the browser.

#[cfg(all(feature = "ssr", feature = "hydrate"))]
compile_error!("`ssr` and `hydrate` exclude each other: build the pages' program with `cargo xtask front`");

#[cfg(feature = "ssr")]
mod actions;
#[cfg(feature = "ssr")]
mod address;
#[cfg(feature = "ssr")]
mod answer;
#[cfg(feature = "ssr")]
mod assets;
mod browser;
#[cfg(feature = "ssr")]
mod chart;
#[cfg(feature = "ssr")]
mod download;
#[cfg(feature = "ssr")]
mod failure;
#[cfg(feature = "ssr")]
mod form;
#[cfg(feature = "ssr")]
mod format;
mod island;
#[cfg(feature = "ssr")]
mod keys;
#[cfg(feature = "ssr")]
mod markdown;
#[cfg(feature = "ssr")]
mod markup;
#[cfg(feature = "ssr")]
mod meter;
#[cfg(feature = "ssr")]
mod page;
#[cfg(feature = "ssr")]
mod picks;
#[cfg(feature = "ssr")]
mod report;
#[cfg(feature = "ssr")]
mod router;
#[cfg(feature = "ssr")]
mod saved_view;
#[cfg(feature = "ssr")]
mod shell;
#[cfg(feature = "ssr")]
mod source;
#[cfg(feature = "ssr")]
mod style;
#[cfg(feature = "ssr")]
mod table;
#[cfg(feature = "ssr")]
mod team;
mod theme;
#[cfg(feature = "ssr")]
mod trace;
#[cfg(feature = "ssr")]
mod visitor;
#[cfg(feature = "ssr")]
mod who;

#[cfg(feature = "hydrate")]
pub use browser::start;
#[cfg(feature = "ssr")]
pub use router::router;
