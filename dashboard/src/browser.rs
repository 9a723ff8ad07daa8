//! The browser program of the pages. The server compiles a part of it, because the event handlers of islands name it.

pub(crate) mod cloud;
#[cfg(feature = "hydrate")]
mod copy;
#[cfg(feature = "hydrate")]
mod fetch;
#[cfg(feature = "hydrate")]
mod form;
#[cfg(feature = "hydrate")]
mod keyboard;
pub(crate) mod link;
#[cfg(feature = "hydrate")]
mod live;
#[cfg(feature = "hydrate")]
mod morph;
pub(crate) mod page;
#[cfg(feature = "hydrate")]
mod picks;
#[cfg(any(feature = "hydrate", test))]
mod query;
#[cfg(feature = "hydrate")]
mod start;
#[cfg(feature = "hydrate")]
mod times;

#[cfg(feature = "hydrate")]
pub use start::start;
