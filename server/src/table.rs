//! Rows as a file: CSV, JSON or Parquet, written in parts.
//!
//! Column names contain the unit and are stable. A time is RFC 3339 in text and a timestamp in Parquet. An unknown
//! value is empty in CSV and null in JSON and Parquet.

mod csv_file;
mod json_file;
mod parquet_file;

use chrono::{DateTime, SecondsFormat};
use nightshift_protocol::api::TableFormat;
use nightshift_protocol::time::TimestampMs;

use self::csv_file::CsvFile;
use self::json_file::JsonFile;
use self::parquet_file::ParquetFile;

/// Type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    Integer,
    Number,
    Flag,
    Time,
}

/// A column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
}

impl Column {
    pub(crate) const fn text(name: &'static str) -> Self {
        Self { name, kind: Kind::Text }
    }

    pub(crate) const fn integer(name: &'static str) -> Self {
        Self { name, kind: Kind::Integer }
    }

    pub(crate) const fn number(name: &'static str) -> Self {
        Self { name, kind: Kind::Number }
    }

    pub(crate) const fn flag(name: &'static str) -> Self {
        Self { name, kind: Kind::Flag }
    }

    pub(crate) const fn time(name: &'static str) -> Self {
        Self { name, kind: Kind::Time }
    }
}

/// A value of its column's type, or unknown.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Cell {
    Unknown,
    Text(String),
    Integer(i64),
    Number(f64),
    Flag(bool),
    Time(TimestampMs),
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<u64> for Cell {
    fn from(count: u64) -> Self {
        Self::Integer(i64::try_from(count).unwrap_or(i64::MAX))
    }
}

impl From<u32> for Cell {
    fn from(count: u32) -> Self {
        Self::Integer(i64::from(count))
    }
}

impl From<i32> for Cell {
    fn from(number: i32) -> Self {
        Self::Integer(i64::from(number))
    }
}

impl From<f64> for Cell {
    /// NaN is an unknown value.
    fn from(number: f64) -> Self {
        if number.is_finite() { Self::Number(number) } else { Self::Unknown }
    }
}

impl From<bool> for Cell {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

impl From<TimestampMs> for Cell {
    fn from(time: TimestampMs) -> Self {
        Self::Time(time)
    }
}

impl<T: Into<Cell>> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Unknown, Into::into)
    }
}

/// A row: one cell per column.
pub(crate) type Row = Vec<Cell>;

/// Why a table was not written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TableError {
    #[error("the rows cannot be written: {0}")]
    Csv(#[from] csv::Error),
    #[error("the rows cannot be written: {0}")]
    Json(#[from] serde_json::Error),
    #[error("the rows cannot be written: {0}")]
    Parquet(#[from] parquet::errors::ParquetError),
}

/// A file that is being written.
pub(crate) enum TableFile {
    Csv(CsvFile),
    Json(JsonFile),
    Parquet(Box<ParquetFile>),
}

impl TableFile {
    pub(crate) fn new(format: TableFormat, columns: &'static [Column]) -> Result<Self, TableError> {
        Ok(match format {
            TableFormat::Csv => Self::Csv(CsvFile::new(columns)),
            TableFormat::Json => Self::Json(JsonFile::new(columns)),
            TableFormat::Parquet => Self::Parquet(Box::new(ParquetFile::new(columns)?)),
        })
    }

    /// Adds rows. Returns the complete bytes.
    pub(crate) fn add(&mut self, rows: &[Row]) -> Result<Vec<u8>, TableError> {
        match self {
            Self::Csv(file) => file.add(rows),
            Self::Json(file) => file.add(rows),
            Self::Parquet(file) => file.add(rows),
        }
    }

    /// Returns the rest of the file.
    pub(crate) fn finish(self) -> Result<Vec<u8>, TableError> {
        match self {
            Self::Csv(file) => file.finish(),
            Self::Json(file) => Ok(file.finish()),
            Self::Parquet(file) => file.finish(),
        }
    }
}

/// Returns a time as RFC 3339, in UTC with milliseconds; empty if it is out of range.
fn moment(time: TimestampMs) -> String {
    DateTime::from_timestamp_millis(time.0)
        .map_or_else(String::new, |time| time.to_rfc3339_opts(SecondsFormat::Millis, true))
}

#[cfg(test)]
mod tests;
