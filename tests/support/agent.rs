//! A coding agent: a client of MCP, over a child process or over HTTP.

use std::process::Command;
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::model::{CallToolRequestParams, CallToolResult, Tool};
use rmcp::service::{ClientLifecycleMode, RunningService, serve_client_with_lifecycle};
use rmcp::transport::TokioChildProcess;
use serde_json::Value;

/// Maximum time that one call may take: tools wait 45 s at most.
const MAX_CALL: Duration = Duration::from_mins(1);

/// A client that is connected.
pub(crate) struct Agent {
    pub(crate) client: RunningService<RoleClient, ()>,
}

impl Agent {
    /// Starts the command and speaks to it.
    pub(crate) async fn spawn(command: Command) -> Self {
        Self::spawn_with(command, ClientLifecycleMode::Initialize).await
    }

    /// The same, beginning in this way.
    pub(crate) async fn spawn_with(command: Command, mode: ClientLifecycleMode) -> Self {
        let transport = TokioChildProcess::new(tokio::process::Command::from(command)).expect("the binary starts");
        Self { client: serve_client_with_lifecycle((), transport, mode).await.expect("a session") }
    }

    /// Every tool, all of them on the first page.
    pub(crate) async fn tools(&self) -> Vec<Tool> {
        let page = self.client.list_tools(None).await.expect("tools");
        assert_eq!(page.next_cursor, None, "all tools are on one page");
        page.tools
    }

    /// Calls a tool.
    pub(crate) async fn call(&self, name: &str, arguments: Value) -> CallToolResult {
        let Value::Object(arguments) = arguments else { panic!("arguments are an object") };
        let call = CallToolRequestParams::new(name.to_owned()).with_arguments(arguments);
        let answered = tokio::time::timeout(MAX_CALL, self.client.call_tool(call)).await;
        answered.unwrap_or_else(|_| panic!("{name} answers in time")).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// Calls a tool that does what it is asked for. Returns its answer.
    pub(crate) async fn answer(&self, name: &str, arguments: Value) -> Value {
        let result = self.call(name, arguments).await;
        assert_ne!(result.is_error, Some(true), "{name}: {}", text(&result));
        let value = result.structured_content.clone().unwrap_or_else(|| panic!("{name} answers with structure"));
        assert_eq!(serde_json::from_str::<Value>(&text(&result)).ok(), Some(value.clone()), "{name}: a copy as text");
        let tools = self.tools().await;
        let tool = tools.iter().find(|tool| tool.name == name).unwrap_or_else(|| panic!("{name} is offered"));
        let schema = Value::Object((**tool.output_schema.as_ref().expect("a schema of the answer")).clone());
        if let Err(reason) = fits(&schema, &value) {
            panic!("{name}: the answer does not fit its schema: {reason}\n{value}");
        }
        value
    }

    /// Calls a tool that refuses. Returns what the model reads.
    pub(crate) async fn refusal(&self, name: &str, arguments: Value) -> String {
        let result = self.call(name, arguments).await;
        assert_eq!(result.is_error, Some(true), "{name}: {}", text(&result));
        text(&result)
    }
}

/// Returns whether a value fits a schema, as far as our schemas go.
fn fits(schema: &Value, value: &Value) -> Result<(), String> {
    if let Some(kinds) = schema.get("anyOf").or(schema.get("oneOf")).and_then(Value::as_array) {
        return kinds
            .iter()
            .map(|kind| fits(kind, value))
            .find(Result::is_ok)
            .unwrap_or_else(|| Err(format!("{value}")));
    }
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let allowed: Vec<&str> = match &schema["type"] {
        Value::String(one) => vec![one.as_str()],
        Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
        _ => return Ok(()),
    };
    let is_allowed = allowed.contains(&kind) || (kind == "integer" && allowed.contains(&"number"));
    if !is_allowed {
        return Err(format!("{value} is {kind} and not {allowed:?}"));
    }
    for (name, field) in value.as_object().into_iter().flatten() {
        let schema = schema["properties"].get(name).ok_or_else(|| format!("`{name}` is not in the schema"))?;
        fits(schema, field).map_err(|reason| format!("{name}: {reason}"))?;
    }
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if value.is_object() && value.get(name).is_none() {
            return Err(format!("`{name}` is missing"));
        }
    }
    value.as_array().into_iter().flatten().try_for_each(|item| fits(&schema["items"], item))
}

/// The text of a result.
fn text(result: &CallToolResult) -> String {
    result.content.iter().filter_map(|block| Some(block.as_text()?.text.clone())).collect()
}
