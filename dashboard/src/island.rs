//! Islands: interactive parts of pages. The server renders them, and the browser program hydrates them.
#![expect(clippy::needless_pass_by_value, reason = "what an island is given was read out of the page for it alone")]
#![expect(unreachable_pub, reason = "each island exports a function to the script, and nothing else in Rust")]

mod link_state;
mod point_cloud;
mod theme_switch;

#[cfg(feature = "ssr")]
pub(crate) use link_state::LinkState;
#[cfg(feature = "ssr")]
pub(crate) use point_cloud::PointCloud;
#[cfg(feature = "ssr")]
pub(crate) use theme_switch::ThemeSwitch;
