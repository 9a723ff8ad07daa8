//! Is an endpoint there, does it take the key, which models does it offer?

use serde_json::Value;

use super::ModelError;
use super::transport::Transport;

/// Most names of models that a report holds.
const MAX_MODELS: usize = 1_000;

/// What an endpoint said about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeReport {
    /// Name of the endpoint.
    pub endpoint: String,
    /// Its address, without secrets.
    pub base_url: String,
    /// The models that it offers, in its own order; none when it has no such list.
    pub models: Option<Vec<String>>,
}

pub(super) async fn probe(transport: &Transport) -> Result<ProbeReport, ModelError> {
    let endpoint = transport.endpoint();
    let models = match transport.get("models").await {
        Ok(body) => Some(names(&body).ok_or_else(|| ModelError::Malformed {
            endpoint: endpoint.name.clone(),
            message: "its list of models has no `data`; is `base_url` right?".to_owned(),
            excerpt: format!("({} bytes)", body.len()),
        })?),
        // It answered, so it is there: some servers just do not list their models.
        Err(ModelError::NotFound { .. }) => None,
        Err(error) => return Err(error),
    };
    Ok(ProbeReport { endpoint: endpoint.name.clone(), base_url: endpoint.config.shown_base_url(), models })
}

fn names(body: &[u8]) -> Option<Vec<String>> {
    let list: Value = serde_json::from_slice(body).ok()?;
    match list.get("data")? {
        // Ollama without any model.
        Value::Null => Some(Vec::new()),
        Value::Array(entries) => Some(
            entries
                .iter()
                .filter_map(|entry| entry.get("id").and_then(Value::as_str))
                .take(MAX_MODELS)
                .map(str::to_owned)
                .collect(),
        ),
        _ => None,
    }
}
