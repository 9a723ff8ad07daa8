//! The state of a run: in memory as its workflow uses it, and stored as a head and parts.

use std::fmt::Debug;

use serde_json::Value;

use super::WorkflowError;

/// Bytes that a JSON value takes in memory in addition to its texts.
const VALUE_BYTES: usize = 32;

/// The state of a run in memory. A clone is cheap, because unchanging data is shared.
pub trait WorkflowState: Clone + Debug + Send + Sync + 'static {
    /// Reads a stored state, which may be of an earlier format.
    fn read(document: &Value) -> Result<Self, WorkflowError>;

    /// Returns the head, and the parts that differ from the stored state `before`. Without `before`, returns all parts.
    fn write(&self, before: Option<&Self>) -> Result<StoredState, WorkflowError>;

    /// Returns the approximate size in memory, in bytes.
    fn weight_bytes(&self) -> usize;

    /// Returns the whole state as one document.
    fn document(&self) -> Result<Value, WorkflowError> {
        Ok(self.write(None)?.document())
    }
}

/// A stored state: a small head, which every decision writes, and parts, which are written when they change.
///
/// Head and parts together are one JSON document. A document without parts is a state, too: the head holds all of it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StoredState {
    /// The document without the fields that are stored as parts.
    pub head: Value,
    /// Parts, ordered by their place if all of them are included.
    pub parts: Vec<StatePart>,
}

/// A part of a state: a field of the document, or one entry of a list in it.
#[derive(Debug, Clone, PartialEq)]
pub struct StatePart {
    /// Name of the field.
    pub field: String,
    /// Place in the list of that name, from 1; 0 for the field itself.
    pub number: u32,
    /// The value.
    pub value: Value,
}

impl StoredState {
    /// Returns head and parts as one document. All parts are required, in their order.
    #[must_use]
    pub fn document(self) -> Value {
        let Self { mut head, parts } = self;
        for StatePart { field, number, value } in parts {
            let Some(fields) = head.as_object_mut() else { break };
            if number == 0 {
                fields.insert(field, value);
            } else if let Value::Array(list) = fields.entry(field).or_insert_with(|| Value::Array(Vec::new())) {
                list.push(value);
            }
        }
        head
    }
}

impl From<Value> for StoredState {
    /// Wraps a document without parts.
    fn from(head: Value) -> Self {
        Self { head, parts: Vec::new() }
    }
}

/// A state of one document, for workflows with small states.
impl WorkflowState for Value {
    fn read(document: &Value) -> Result<Self, WorkflowError> {
        Ok(document.clone())
    }

    fn write(&self, _before: Option<&Self>) -> Result<StoredState, WorkflowError> {
        Ok(self.clone().into())
    }

    fn weight_bytes(&self) -> usize {
        VALUE_BYTES
            + match self {
                Self::Null | Self::Bool(_) | Self::Number(_) => 0,
                Self::String(text) => text.len(),
                Self::Array(items) => items.iter().map(Self::weight_bytes).sum(),
                Self::Object(fields) => {
                    fields.iter().map(|(key, value)| VALUE_BYTES + key.len() + value.weight_bytes()).sum()
                }
            }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn part(field: &str, number: u32, value: Value) -> StatePart {
        StatePart { field: field.to_owned(), number, value }
    }

    #[test]
    fn head_and_parts_are_one_document() {
        let parts = vec![part("input", 0, json!(1)), part("list", 1, json!("a")), part("list", 2, json!("b"))];
        let stored = StoredState { head: json!({ "phase": "x" }), parts };
        assert_eq!(stored.document(), json!({ "phase": "x", "input": 1, "list": ["a", "b"] }));
    }

    #[test]
    fn a_document_without_parts_stays_as_it_is() {
        let document = json!({ "list": ["a"] });
        assert_eq!(StoredState::from(document.clone()).document(), document);
        assert_eq!(document.document().ok(), Some(document));
    }
}
