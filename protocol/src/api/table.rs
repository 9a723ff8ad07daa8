//! Lists as whole tables in a file: which there are, and in which formats.

/// Format of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TableFormat {
    /// Comma-separated values, RFC 4180.
    #[default]
    Csv,
    /// One list of objects.
    Json,
    /// Apache Parquet.
    Parquet,
}

impl TableFormat {
    /// Every format.
    pub const ALL: [Self; 3] = [Self::Csv, Self::Json, Self::Parquet];

    /// The name in a query, and the ending of a file.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::Json => "json",
            Self::Parquet => "parquet",
        }
    }

    /// The format of that name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.as_str() == text)
    }

    /// What an answer in this format is called.
    #[must_use]
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Csv => "text/csv; charset=utf-8; header=present",
            Self::Json => "application/json",
            Self::Parquet => "application/vnd.apache.parquet",
        }
    }
}

/// A list that can be had as a table: `GET /tables/NAME`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableName {
    /// Campaigns.
    Campaigns,
    /// Runs.
    Runs,
    /// Attempts over all runs.
    Attempts,
    /// Tasks by device, with their best attempts.
    Tasks,
    /// Models by strategy.
    Models,
    /// Workers.
    Workers,
    /// The steps of a run.
    Steps,
    /// The log of a run.
    Events,
}

impl TableName {
    /// Every table.
    pub const ALL: [Self; 8] = [
        Self::Campaigns,
        Self::Runs,
        Self::Attempts,
        Self::Tasks,
        Self::Models,
        Self::Workers,
        Self::Steps,
        Self::Events,
    ];

    /// The name in an address.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Campaigns => "campaigns",
            Self::Runs => "runs",
            Self::Attempts => "attempts",
            Self::Tasks => "tasks",
            Self::Models => "models",
            Self::Workers => "workers",
            Self::Steps => "steps",
            Self::Events => "events",
        }
    }
}
