#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use bytes::Bytes;
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::record::Field;
use serde_json::{Value, json};

use super::*;

const COLUMNS: [Column; 5] = [
    Column::text("name"),
    Column::integer("tokens"),
    Column::number("cost_usd"),
    Column::flag("best"),
    Column::time("created_at"),
];

/// Texts that may confuse a reader, a spreadsheet or a terminal.
const HOSTILE: [&str; 12] = [
    "=HYPERLINK(\"http://a\", \"b\")",
    "+1",
    "-1+2",
    "@SUM(A1)",
    " =1",
    "\t=1",
    "＝1",
    "a,b\r\nc\"d\"",
    "",
    "'quoted'",
    "\u{202e}txt.exe\u{0}",
    "日本語 \u{1f600}",
];

fn rows() -> Vec<Row> {
    let mut rows: Vec<Row> = HOSTILE
        .into_iter()
        .map(|name| vec![name.into(), (-3_i32).into(), 0.1.into(), true.into(), TimestampMs(1_700_000_000_123).into()])
        .collect();
    rows.push(vec![Cell::Unknown; COLUMNS.len()]);
    rows.push(vec!["last".into(), u64::MAX.into(), f64::NAN.into(), false.into(), TimestampMs(i64::MAX).into()]);
    rows
}

/// Returns a file from several additions, one of them empty.
fn file(format: TableFormat, rows: &[Row]) -> Vec<u8> {
    let mut file = TableFile::new(format, &COLUMNS).unwrap();
    let mut bytes = Vec::new();
    for part in rows.chunks(5) {
        bytes.extend(file.add(part).unwrap());
        bytes.extend(file.add(&[]).unwrap());
    }
    bytes.extend(file.finish().unwrap());
    bytes
}

fn read_csv(bytes: &[u8]) -> Vec<Vec<String>> {
    let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(bytes);
    reader.records().map(|record| record.unwrap().iter().map(str::to_owned).collect()).collect()
}

#[test]
fn a_csv_file_is_read_as_it_was_written_and_calculates_nothing() {
    let found = read_csv(&file(TableFormat::Csv, &rows()));
    assert_eq!(found[0], ["name", "tokens", "cost_usd", "best", "created_at"]);
    assert_eq!(found.len(), rows().len() + 1);
    for (line, name) in found[1..].iter().zip(HOSTILE) {
        let calculates = line[0].trim_start().starts_with(['=', '+', '-', '@', '＝']) || line[0].starts_with('\t');
        assert!(!calculates, "{line:?}");
        assert_eq!(line[0].strip_prefix('\'').filter(|_| name != "'quoted'").unwrap_or(&line[0]), name);
        assert_eq!(line[1..], ["-3", "0.1", "true", "2023-11-14T22:13:20.123Z"]);
    }
    assert_eq!(found[13], ["", "", "", "", ""]);
    assert_eq!(found[14], ["last", "9223372036854775807", "", "false", ""]);
}

#[test]
fn a_csv_file_is_that_of_the_standard() {
    let rows = vec![vec!["a \"b\", c".into(), 1_u32.into(), 2.5.into(), true.into(), TimestampMs(0).into()]];
    let text = String::from_utf8(file(TableFormat::Csv, &rows)).unwrap();
    let expected = "name,tokens,cost_usd,best,created_at\r\n\"a \"\"b\"\", c\",1,2.5,true,1970-01-01T00:00:00.000Z\r\n";
    assert_eq!(text, expected);
}

#[test]
fn a_json_file_is_one_list_of_objects() {
    let found: Vec<Value> = serde_json::from_slice(&file(TableFormat::Json, &rows())).unwrap();
    for (object, name) in found.iter().zip(HOSTILE) {
        let time = "2023-11-14T22:13:20.123Z";
        let expected = json!({ "name": name, "tokens": -3, "cost_usd": 0.1, "best": true, "created_at": time });
        assert_eq!(object, &expected);
    }
    assert!(found[12].as_object().unwrap().values().all(Value::is_null));
    assert_eq!(found[13]["cost_usd"], Value::Null);
}

#[test]
fn a_parquet_file_is_found_by_the_formats_own_reader() {
    let reader = SerializedFileReader::new(Bytes::from(file(TableFormat::Parquet, &rows()))).unwrap();
    assert_eq!(reader.metadata().num_row_groups(), 3);
    let found: Vec<Vec<Field>> = reader
        .get_row_iter(None)
        .unwrap()
        .map(|row| row.unwrap().get_column_iter().map(|(_, field)| field.clone()).collect())
        .collect();
    for (row, name) in found.iter().zip(HOSTILE) {
        let time = Field::TimestampMillis(1_700_000_000_123);
        let expected = [Field::Str(name.to_owned()), Field::Long(-3), Field::Double(0.1), Field::Bool(true), time];
        assert_eq!(row.as_slice(), &expected);
    }
    assert!(found[12].iter().all(|field| matches!(field, Field::Null)));
    assert_eq!((&found[13][1], &found[13][2]), (&Field::Long(i64::MAX), &Field::Null));
}

#[test]
fn a_table_without_rows_has_its_columns() {
    assert_eq!(read_csv(&file(TableFormat::Csv, &[])).len(), 1);
    assert_eq!(file(TableFormat::Json, &[]), b"[]\n");
    let reader = SerializedFileReader::new(Bytes::from(file(TableFormat::Parquet, &[]))).unwrap();
    assert_eq!(reader.metadata().file_metadata().schema_descr().num_columns(), COLUMNS.len());
    assert_eq!(reader.metadata().file_metadata().num_rows(), 0);
}
