//! The name of a model call, and the hash that finds its stored reply.

use serde_json::json;

use crate::model::ModelRequest;

/// `subtask1/attempt2/write_code` becomes `subtask1.attempt2.write_code`; later turns carry their number.
pub(in crate::agent) fn call_name(step_key: &str, turn: u32) -> String {
    let name = step_key.replace('/', ".");
    if turn > 1 { format!("{name}.{turn}") } else { name }
}

pub(super) fn request_hash(label: &str, request: &ModelRequest, turn: u32) -> String {
    let mut canonical = json!({
        "model": label,
        "max_output_tokens": request.max_output_tokens,
        "temperature": request.temperature,
        "schema": request.json_schema,
        "system": request.system,
        "user": request.user,
        "earlier": request.earlier,
        "turn": turn,
    });
    if !request.functions.is_empty() {
        let names: Vec<&str> = request.functions.iter().map(|function| function.name).collect();
        canonical["functions"] = json!(names);
    }
    blake3::hash(canonical.to_string().as_bytes()).to_hex().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::functions::session_functions;

    #[test]
    fn a_call_is_named_by_its_step_and_turn() {
        assert_eq!(call_name("subtask1/attempt2/write_code", 1), "subtask1.attempt2.write_code");
        assert_eq!(call_name("plan", 2), "plan.2");
    }

    #[test]
    fn everything_that_shapes_a_reply_shapes_the_hash() {
        let base = request_hash("a/b", &ModelRequest::example(), 1);
        assert_eq!(base, request_hash("a/b", &ModelRequest::example(), 1));
        let others = [
            request_hash("a/c", &ModelRequest::example(), 1),
            request_hash("a/b", &ModelRequest::example(), 2),
            request_hash("a/b", &ModelRequest { user: "v".to_owned(), ..ModelRequest::example() }, 1),
            request_hash("a/b", &ModelRequest { system: "v".to_owned(), ..ModelRequest::example() }, 1),
            request_hash("a/b", &ModelRequest { temperature: Some(0.5), ..ModelRequest::example() }, 1),
            request_hash("a/b", &ModelRequest { max_output_tokens: 2, ..ModelRequest::example() }, 1),
            request_hash("a/b", &ModelRequest { json_schema: Some(json!({})), ..ModelRequest::example() }, 1),
            request_hash("a/b", &ModelRequest { functions: session_functions(), ..ModelRequest::example() }, 1),
            request_hash(
                "a/b",
                &ModelRequest { earlier: vec![("x".to_owned(), "y".to_owned())], ..ModelRequest::example() },
                1,
            ),
        ];
        assert!(others.iter().all(|other| *other != base));
    }
}
