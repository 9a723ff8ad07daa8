//! Pages of lists.

/// Maximum number of rows per page of a list. A larger request gets this many.
pub const MAX_PAGE: u32 = 1_000;
