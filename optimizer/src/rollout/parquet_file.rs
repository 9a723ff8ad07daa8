//! Rows as a Parquet file, written column by column.
//!
//! The rows are the same JSON values that the lines of [`super::jsonl`] hold. Text, numbers and flags may be null; a list of
//! messages is a list of structures with `role` and `content`, a group is a structure.

use std::fmt::Write as _;
use std::sync::Arc;

use parquet::basic::Compression;
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use serde_json::Value;

use super::layout::{Column, Kind};

/// A file of these rows.
pub fn write(columns: &[Column], rows: &[Value]) -> Result<Vec<u8>, ParquetError> {
    let schema = Arc::new(parse_message_type(&schema(columns))?);
    let properties = Arc::new(WriterProperties::builder().set_compression(Compression::SNAPPY).build());
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, properties)?;
    if rows.is_empty() {
        return writer.into_inner();
    }
    let mut group = writer.next_row_group()?;
    for column in columns {
        match column.kind {
            Kind::Messages => {
                for part in ["role", "content"] {
                    messages(&mut group, rows, column.name, part)?;
                }
            }
            Kind::Group(parts) => {
                for part in parts {
                    leaf(&mut group, part.kind, rows.iter().map(|row| &row[column.name][part.name]))?;
                }
            }
            kind => leaf(&mut group, kind, rows.iter().map(|row| &row[column.name]))?,
        }
    }
    group.close()?;
    writer.into_inner()
}

/// The columns in the words of the format.
fn schema(columns: &[Column]) -> String {
    let mut text = String::from("message row {\n");
    for column in columns {
        field(&mut text, column);
    }
    text.push('}');
    text
}

fn field(text: &mut String, column: &Column) {
    let name = column.name;
    let kind = match column.kind {
        Kind::Text => "binary",
        Kind::Integer => "int64",
        Kind::Number => "double",
        Kind::Flag => "boolean",
        Kind::Messages => {
            let element = "required binary role (STRING); required binary content (STRING);";
            let list = format!("repeated group list {{ required group element {{ {element} }} }}");
            // Writing to a text does not fail.
            let _ = writeln!(text, "required group {name} (LIST) {{ {list} }}");
            return;
        }
        Kind::Group(parts) => {
            let _ = writeln!(text, "required group {name} {{");
            for part in parts {
                field(text, part);
            }
            text.push_str("}\n");
            return;
        }
    };
    let annotation = if column.kind == Kind::Text { " (STRING)" } else { "" };
    let _ = writeln!(text, "optional {kind} {name}{annotation};");
}

type Group<'a> = SerializedRowGroupWriter<'a, Vec<u8>>;

fn leaf<'v>(group: &mut Group<'_>, kind: Kind, cells: impl Iterator<Item = &'v Value>) -> Result<(), ParquetError> {
    match kind {
        Kind::Text => optional::<ByteArrayType>(group, cells.map(|cell| cell.as_str().map(bytes))),
        Kind::Integer => optional::<Int64Type>(group, cells.map(Value::as_i64)),
        Kind::Number => optional::<DoubleType>(group, cells.map(Value::as_f64)),
        Kind::Flag => optional::<BoolType>(group, cells.map(Value::as_bool)),
        Kind::Messages | Kind::Group(_) => Err(ParquetError::General("a column of columns within a column".to_owned())),
    }
}

fn bytes(text: &str) -> ByteArray {
    ByteArray::from(text.as_bytes().to_vec())
}

fn optional<T: DataType>(group: &mut Group<'_>, cells: impl Iterator<Item = Option<T::T>>) -> Result<(), ParquetError> {
    let mut levels = Vec::new();
    let mut values = Vec::new();
    for cell in cells {
        levels.push(i16::from(cell.is_some()));
        values.extend(cell);
    }
    put::<T>(group, &values, &levels, None)
}

/// One part of the messages of all rows: a row begins where the repetition level is zero.
fn messages(group: &mut Group<'_>, rows: &[Value], name: &str, part: &str) -> Result<(), ParquetError> {
    let (mut definitions, mut repetitions, mut values) = (Vec::new(), Vec::new(), Vec::new());
    for row in rows {
        let list = row[name].as_array().map_or(&[][..], Vec::as_slice);
        if list.is_empty() {
            definitions.push(0);
            repetitions.push(0);
        }
        for (place, message) in list.iter().enumerate() {
            definitions.push(1);
            repetitions.push(i16::from(place > 0));
            values.push(bytes(message[part].as_str().unwrap_or_default()));
        }
    }
    put::<ByteArrayType>(group, &values, &definitions, Some(&repetitions))
}

fn put<T: DataType>(
    group: &mut Group<'_>,
    values: &[T::T],
    definitions: &[i16],
    repetitions: Option<&[i16]>,
) -> Result<(), ParquetError> {
    let missing = || ParquetError::General("the schema has fewer columns than the rows".to_owned());
    let mut column = group.next_column()?.ok_or_else(missing)?;
    column.typed::<T>().write_batch(values, Some(definitions), repetitions)?;
    column.close()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
mod tests {
    use bytes::Bytes;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::{Field, Row};
    use serde_json::json;

    use super::*;

    const COLUMNS: [Column; 4] = [
        Column { name: "prompt", kind: Kind::Messages },
        Column { name: "reward", kind: Kind::Number },
        Column {
            name: "extra",
            kind: Kind::Group(&[
                Column { name: "task", kind: Kind::Text },
                Column { name: "attempt", kind: Kind::Integer },
                Column { name: "right", kind: Kind::Flag },
            ]),
        },
        Column { name: "note", kind: Kind::Text },
    ];

    /// What the format's own reader finds, as JSON.
    fn read(file: Vec<u8>) -> Vec<Value> {
        let reader = SerializedFileReader::new(Bytes::from(file)).unwrap();
        reader.get_row_iter(None).unwrap().map(|row| of_row(&row.unwrap())).collect()
    }

    fn of_row(row: &Row) -> Value {
        row.get_column_iter().map(|(name, field)| (name.clone(), of_field(field))).collect()
    }

    fn of_field(field: &Field) -> Value {
        match field {
            Field::Null => Value::Null,
            Field::Bool(value) => json!(value),
            Field::Long(value) => json!(value),
            Field::Double(value) => json!(value),
            Field::Str(value) => json!(value),
            Field::Group(row) => of_row(row),
            Field::ListInternal(list) => list.elements().iter().map(of_field).collect(),
            other => panic!("a field of another type: {other}"),
        }
    }

    #[test]
    fn the_formats_own_reader_finds_what_was_written() {
        let message = |role: &str, content: &str| json!({ "role": role, "content": content });
        let row = |prompt: Value, reward: Value, note: Value| {
            let extra = json!({ "task": "t\u{e9}\n", "attempt": 3, "right": true });
            json!({ "prompt": prompt, "reward": reward, "extra": extra, "note": note })
        };
        let rows = vec![
            row(json!([message("system", "a"), message("user", "b")]), json!(0.1 + 0.2), json!("x")),
            row(json!([]), Value::Null, Value::Null),
            row(json!([message("user", ""), message("assistant", "c"), message("user", "d")]), json!(-1.0), json!("")),
        ];
        assert_eq!(read(write(&COLUMNS, &rows).unwrap()), rows);
    }

    #[test]
    fn a_file_without_rows_has_its_columns() {
        let file = write(&COLUMNS, &[]).unwrap();
        let reader = SerializedFileReader::new(Bytes::from(file.clone())).unwrap();
        assert_eq!(reader.metadata().file_metadata().schema_descr().num_columns(), 7);
        assert!(read(file).is_empty());
    }
}
