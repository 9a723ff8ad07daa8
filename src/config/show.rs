//! Every value of the configuration with its origin, secrets hidden.

use figment::value::Value;
use figment::{Figment, Profile, Provider};
use serde::Serialize;

/// Keys that may be absent, so that `config show` names them too.
const OPTIONAL: [&str; 27] = [
    "artifacts.max_bytes",
    "artifacts.url",
    "database.url",
    "external.deadline_s",
    "knowledge.folder",
    "prices",
    "prompts",
    "server.name",
    "server.open_reads",
    "server.otlp_endpoint",
    "server.retention_days",
    "server.token",
    "server.url",
    "server.worker_token",
    "worker.cache_dir",
    "worker.cpp_compiler",
    "worker.cpu_slots",
    "worker.cuda_arch",
    "worker.devices",
    "worker.drain_timeout_s",
    "worker.gpu_contexts",
    "worker.hf_home",
    "worker.labels",
    "worker.name",
    "worker.nvcc",
    "worker.profilers",
    "worker.python",
];

/// One value.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Shown {
    /// Its key, with dots.
    pub(crate) key: String,
    /// Its value; none when it is not set; hidden for secrets.
    pub(crate) value: Option<serde_json::Value>,
    /// Where it comes from.
    pub(crate) origin: String,
}

pub(super) fn shown(figment: &Figment) -> Vec<Shown> {
    let mut all = Vec::new();
    if let Ok(mut data) = figment.data() {
        for (key, value) in data.remove(&Profile::Default).unwrap_or_default() {
            walk(figment, &key, &value, &mut all);
        }
    }
    for key in OPTIONAL {
        if !all.iter().any(|shown| shown.key == key) {
            all.push(Shown { key: key.to_owned(), value: None, origin: "not set".to_owned() });
        }
    }
    all.sort_by(|a, b| a.key.cmp(&b.key));
    all
}

fn walk(figment: &Figment, key: &str, value: &Value, all: &mut Vec<Shown>) {
    if let Value::Dict(_, dict) = value {
        for (name, value) in dict {
            walk(figment, &format!("{key}.{name}"), value, all);
        }
        return;
    }
    let shown = if is_secret(key) {
        serde_json::Value::from("<hidden>")
    } else {
        serde_json::to_value(value).unwrap_or(serde_json::Value::Null)
    };
    let origin = figment.get_metadata(value.tag()).map_or_else(|| "unknown".to_owned(), |from| from.name.to_string());
    all.push(Shown { key: key.to_owned(), value: Some(shown), origin });
}

/// Returns whether the value of this key is hidden: its name contains token, key, secret or password. `key_env` only
/// names a variable, and is shown.
fn is_secret(key: &str) -> bool {
    let name = key.rsplit('.').next().unwrap_or(key);
    if key == "database.url" {
        return true;
    }
    let secret = ["token", "secret", "password", "key"].iter().any(|word| name.contains(word));
    secret && !name.ends_with("_env") && !name.ends_with("_tokens")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_called_a_key_or_token_is_hidden() {
        for secret in ["server.token", "server.worker_token", "models.x.api_key", "models.x.headers.password"] {
            assert!(is_secret(secret), "{secret}");
        }
        for open in ["models.x.key_env", "models.x.max_output_tokens", "server.bind"] {
            assert!(!is_secret(open), "{open}");
        }
    }
}
