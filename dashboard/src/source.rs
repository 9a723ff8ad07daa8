//! Shows sources: highlighted, compared, with invisible characters shown and markup escaped.

mod cache;
mod diff;
mod diff_view;
mod highlight;
mod listing;
mod text;

pub(crate) use self::cache::highlighted;
pub(crate) use self::diff::Diff;
pub(crate) use self::diff_view::{DiffView, diff_view};
pub(crate) use self::highlight::Language;
pub(crate) use self::listing::{LineNote, listing};
pub(crate) use self::text::Source;
