//! JSON: a list of objects, one per line, each with every column.

use serde_json::{Map, Value};

use super::{Cell, Column, Row, TableError, moment};

/// A JSON file that is being written.
pub(crate) struct JsonFile {
    columns: &'static [Column],
    is_begun: bool,
}

impl JsonFile {
    pub(super) fn new(columns: &'static [Column]) -> Self {
        Self { columns, is_begun: false }
    }

    pub(super) fn add(&mut self, rows: &[Row]) -> Result<Vec<u8>, TableError> {
        let mut bytes = Vec::new();
        for row in rows {
            let before: &[u8] = if self.is_begun { b",\n" } else { b"[\n" };
            self.is_begun = true;
            bytes.extend_from_slice(before);
            let cells = self.columns.iter().zip(row).map(|(column, cell)| (column.name.to_owned(), value(cell)));
            serde_json::to_writer(&mut bytes, &cells.collect::<Map<String, Value>>())?;
        }
        Ok(bytes)
    }

    pub(super) fn finish(self) -> Vec<u8> {
        if self.is_begun { b"\n]\n".to_vec() } else { b"[]\n".to_vec() }
    }
}

fn value(cell: &Cell) -> Value {
    match cell {
        Cell::Unknown => Value::Null,
        Cell::Text(text) => Value::from(text.as_str()),
        Cell::Integer(number) => Value::from(*number),
        Cell::Number(number) => Value::from(*number),
        Cell::Flag(flag) => Value::from(*flag),
        Cell::Time(time) => Value::from(moment(*time)),
    }
}
