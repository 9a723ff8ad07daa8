//! The property-based test of the API: schemathesis generates requests from `docs/openapi.json`, sends them to a server of
//! its own, and compares each answer with the document.

use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::command::{cargo, command, root, succeeds, target_folder};
use crate::{tools, wheel};

/// The package, pinned because another version generates other requests.
pub(crate) const SCHEMATHESIS: &str = "schemathesis==4.32.5";
/// What generates its requests and compares its answers, pinned for the same reason.
const UNDER_IT: [&str; 2] = ["hypothesis==6.170.17", "jsonschema_rs==0.60.3"];
/// Requests per operation at most.
const MAX_EXAMPLES: &str = "50";
/// What must hold of each answer. How fast it comes is not checked.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance";
/// A stream that does not end; the server's own tests read it.
const ENDLESS: &str = "/live";
/// How long the server may take to listen.
const MAX_START: Duration = Duration::from_mins(1);
const LOOK_PAUSE: Duration = Duration::from_millis(100);

/// Finds schemathesis, or installs it where that is allowed.
pub(crate) fn schemathesis(may_install: bool) -> Result<Option<PathBuf>> {
    let folder = target_folder()?.join(SCHEMATHESIS.replace("==", "-"));
    let program = folder.join("bin/schemathesis");
    if program.is_file() {
        return Ok(Some(program));
    }
    if !may_install {
        return Ok(None);
    }
    tools::ensure_python()?;
    wheel::environment(&folder)?;
    if !succeeds(command(folder.join("bin/pip")).args(["install", "--quiet", SCHEMATHESIS]).args(UNDER_IT))? {
        bail!("`pip install {SCHEMATHESIS} {}` failed: look at its output", UNDER_IT.join(" "));
    }
    Ok(Some(program))
}

/// Runs the task alone.
pub(crate) fn run(may_install: bool) -> Result<bool> {
    match schemathesis(may_install)? {
        Some(program) => check(&program),
        None => bail!("missing: schemathesis. Install it with `cargo xtask api --install`"),
    }
}

/// Sends the same requests each time to an empty server. Returns whether every answer was as documented.
pub(crate) fn check(schemathesis: &Path) -> Result<bool> {
    let target = target_folder()?;
    let folder = target.join("api-test");
    if folder.exists() {
        std::fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let document = folder.join("openapi.json");
    std::fs::write(&document, serde_json::to_vec(&without_tuples(read(&root().join("docs/openapi.json"))?))?)?;

    if !succeeds(cargo().args(["build", "--locked", "-p", "nightshift"]))? {
        return Ok(false);
    }
    let server = Server::start(&target.join("debug/nightshift"), &folder)?;
    let mut run = command(schemathesis);
    // A proxy of the machine would be asked for this address, too.
    run.env("NO_PROXY", "127.0.0.1").env("no_proxy", "127.0.0.1");
    run.arg("run").arg(&document).current_dir(&folder);
    run.args(["--url", &format!("{}/api/v1", server.address)]);
    run.args(["--header", &format!("authorization: Bearer {}", server.token)]);
    // The stateful phase depends on what earlier requests created, and the coverage phase takes minutes.
    run.args(["--phases", "fuzzing", "--generation-deterministic", "--max-examples", MAX_EXAMPLES, "--no-shrink"]);
    run.args(["--checks", CHECKS, "--exclude-path", ENDLESS, "--continue-on-failure", "--request-timeout", "60"]);
    run.args(["--warnings", "off", "--no-color"]);
    succeeds(&mut run)
}

/// Removes the description of tuples. Schemathesis translates it into an older form that it then refuses.
fn without_tuples(mut value: Value) -> Value {
    match &mut value {
        Value::Object(fields) => {
            if fields.remove("prefixItems").is_some() {
                fields.remove("items");
            }
            fields.values_mut().for_each(|field| *field = without_tuples(field.take()));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| *item = without_tuples(item.take())),
        _ => {}
    }
    value
}

fn read(path: &Path) -> Result<Value> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("cannot read {}", path.display()))
}

/// A server on an empty database. Dropping it ends the server.
struct Server {
    process: Child,
    address: String,
    token: String,
}

impl Server {
    /// Starts the program of this build, and waits until it listens.
    fn start(program: &Path, folder: &Path) -> Result<Self> {
        let data = folder.join("data");
        let mut serve = command(program);
        serve.args(["serve", "--no-worker", "--bind", "127.0.0.1:0", "--data-dir"]).arg(&data).env_clear();
        serve.env("HOME", folder).current_dir(folder).stdout(Stdio::null());
        let process = serve.spawn().with_context(|| format!("cannot run {}", program.display()))?;
        let mut server = Self { process, address: String::new(), token: String::new() };
        let began = Instant::now();
        // The server writes the file when it listens.
        while server.address.is_empty() || server.token.is_empty() {
            if let Some(status) = server.process.try_wait()? {
                bail!("the server ended at its start: {status}");
            }
            if began.elapsed() > MAX_START {
                bail!("the server did not listen within {} s", MAX_START.as_secs());
            }
            std::thread::sleep(LOOK_PAUSE);
            if let Ok(file) = read(&data.join("server.json")) {
                let text = |name: &str| file.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
                (server.address, server.token) = (text("address"), text("token"));
            }
        }
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tuples_are_removed_wherever_they_are() {
        let tuple = json!({"type": "array", "prefixItems": [{"type": "string"}], "items": false});
        let document = json!({"a": [{"items": tuple}], "items": {"type": "string"}});
        let expected = json!({"a": [{"items": {"type": "array"}}], "items": {"type": "string"}});
        assert_eq!(without_tuples(document), expected);
    }
}
