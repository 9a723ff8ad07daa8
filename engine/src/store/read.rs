//! Page requests for lists.

/// A page of a list, newest first.
#[derive(Debug, Clone, Default)]
pub struct PageRequest {
    /// Maximum number of rows.
    pub limit: u32,
    /// Only rows that follow this one in the list's order: older rows, or later tasks of one campaign.
    pub before: Option<String>,
}
