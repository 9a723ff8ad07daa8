//! `GET /openapi.json`: the `OpenAPI` 3.1 description of every call.
//!
//! Each call is a few lines of a list, by area, and the types describe themselves. `docs/openapi.json` is the
//! checked-in document, and a test detects when it is out of date.

mod attempts;
mod call;
mod campaigns;
mod handovers;
mod operations;
mod requests;
mod runs;
mod schemas;
mod tables;
mod team;
mod webhooks;
mod workers;

use std::collections::BTreeMap;
use std::sync::OnceLock;

use axum::body::Bytes;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use utoipa::openapi::security::{ApiKey, ApiKeyValue, Http, HttpAuthScheme, SecurityScheme};
use utoipa::openapi::{
    ComponentsBuilder, InfoBuilder, LicenseBuilder, OpenApi, OpenApiBuilder, PathItem, PathsBuilder, ServerBuilder,
};

use self::call::{COMMON_FAILURES, Call};
use self::schemas::Schemas;
use crate::address::PREFIX;
use crate::error::ApiFailure;

/// Description of the API.
const ABOUT: &str = "The command line, the workers and the pages use this API. docs/reference/api.md describes it, and docs/reference/errors.md explains every code. Each call lists the roles that may make it (x-roles) and the codes \
    of its own errors; any call may also answer the codes that docs/reference/api.md lists for all of them.";

/// Returns every call, by area.
fn calls(schemas: &mut Schemas) -> Vec<Call> {
    let mut calls = campaigns::calls(schemas);
    calls.extend(handovers::calls(schemas));
    calls.extend(runs::calls(schemas));
    calls.extend(attempts::calls(schemas));
    calls.extend(tables::calls());
    calls.extend(workers::calls(schemas));
    calls.extend(team::calls(schemas));
    calls.extend(webhooks::calls(schemas));
    calls.extend(requests::calls(schemas));
    calls.extend(operations::calls(schemas));
    calls
}

/// Returns the document.
fn document() -> OpenApi {
    let mut schemas = Schemas::default();
    let mut paths = PathsBuilder::new();
    let error = schemas.of::<nightshift_protocol::error::Problem>();
    for call in calls(&mut schemas) {
        let (method, path) = (call.method.clone(), call.path);
        paths = paths.path(path, PathItem::new(method, call.operation(&error)));
    }
    let common = COMMON_FAILURES.map(|(_, name, codes)| (name, call::failure(codes.to_vec(), &error)));
    let components = ComponentsBuilder::new()
        .responses_from_iter(common)
        .schemas_from_iter(schemas.into_components())
        .security_scheme("token", SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer)))
        .security_scheme("password", SecurityScheme::Http(Http::new(HttpAuthScheme::Basic)))
        .security_scheme("session", SecurityScheme::ApiKey(ApiKey::Cookie(ApiKeyValue::new("nightshift_session"))));
    let license = LicenseBuilder::new().name("MIT OR Apache-2.0").build();
    let info = InfoBuilder::new()
        .title("Nightshift")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(ABOUT))
        .license(Some(license));
    OpenApiBuilder::new()
        .info(info.build())
        .servers(Some([ServerBuilder::new().url(PREFIX).build()]))
        .paths(paths.build())
        .components(Some(components.build()))
        .build()
}

/// Returns the document as it is served and checked in.
pub fn openapi_json() -> Result<String, serde_json::Error> {
    let value = in_order(serde_json::to_value(document())?);
    Ok(serde_json::to_string_pretty(&value)? + "\n")
}

/// Sorts all names, because the text must not depend on the build.
fn in_order(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields: BTreeMap<String, Value> = fields.into_iter().collect();
            Value::Object(fields.into_iter().map(|(name, value)| (name, in_order(value))).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(in_order).collect()),
        other => other,
    }
}

/// Serves the document.
pub(crate) async fn show() -> Result<Response, ApiFailure> {
    static WRITTEN: OnceLock<Bytes> = OnceLock::new();
    let text = if let Some(text) = WRITTEN.get() {
        text
    } else {
        let text = openapi_json().map_err(|error| {
            let message = format!("the description of the API cannot be written: {error}");
            ApiFailure::internal("internal.unwritable", message)
        })?;
        WRITTEN.get_or_init(|| Bytes::from(text))
    };
    Ok(([(CONTENT_TYPE, "application/json")], text.clone()).into_response())
}
