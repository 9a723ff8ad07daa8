//! Sources as people read them: highlighted, compared, with everything in them visible and nothing in them alive.

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
