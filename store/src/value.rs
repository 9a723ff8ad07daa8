//! Parameters of statements.

/// A parameter. Lists are one parameter: arrays on Postgres (`unnest`, `= ANY`), JSON text on SQLite (`json_each`).
#[derive(Debug, Clone)]
pub(crate) enum Value {
    /// A number.
    I64(i64),
    /// A number or null.
    OptI64(Option<i64>),
    /// A text without NUL characters.
    Text(String),
    /// A text or null.
    OptText(Option<String>),
    /// Bytes.
    Bytes(Vec<u8>),
    /// Bytes or null.
    OptBytes(Option<Vec<u8>>),
    /// A list of numbers.
    I64s(Vec<i64>),
    /// A list of numbers or nulls.
    OptI64s(Vec<Option<i64>>),
    /// A list of texts.
    Texts(Vec<String>),
    /// A list of texts or nulls.
    OptTexts(Vec<Option<String>>),
    /// A list of bytes or nulls, for Postgres only: JSON text cannot represent bytes.
    OptByteses(Vec<Option<Vec<u8>>>),
}

macro_rules! value_from {
    ($($from:ty => $variant:ident),* $(,)?) => {
        $(impl From<$from> for Value {
            fn from(value: $from) -> Self {
                Self::$variant(value)
            }
        })*
    };
}
value_from! {
    i64 => I64,
    Option<i64> => OptI64,
    String => Text,
    Option<String> => OptText,
    Vec<u8> => Bytes,
    Option<Vec<u8>> => OptBytes,
    Vec<i64> => I64s,
    Vec<Option<i64>> => OptI64s,
    Vec<String> => Texts,
    Vec<Option<String>> => OptTexts,
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<std::borrow::Cow<'_, str>> for Value {
    fn from(text: std::borrow::Cow<'_, str>) -> Self {
        Self::Text(text.into_owned())
    }
}

impl From<bool> for Value {
    fn from(truth: bool) -> Self {
        Self::I64(i64::from(truth))
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Self::I64(i64::from(number))
    }
}

/// Parameters of a statement, in their order.
macro_rules! values {
    ($($value:expr),* $(,)?) => {
        vec![$($crate::value::Value::from($value)),*]
    };
}
pub(crate) use values;

/// Lists of numbers and texts always serialize. After an error, the statement would find nothing.
pub(crate) fn as_json<T: serde::Serialize>(list: &[T]) -> String {
    serde_json::to_string(list).unwrap_or_else(|_| "[]".to_owned())
}
