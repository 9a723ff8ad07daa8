//! Functions that a model may call in its reply, in words that every wire format can carry.

use serde_json::{Value, json};

use super::MAX_REPLY_BYTES;
use super::function_call::FunctionCall;
use super::stream::{Draft, Trouble};

/// Most calls of one reply that are read.
const MAX_CALLS: usize = 16;

/// A function that a request offers.
#[derive(Debug, Clone, PartialEq)]
pub struct FunctionDefinition {
    /// Its name.
    pub name: &'static str,
    /// Description of the function for the model.
    pub description: &'static str,
    /// JSON schema of its arguments, an object.
    pub parameters: Value,
}

impl FunctionDefinition {
    /// Returns the definition with its parameters in a field of this name.
    pub(super) fn to_json(&self, parameters: &str) -> Value {
        json!({"name": self.name, "description": self.description, parameters: self.parameters})
    }
}

impl Draft {
    /// Goes on with the call at this place of the reply, or begins it.
    pub(super) fn push_call(&mut self, place: u64, name: Option<&str>, arguments: &str) -> Result<(), Trouble> {
        let bytes: usize = self.calls.iter().map(|(_, call)| call.arguments.len()).sum();
        if bytes + arguments.len() > MAX_REPLY_BYTES {
            return Err(Trouble::TooLarge { what: "of arguments", limit_bytes: MAX_REPLY_BYTES });
        }
        let known = self.calls.iter().rposition(|(known, _)| *known == place);
        // Some servers give several calls the same place: a name behind whole arguments begins another call.
        let known = known.filter(|index| {
            let is_begun = name.is_some_and(|name| !name.is_empty()) && !arguments.is_empty();
            !is_begun || self.calls.get(*index).is_none_or(|(_, call)| !is_whole(&call.arguments))
        });
        if known.is_none() && self.calls.len() >= MAX_CALLS {
            return Ok(());
        }
        let index = known.unwrap_or_else(|| {
            self.calls.push((place, FunctionCall::default()));
            self.calls.len() - 1
        });
        if let Some((_, call)) = self.calls.get_mut(index) {
            if let Some(name) = name.filter(|_| call.name.is_empty()) {
                name.clone_into(&mut call.name);
            }
            call.arguments.push_str(arguments);
        }
        Ok(())
    }

    /// Takes the calls, in the order in which they began.
    pub(super) fn take_calls(&mut self) -> Vec<FunctionCall> {
        std::mem::take(&mut self.calls).into_iter().map(|(_, call)| call).collect()
    }
}

fn is_whole(arguments: &str) -> bool {
    arguments.trim_end().ends_with('}') && serde_json::from_str::<serde::de::IgnoredAny>(arguments).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_is_used_again_begins_another_call() {
        let mut draft = Draft::default();
        for (name, arguments) in [
            (Some("build"), "{\"note\": "),
            // The name is repeated with each piece.
            (Some("build"), "\"n\"}"),
            (Some("build"), ""),
            (Some("build"), "{}"),
            (Some("check"), "{"),
            (None, "}"),
        ] {
            assert!(draft.push_call(0, name, arguments).is_ok());
        }
        let calls: Vec<(String, String)> = draft.take_calls().into_iter().map(|c| (c.name, c.arguments)).collect();
        let expected = [("build", "{\"note\": \"n\"}"), ("build", "{}"), ("check", "{}")];
        assert_eq!(calls, expected.map(|(name, arguments)| (name.to_owned(), arguments.to_owned())));
    }
}
