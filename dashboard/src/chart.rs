//! Charts as SVG: drawn on the server, readable without scripts, coloured by classes alone.
//!
//! Each chart takes plain numbers and gives a [`Chart`]. For all numbers, drawing ends, coordinates are
//! finite, and the number of marks is bounded. If a mark stands for several values, the caption says so.

mod bars;
mod fast_p;
mod forest;
mod frame;
mod histogram;
mod interval;
mod line;
mod lineage;
mod number;
mod radar;
mod roofline;
mod scale;
mod scatter;
mod timeline;
mod waterfall;

pub(crate) use self::bars::{Bar, bars, shares};
pub(crate) use self::fast_p::{Curve, fast_p};
pub(crate) use self::forest::{ForestRow, forest};
pub(crate) use self::frame::{Axis, Caption};
pub(crate) use self::histogram::{Group, histogram};
pub(crate) use self::interval::{IntervalMark, intervals};
pub(crate) use self::line::{Series, lines};
pub(crate) use self::lineage::{Node, lineage};
pub(crate) use self::number::{Unit, float, float_u64, precise, show, significant, since_beginning};
pub(crate) use self::radar::{Ratings, radar};
pub(crate) use self::roofline::{Operating, Roof, roofline};
pub(crate) use self::scatter::{Dots, scatter};
pub(crate) use self::timeline::{Zoom, timeline};
pub(crate) use self::waterfall::{Task, waterfall};

/// Maximum number of marks of one chart.
const MAX_MARKS: usize = 2_000;
/// Classes of lines, in their order; a chart has no more lines than these.
pub(crate) const SERIES_CLASSES: [&str; 8] =
    ["series-1", "series-2", "series-3", "series-4", "series-5", "series-6", "series-7", "series-8"];
