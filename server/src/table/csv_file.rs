//! CSV by RFC 4180: quoted where necessary, with a header line, and lines that end in CR and LF.

use csv::{Terminator, WriterBuilder};

use super::{Cell, Column, Row, TableError, moment};

/// Characters that begin a formula in a spreadsheet, including their full-width forms.
const FORMULA: [char; 8] = ['=', '+', '-', '@', '＝', '＋', '－', '＠'];

/// A CSV file that is being written.
pub(crate) struct CsvFile {
    /// The header line, until it is written.
    names: Option<&'static [Column]>,
}

impl CsvFile {
    pub(super) fn new(columns: &'static [Column]) -> Self {
        Self { names: Some(columns) }
    }

    pub(super) fn add(&mut self, rows: &[Row]) -> Result<Vec<u8>, TableError> {
        let mut writer = WriterBuilder::new().terminator(Terminator::CRLF).from_writer(Vec::new());
        if let Some(columns) = self.names.take() {
            writer.write_record(columns.iter().map(|column| column.name))?;
        }
        for row in rows {
            writer.write_record(row.iter().map(text))?;
        }
        Ok(writer.into_inner().map_err(|error| csv::Error::from(error.into_error()))?)
    }

    pub(super) fn finish(mut self) -> Result<Vec<u8>, TableError> {
        self.add(&[])
    }
}

fn text(cell: &Cell) -> String {
    match cell {
        Cell::Unknown => String::new(),
        Cell::Text(text) => harmless(text),
        Cell::Integer(number) => number.to_string(),
        Cell::Number(number) => number.to_string(),
        Cell::Flag(flag) => flag.to_string(),
        Cell::Time(time) => moment(*time),
    }
}

/// Returns the text, with an apostrophe before a formula. Names, models and errors are untrusted.
fn harmless(text: &str) -> String {
    let begins = text.trim_start().starts_with(FORMULA) || text.starts_with(['\t', '\r', '\n']);
    if begins { format!("'{text}") } else { text.to_owned() }
}
