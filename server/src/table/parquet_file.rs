//! Parquet: each addition is a row group, so that memory holds only its rows.

use std::fmt::Write as _;
use std::sync::Arc;

use parquet::basic::Compression;
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;

use super::{Cell, Column, Kind, Row, TableError};

/// A Parquet file that is being written.
pub(crate) struct ParquetFile {
    columns: &'static [Column],
    writer: SerializedFileWriter<Vec<u8>>,
}

impl ParquetFile {
    pub(super) fn new(columns: &'static [Column]) -> Result<Self, TableError> {
        let schema = Arc::new(parse_message_type(&schema(columns))?);
        let properties = Arc::new(WriterProperties::builder().set_compression(Compression::SNAPPY).build());
        Ok(Self { columns, writer: SerializedFileWriter::new(Vec::new(), schema, properties)? })
    }

    pub(super) fn add(&mut self, rows: &[Row]) -> Result<Vec<u8>, TableError> {
        if !rows.is_empty() {
            let mut group = self.writer.next_row_group()?;
            for (place, column) in self.columns.iter().enumerate() {
                leaf(&mut group, column.kind, rows.iter().map(|row| row.get(place).unwrap_or(&Cell::Unknown)))?;
            }
            group.close()?;
        }
        // The writer tracks its own position, so returned bytes can be dropped.
        self.writer.flush().map_err(ParquetError::from)?;
        Ok(std::mem::take(self.writer.inner_mut()))
    }

    pub(super) fn finish(self) -> Result<Vec<u8>, TableError> {
        Ok(self.writer.into_inner()?)
    }
}

/// Returns the schema of the columns. Every value is optional.
fn schema(columns: &[Column]) -> String {
    let mut text = String::from("message row {\n");
    for column in columns {
        let (kind, meaning) = match column.kind {
            Kind::Text => ("binary", " (STRING)"),
            Kind::Integer => ("int64", ""),
            Kind::Number => ("double", ""),
            Kind::Flag => ("boolean", ""),
            Kind::Time => ("int64", " (TIMESTAMP(MILLIS,true))"),
        };
        // Writing to a string does not fail.
        let _ = writeln!(text, "optional {kind} {}{meaning};", column.name);
    }
    text.push('}');
    text
}

type Group<'a> = SerializedRowGroupWriter<'a, Vec<u8>>;

fn leaf<'c>(group: &mut Group<'_>, kind: Kind, cells: impl Iterator<Item = &'c Cell>) -> Result<(), ParquetError> {
    match kind {
        Kind::Text => put::<ByteArrayType>(group, cells.map(text)),
        Kind::Integer | Kind::Time => put::<Int64Type>(group, cells.map(integer)),
        Kind::Number => put::<DoubleType>(group, cells.map(number)),
        Kind::Flag => put::<BoolType>(group, cells.map(flag)),
    }
}

fn text(cell: &Cell) -> Option<ByteArray> {
    if let Cell::Text(text) = cell { Some(ByteArray::from(text.as_str())) } else { None }
}

fn integer(cell: &Cell) -> Option<i64> {
    match cell {
        Cell::Integer(number) => Some(*number),
        Cell::Time(time) => Some(time.0),
        _ => None,
    }
}

fn number(cell: &Cell) -> Option<f64> {
    if let Cell::Number(number) = cell { Some(*number) } else { None }
}

fn flag(cell: &Cell) -> Option<bool> {
    if let Cell::Flag(flag) = cell { Some(*flag) } else { None }
}

fn put<T: DataType>(group: &mut Group<'_>, cells: impl Iterator<Item = Option<T::T>>) -> Result<(), ParquetError> {
    let (mut levels, mut values) = (Vec::new(), Vec::new());
    for cell in cells {
        levels.push(i16::from(cell.is_some()));
        values.extend(cell);
    }
    let missing = || ParquetError::General("the schema has fewer columns than the rows".to_owned());
    let mut column = group.next_column()?.ok_or_else(missing)?;
    column.typed::<T>().write_batch(&values, Some(&levels), None)?;
    column.close()
}
