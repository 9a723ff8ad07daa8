//! The table that ncu prints with `--csv --page raw`: one row for each launch, one column for each counter, a row of units
//! above them, and before all of it whatever the tool and the program had to say.

use std::collections::HashMap;

/// Prefix of the header line.
const HEADER: &str = "\"ID\",";

/// Columns that say which launch it is; the counters come after them.
const KERNEL: &str = "Kernel Name";
const BLOCK: &str = "Block Size";
const GRID: &str = "Grid Size";

/// Maximum number of rows and columns that are read.
const MAX_LAUNCHES: usize = 256;
const MAX_COLUMNS: usize = 8192;

/// Maximum length of a field, in bytes.
const MAX_TEXT_BYTES: usize = 512;

/// A kernel launch.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Launch {
    /// With its parameters.
    pub(super) kernel: String,
    pub(super) grid: String,
    pub(super) block: String,
    /// Counters by name, in base units: nanoseconds, bytes, hertz, percent.
    pub(super) values: HashMap<String, f64>,
}

/// Reads the table. What is no number is left out; what is no table gives nothing.
pub(super) fn parse(text: &str) -> Vec<Launch> {
    let Some(begin) = header_begin(text) else { return Vec::new() };
    let mut records = Records { rest: text.get(begin..).unwrap_or_default() };
    let Some(header) = records.next() else { return Vec::new() };
    let column = |name: &str| header.iter().position(|field| field == name);
    let Some(kernel) = column(KERNEL) else { return Vec::new() };
    let (grid, block) = (column(GRID), column(BLOCK));
    let mut units: Vec<String> = Vec::new();
    let mut launches = Vec::new();
    for record in records.take(MAX_LAUNCHES + 1) {
        // Only the row of units names no launch.
        if record.first().is_some_and(String::is_empty) {
            units = record;
            continue;
        }
        // A row that was cut off, or a line of the tool behind the table.
        if record.len() != header.len() {
            continue;
        }
        let text = |index: Option<usize>| {
            index.and_then(|index| record.get(index)).map(|field| shortened(field)).unwrap_or_default()
        };
        let values = header
            .iter()
            .zip(&record)
            .enumerate()
            .filter(|(index, (name, _))| name.contains("__") && *index > kernel)
            .filter_map(|(index, (name, field))| {
                let unit = units.get(index).map(String::as_str).unwrap_or_default();
                Some((name.clone(), number(field)? * factor(unit)?))
            })
            .filter(|(_, value)| value.is_finite())
            .collect();
        launches.push(Launch { kernel: text(Some(kernel)), grid: text(grid), block: text(block), values });
    }
    launches
}

/// Where the line of the header begins. The program may have printed right before it, but not within it.
fn header_begin(text: &str) -> Option<usize> {
    if text.starts_with(HEADER) {
        return Some(0);
    }
    text.find(&format!("\n{HEADER}")).map(|newline| newline + 1)
}

fn shortened(field: &str) -> String {
    let mut end = field.len().min(MAX_TEXT_BYTES);
    while !field.is_char_boundary(end) {
        end -= 1;
    }
    field.get(..end).unwrap_or_default().to_owned()
}

/// `1,234.5` is a number; `nan`, `no data` and an empty field are none.
fn number(field: &str) -> Option<f64> {
    let plain: String = field.trim().chars().filter(|c| *c != ',').collect();
    let is_plain = plain.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'-' | b'+' | b'e' | b'E'));
    if plain.is_empty() || !is_plain {
        return None;
    }
    plain.parse::<f64>().ok().filter(|number| number.is_finite())
}

/// Returns the factor to the base unit; `None` for an unknown unit.
fn factor(unit: &str) -> Option<f64> {
    // Of `byte/s` the first part matters; per second is the base already.
    let (counted, per) = unit.split_once('/').unwrap_or((unit, ""));
    if per == "ns" || per == "us" || per == "ms" || per == "nsecond" || per == "usecond" || per == "msecond" {
        return None;
    }
    Some(match counted {
        "" | "%" | "byte" | "hz" | "inst" | "ns" | "nsecond" | "block" | "cycle" | "register" | "sector" | "thread"
        | "warp" | "request" | "cycles" | "Hz" => 1.0,
        "us" | "usecond" | "Kbyte" | "Khz" | "KHz" => 1e3,
        "ms" | "msecond" | "Mbyte" | "Mhz" | "MHz" => 1e6,
        "s" | "second" | "Gbyte" | "Ghz" | "GHz" => 1e9,
        "Tbyte" => 1e12,
        _ => return None,
    })
}

/// The records of a table: fields in quotes, with quotes in them doubled.
struct Records<'a> {
    rest: &'a str,
}

impl Iterator for Records<'_> {
    type Item = Vec<String>;

    fn next(&mut self) -> Option<Vec<String>> {
        // A line that does not begin with a quote is output of the program or the tool.
        while !self.rest.is_empty() && !self.rest.starts_with('"') {
            self.rest = self.rest.split_once('\n').map_or("", |(_, rest)| rest);
        }
        if self.rest.is_empty() {
            return None;
        }
        let mut fields = Vec::new();
        let mut field = String::new();
        let mut is_quoted = false;
        let mut characters = self.rest.char_indices().peekable();
        let mut end = self.rest.len();
        while let Some((index, character)) = characters.next() {
            match character {
                '"' if is_quoted && characters.peek().is_some_and(|(_, next)| *next == '"') => {
                    characters.next();
                    field.push('"');
                }
                '"' => is_quoted = !is_quoted,
                ',' if !is_quoted => {
                    if fields.len() < MAX_COLUMNS {
                        fields.push(std::mem::take(&mut field));
                    }
                    field.clear();
                }
                // No field of this tool holds a line break: an open quote ends with its line.
                '\n' => {
                    end = index + 1;
                    break;
                }
                '\r' => {}
                _ => field.push(character),
            }
        }
        self.rest = self.rest.get(end..).unwrap_or_default();
        fields.push(field);
        Some(fields)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests;
