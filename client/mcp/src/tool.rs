//! The interface of a tool: name, two schemas, hints, access and implementation.

use std::pin::Pin;
use std::sync::Arc;

use nightshift_protocol::access::Role;
use rmcp::model::{JsonObject, Tool as ListedTool, ToolAnnotations};
use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::ToolError;
use crate::ports::{Caller, Connection};
use crate::progress::Progress;
use crate::shared::Shared;

/// The permission for a tool, and where it is offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Every caller: the tool needs no server.
    Open,
    /// Only where this process verifies programs.
    Judges,
    /// Callers with this role on the server.
    Needs(Role),
}

/// The effect of a call, as hints for clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Nothing.
    Reads,
    /// It adds data. Repeating the call adds nothing.
    Adds,
    /// Each call adds data.
    AddsEachTime,
    /// It ends or changes existing data.
    Ends,
}

/// One call of a tool.
pub(crate) struct Call<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) caller: Caller,
    pub(crate) progress: Progress,
}

impl Call<'_> {
    /// Connects to the server with the permissions of the caller.
    pub(crate) async fn connect(&self) -> Result<Connection, ToolError> {
        self.shared.servers.connect(&self.caller).await
    }
}

/// A tool.
pub(crate) trait Tool: 'static {
    /// Its name for clients.
    const NAME: &'static str;
    /// Its name for people.
    const TITLE: &'static str;
    /// Its description for models: effect, use and answer.
    const DESCRIPTION: &'static str;
    /// The required permission.
    const ACCESS: Access;
    /// The effect of a call.
    const EFFECT: Effect;
    /// The arguments.
    type Arguments: DeserializeOwned + JsonSchema + Send;
    /// The answer, an object.
    type Answer: Serialize + JsonSchema;

    /// Carries out the call.
    fn call(
        call: &Call<'_>,
        arguments: Self::Arguments,
    ) -> impl Future<Output = Result<Self::Answer, ToolError>> + Send;
}

type Answering<'a> = Pin<Box<dyn Future<Output = Result<Value, ToolError>> + Send + 'a>>;

/// A registered tool.
pub(crate) struct Entry {
    pub(crate) listed: ListedTool,
    pub(crate) access: Access,
    pub(crate) run: for<'a> fn(&'a Call<'a>, JsonObject) -> Answering<'a>,
}

impl Entry {
    pub(crate) fn of<T: Tool>() -> Self {
        let annotations = ToolAnnotations::new()
            .read_only(T::EFFECT == Effect::Reads)
            .destructive(T::EFFECT == Effect::Ends)
            .idempotent(T::EFFECT != Effect::AddsEachTime)
            // It connects to one server, not to the world.
            .open_world(false);
        let listed = ListedTool::new(T::NAME, T::DESCRIPTION, schema::<T::Arguments>(SchemaSettings::draft2020_12()))
            .with_title(T::TITLE)
            .with_raw_output_schema(schema::<T::Answer>(SchemaSettings::draft2020_12().for_serialize()))
            .with_annotations(annotations);
        Self { listed, access: T::ACCESS, run: run::<T> }
    }
}

fn run<'a, T: Tool>(call: &'a Call<'a>, arguments: JsonObject) -> Answering<'a> {
    Box::pin(async move {
        let arguments = serde_json::from_value(Value::Object(arguments)).map_err(|error| {
            ToolError::new("request.invalid_arguments", format!("the arguments of {} are not valid: {error}", T::NAME))
                .hint("compare them with the tool's input schema")
        })?;
        let answer = T::call(call, arguments).await?;
        serde_json::to_value(answer).map_err(|error| {
            ToolError::new("internal.json", format!("the answer of {} cannot be written as JSON: {error}", T::NAME))
        })
    })
}

/// Returns a self-contained schema, because some clients resolve no references. Omits formats such as `uint32`, which
/// cause warnings in validators.
fn schema<T: JsonSchema>(settings: SchemaSettings) -> Arc<JsonObject> {
    let plain = settings.with(|settings| {
        settings.inline_subschemas = true;
        settings.transforms.push(Box::new(RecursiveTransform(|schema: &mut Schema| {
            schema.remove("format");
        })));
    });
    let generator = plain.into_generator();
    let mut schema = generator.into_root_schema_for::<T>();
    let object = schema.ensure_object();
    for name in ["title", "description"] {
        object.remove(name);
    }
    Arc::new(object.clone())
}
