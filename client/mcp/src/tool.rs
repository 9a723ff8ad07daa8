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
use crate::service::Shared;

/// Who may call a tool, and where it is offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Everyone: it needs no server.
    Open,
    /// Only where programs are judged in this process.
    Judges,
    /// Callers with this role on the server.
    Needs(Role),
}

/// What a call changes, as hints for clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Nothing.
    Reads,
    /// It adds something; the same call again adds nothing more.
    Adds,
    /// It adds something at each call.
    AddsEachTime,
    /// It ends or changes something that exists.
    Ends,
}

/// One call of a tool.
pub(crate) struct Call<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) caller: Caller,
    pub(crate) progress: Progress,
}

impl Call<'_> {
    /// Connects to the server with the rights of the caller.
    pub(crate) async fn connect(&self) -> Result<Connection, ToolError> {
        self.shared.servers.connect(&self.caller).await
    }
}

/// A tool.
pub(crate) trait Tool: 'static {
    /// The name for clients.
    const NAME: &'static str;
    /// Its name for people.
    const TITLE: &'static str;
    /// The description for models: effect, use and answer.
    const DESCRIPTION: &'static str;
    /// Who may call it.
    const ACCESS: Access;
    /// What a call changes.
    const EFFECT: Effect;
    /// The arguments.
    type Arguments: DeserializeOwned + JsonSchema + Send;
    /// The answer, an object.
    type Answer: Serialize + JsonSchema;

    /// Carries it out.
    fn call(
        call: &Call<'_>,
        arguments: Self::Arguments,
    ) -> impl Future<Output = Result<Self::Answer, ToolError>> + Send;
}

type Answering<'a> = Pin<Box<dyn Future<Output = Result<Value, ToolError>> + Send + 'a>>;

/// A tool as the service keeps it.
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
            // It talks to one server, not to the world.
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

/// A schema in one piece: some clients follow no references, and validators warn of formats such as `uint32`.
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
