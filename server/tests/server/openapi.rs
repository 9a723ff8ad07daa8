//! Tests that the document matches the router, and that the checked-in file is up to date.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use nightshift_server::openapi_json;
use serde_json::Value;

/// Set it to write the document again.
const UPDATE: &str = "UPDATE_OPENAPI";
/// The command for that.
const COMMAND: &str = "UPDATE_OPENAPI=1 cargo test -p nightshift-server --test server openapi";

fn document() -> Value {
    serde_json::from_str(&openapi_json().unwrap()).unwrap()
}

/// Returns the methods by path in the document.
fn documented() -> BTreeMap<String, BTreeSet<String>> {
    let document = document();
    let paths = document["paths"].as_object().unwrap();
    paths.iter().map(|(path, item)| (path.clone(), item.as_object().unwrap().keys().cloned().collect())).collect()
}

/// Returns the methods by path in the source of the router, because a router cannot list its routes.
fn routed() -> BTreeMap<String, BTreeSet<String>> {
    let source: String = include_str!("../../src/api.rs").split_whitespace().collect();
    let mut routes: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for part in source.split(".route(\"").skip(1) {
        let (path, rest) = part.split_once("\",").unwrap();
        let mut depth = 1;
        let handlers: String = rest
            .chars()
            .take_while(|c| {
                depth += i32::from(*c == '(') - i32::from(*c == ')');
                depth > 0
            })
            .collect();
        let methods = ["get", "post", "put", "delete", "patch", "head"];
        let found = methods.into_iter().filter(|method| {
            let call = format!("{method}(");
            handlers.starts_with(&call) || handlers.contains(&format!(".{call}"))
        });
        let found: BTreeSet<String> = found.map(str::to_owned).collect();
        if path == "/{*call}" || path == "/metrics" {
            continue;
        }
        assert!(!found.is_empty(), "{path}: {handlers}");
        routes.entry(path.to_owned()).or_default().extend(found);
    }
    routes
}

#[test]
fn every_call_of_the_router_is_in_the_document_and_none_that_is_not_there() {
    let (routed, documented) = (routed(), documented());
    assert!(routed.len() > 30, "{routed:?}");
    assert_eq!(routed, documented, "the router left, the document right; add calls to server/src/api/openapi/");
}

#[test]
fn the_checked_in_document_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/openapi.json");
    let made = openapi_json().unwrap();
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(stored == made, "docs/openapi.json is out of date: {COMMAND}");
}

#[test]
fn every_reference_leads_somewhere() {
    fn references(value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(fields) => {
                if let Some(Value::String(to)) = fields.get("$ref") {
                    found.insert(to.clone());
                }
                fields.values().for_each(|value| references(value, found));
            }
            Value::Array(items) => items.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }
    let document = document();
    let mut found = BTreeSet::new();
    references(&document, &mut found);
    assert!(found.len() > 50);
    for to in found {
        let pointer = to.strip_prefix('#').unwrap();
        assert!(document.pointer(pointer).is_some(), "{to}");
    }
}

#[test]
fn every_call_says_who_may_make_it_and_every_code_is_documented() {
    let errors = include_str!("../../../docs/reference/errors.md");
    let document = document();
    let mut ids = BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, call) in item.as_object().unwrap() {
            assert!(!call["x-roles"].as_array().unwrap().is_empty(), "{method} {path}");
            assert!(ids.insert(call["operationId"].to_string()), "{method} {path}");
            for answer in call["responses"].as_object().unwrap().values() {
                for code in answer["x-codes"].as_array().into_iter().flatten() {
                    let code = code.as_str().unwrap();
                    assert!(errors.contains(&format!("| `{code}` |")), "{method} {path}: {code}");
                }
            }
        }
    }
}

/// Returns every operation with its method and path.
fn operations(document: &Value) -> Vec<(String, &Value)> {
    let paths = document["paths"].as_object().unwrap().iter();
    let named = paths.flat_map(|(path, item)| {
        let calls = item.as_object().unwrap().iter();
        calls.map(move |(method, call)| (format!("{method} {path}"), call))
    });
    named.collect()
}

