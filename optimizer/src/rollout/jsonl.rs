//! Rows as lines of JSON.

use serde_json::Value;

/// One line for each row.
pub fn write(rows: &[Value]) -> Result<Vec<u8>, serde_json::Error> {
    let mut bytes = Vec::new();
    for row in rows {
        serde_json::to_writer(&mut bytes, row)?;
        bytes.push(b'\n');
    }
    Ok(bytes)
}
