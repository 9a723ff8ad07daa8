//! Binds a service to one run: it offers what the agent of that run's session needs, and refuses every other run.

use nightshift_protocol::id::RunId;
use rmcp::model::JsonObject;
use serde_json::Value;

use crate::error::ToolError;
use crate::text::name;

/// The tools of a session. Each has the argument [`RUN`], and reads or changes nothing but that run.
const TOOLS: [&str; 5] = ["get_turn", "take_turn", "describe_run", "get_attempt", "get_best_program"];

/// The argument that names the run.
const RUN: &str = "run";

/// Kinds of resources that belong to a run, with the run as their second part.
const RESOURCES: [&str; 2] = ["runs", "attempts"];

/// Returns whether the agent of a session needs the tool.
pub(crate) fn is_needed(tool: &str) -> bool {
    TOOLS.contains(&tool)
}

/// Returns whether resources of this kind belong to a run.
pub(crate) fn is_of_run(kind: &str) -> bool {
    RESOURCES.contains(&kind)
}

/// The only run of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BoundRun(RunId);

impl BoundRun {
    pub(crate) fn new(run: RunId) -> Self {
        Self(run)
    }

    /// Puts the whole id of the run into the arguments of a call. Refuses the id of another run.
    pub(crate) fn admit(&self, arguments: &mut JsonObject) -> Result<(), ToolError> {
        match arguments.get(RUN) {
            None => {}
            Some(Value::String(text)) if self.is_meant(text) => {}
            Some(other) => return Err(self.refusal(&other.as_str().map_or_else(|| other.to_string(), str::to_owned))),
        }
        arguments.insert(RUN.to_owned(), Value::String(self.0.to_string()));
        Ok(())
    }

    /// Returns the run of a resource with these parts. Refuses resources of anything else.
    pub(crate) fn admit_resource(&self, kind: &str, run: &str) -> Result<String, ToolError> {
        if is_of_run(kind) && self.is_meant(run) {
            return Ok(self.0.to_string());
        }
        Err(self.refusal(&format!("{kind}/{run}")))
    }

    /// Returns whether the text is the id, or a part of it.
    fn is_meant(&self, text: &str) -> bool {
        !text.is_empty() && self.0.as_str().contains(text)
    }

    fn refusal(&self, other: &str) -> ToolError {
        let message = format!("this MCP server is bound to the run {}: `{}` is not part of it", self.0, name(other));
        ToolError::new("access.other_run", message).hint("work on the session of your run alone")
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tools;

    fn bound() -> BoundRun {
        BoundRun::new(format!("run_{:032x}", 0xabc).parse().unwrap())
    }

    fn admitted(run: &Value) -> Result<Value, String> {
        let Value::Object(mut arguments) = json!({ "run": run, "turn": 3 }) else { unreachable!() };
        bound().admit(&mut arguments).map(|()| arguments["run"].clone()).map_err(|error| error.code)
    }

    #[test]
    fn a_call_means_the_run_of_the_server_and_no_other_one() {
        let own = bound().0.to_string();
        assert_eq!(admitted(&json!(own)).unwrap(), json!(own));
        assert_eq!(admitted(&json!("abc")).unwrap(), json!(own), "a part of the id");
        for other in [json!(format!("run_{:032x}", 0xabd)), json!(""), json!(null), json!(7), json!(format!("{own}/1"))]
        {
            assert_eq!(admitted(&other), Err("access.other_run".to_owned()), "{other}");
        }
        let mut without = JsonObject::new();
        bound().admit(&mut without).unwrap();
        assert_eq!(without["run"], json!(own));
    }

    #[test]
    fn resources_belong_to_the_run() {
        let own = bound().0.to_string();
        assert_eq!(bound().admit_resource("attempts", &own).unwrap(), own);
        for (kind, run) in [("runs", "run_1"), ("tasks", own.as_str()), ("verifications", own.as_str())] {
            assert_eq!(bound().admit_resource(kind, run).unwrap_err().code, "access.other_run", "{kind}/{run}");
        }
    }

    #[test]
    fn every_tool_of_a_session_names_its_run() {
        let all = tools::all();
        for name in TOOLS {
            let entry = all.iter().find(|entry| entry.listed.name == name).unwrap();
            let properties = &entry.listed.input_schema["properties"];
            assert!(properties[RUN].is_object() && properties["campaign"].is_null(), "{name}");
        }
    }
}