#[test]
fn every_operation_documents_the_errors_that_its_form_can_have() {
    let document = document();
    for (name, call) in operations(&document) {
        let answers = call["responses"].as_object().unwrap();
        let parameters = call["parameters"].as_array().cloned().unwrap_or_default();
        let has = |place: &str| parameters.iter().any(|parameter| parameter["in"] == place);
        let mut expected = vec!["403", "500", "503", "507"];
        if has("query") || has("path") {
            expected.push("400");
        }
        if call["requestBody"]["content"]["application/json"].is_object() {
            expected.extend(["400", "413", "415"]);
        }
        if call["x-roles"][0] != "public" {
            expected.extend(["401", "429"]);
        }
        for status in expected {
            assert!(answers.contains_key(status), "{name}: {status}");
        }
        for (status, answer) in answers.iter().filter(|(status, _)| status.as_str() >= "400") {
            let answer = answer["$ref"].as_str().map_or(answer, |to| document.pointer(&to[1..]).unwrap());
            let content = &answer["content"]["application/problem+json"]["schema"]["$ref"];
            assert_eq!(content, "#/components/schemas/Problem", "{name}: {status}");
        }
    }
}

#[test]
fn parameters_with_a_fixed_set_of_words_list_them() {
    let document = document();
    let mut found = BTreeSet::new();
    for (name, call) in operations(&document) {
        for parameter in call["parameters"].as_array().into_iter().flatten() {
            let schema = &parameter["schema"];
            let words = schema["enum"].as_array().or_else(|| schema["items"]["enum"].as_array());
            let closed = ["status", "sort", "order", "format", "outcome", "stage", "kind", "value", "show"];
            let parameter = parameter["name"].as_str().unwrap();
            assert_eq!(words.is_some(), closed.contains(&parameter), "{name}: {parameter}");
            found.extend(words.is_some().then(|| parameter.to_owned()));
        }
    }
    assert_eq!(found.len(), 9, "{found:?}");
}

#[test]
fn schemas_are_those_of_the_version_that_the_document_names() {
    fn examine(value: &Value) {
        match value {
            Value::Object(fields) => {
                // A list of schemas by position is `prefixItems` since JSON Schema 2020-12.
                assert!(!fields.get("items").is_some_and(Value::is_array), "{value}");
                assert!(!fields.contains_key("nullable"), "{value}");
                fields.values().for_each(examine);
            }
            Value::Array(items) => items.iter().for_each(examine),
            _ => {}
        }
    }
    let document = document();
    assert_eq!(document["openapi"], "3.1.0");
    examine(&document["components"]);
    examine(&document["paths"]);
    let done = &document["components"]["schemas"]["BulkDone"]["properties"]["done"]["items"];
    assert_eq!(done["prefixItems"].as_array().unwrap().len(), 2);
}

#[test]
fn a_stream_is_a_text_and_names_the_schema_of_its_events() {
    let document = document();
    let stream = &document["paths"]["/live"]["get"]["responses"]["200"]["content"]["text/event-stream"];
    assert_eq!(stream["schema"]["type"], "string");
    assert_eq!(stream["x-event-data"]["$ref"], "#/components/schemas/LiveEvent");
}

#[test]
fn every_list_has_pages() {
    let document = document();
    let mut lists = 0;
    for (name, call) in operations(&document) {
        let schema = &call["responses"]["200"]["content"]["application/json"]["schema"];
        let schema = schema["$ref"].as_str().map_or(schema, |to| document.pointer(&to[1..]).unwrap());
        // Calls that change tags and pins answer the few of one target.
        if !name.starts_with("get ") || !schema["properties"]["items"].is_object() {
            continue;
        }
        lists += 1;
        let parameters = call["parameters"].as_array().cloned().unwrap_or_default();
        for expected in ["limit", "before"] {
            assert!(parameters.iter().any(|parameter| parameter["name"] == expected), "{name}: {expected}");
        }
    }
    assert!(lists >= 20, "{lists}");
}

#[test]
fn a_table_documents_each_of_its_formats() {
    let document = document();
    let formats = document["paths"]["/tables/runs"]["get"]["responses"]["200"]["content"].as_object().unwrap();
    let expected = ["application/json", "application/vnd.apache.parquet", "text/csv"];
    assert!(formats.keys().eq(expected), "{formats:?}");
}
