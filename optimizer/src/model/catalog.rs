//! The endpoints that are known, and the way from a name to a model.

use std::collections::BTreeMap;
use std::sync::Arc;

use nightshift_protocol::campaign::{EXTERNAL, ModelChoice};

use super::command::{CommandConfig, CommandProvider};
use super::endpoint::{Endpoint, EndpointConfig, KeyLookup, MaxTokensField, WireFormat, default_endpoints};
use super::external::{DEFAULT_AGENT, ExternalModel};
use super::live::LiveModel;
use super::probe::{ProbeReport, probe};
use super::transport::Transport;
use super::{Model, ModelError};

/// The name of the provider that answers from files.
pub const SCRIPTED: &str = "scripted";

/// The host of OpenAI's own addresses, those of its regions included.
const OPENAI_HOST: &str = "api.openai.com";

/// Longest name of a model, in bytes.
const MAX_MODEL_NAME_BYTES: usize = 256;

/// A text that names no model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` names no model: expected PROVIDER/NAME, for example `openai/gpt-5` or `vllm/Qwen/Qwen3-32B`, or `scripted` or `external`"
)]
pub struct InvalidModelName(String);

/// Reads `PROVIDER/NAME`. The name itself may contain slashes. `external` alone means any agent outside of Nightshift.
pub fn parse_choice(text: &str) -> Result<ModelChoice, InvalidModelName> {
    if text == SCRIPTED {
        return Ok(ModelChoice::Scripted);
    }
    if text == EXTERNAL {
        return Ok(ModelChoice::Live { endpoint: EXTERNAL.to_owned(), model: DEFAULT_AGENT.to_owned() });
    }
    let invalid = || InvalidModelName(text.chars().take(MAX_MODEL_NAME_BYTES).collect());
    let (endpoint, model) = text.split_once('/').ok_or_else(invalid)?;
    let usable = |part: &str| {
        !part.is_empty() && part.len() <= MAX_MODEL_NAME_BYTES && !part.chars().any(|c| c.is_control() || c == ' ')
    };
    if !usable(endpoint) || !usable(model) || endpoint == SCRIPTED {
        return Err(invalid());
    }
    Ok(ModelChoice::Live { endpoint: endpoint.to_owned(), model: model.to_owned() })
}

/// Reads models that stand in for one another, separated by commas: the first one is asked first.
pub fn parse_chain(text: &str) -> Result<Vec<ModelChoice>, InvalidModelName> {
    text.split(',').map(|part| parse_choice(part.trim())).collect()
}

/// The known endpoints. Models opened from one catalog share its connections and rate limits.
#[derive(Clone)]
pub struct Catalog {
    endpoints: BTreeMap<String, Arc<Endpoint>>,
    commands: BTreeMap<String, Arc<CommandProvider>>,
}

impl std::fmt::Debug for Catalog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let endpoints = self.endpoints.iter().map(|(name, endpoint)| (name, endpoint.config.shown_base_url()));
        let commands = self.commands.iter().map(|(name, command)| (name, command.config.shown()));
        f.debug_map().entries(endpoints.chain(commands)).finish()
    }
}

impl Default for Catalog {
    fn default() -> Self {
        Self::new(BTreeMap::new())
    }
}

impl Catalog {
    /// The endpoints that are known without configuration, with those of the configuration added or in their place.
    #[must_use]
    pub fn new(configured: BTreeMap<String, EndpointConfig>) -> Self {
        Self::with_environment(configured, &|_| None)
    }

    /// Like [`Catalog::new`], with base addresses taken from the environment where an endpoint names a variable.
    #[must_use]
    pub fn with_environment(
        configured: BTreeMap<String, EndpointConfig>,
        environment: &dyn Fn(&str) -> Option<String>,
    ) -> Self {
        let mut all = default_endpoints();
        for (_, built_in) in all.iter_mut().filter(|(name, _)| !configured.contains_key(*name)) {
            let address = built_in.base_url_env.as_deref().and_then(environment);
            let is_moved = address.is_some_and(|url| !url.trim().is_empty() && !url.contains(OPENAI_HOST));
            // Servers that stand in for OpenAI's speak chat completions, and few of them anything else.
            if is_moved && built_in.kind == WireFormat::OpenaiResponses {
                built_in.kind = WireFormat::Openai;
                built_in.max_tokens_field = MaxTokensField::MaxCompletionTokens;
            }
        }
        all.extend(configured);
        let endpoints = all
            .into_iter()
            .map(|(name, mut config)| {
                if let Some(base_url) = config.base_url_env.as_deref().and_then(environment) {
                    let base_url = base_url.trim();
                    if !base_url.is_empty() {
                        base_url.clone_into(&mut config.base_url);
                    }
                }
                (name.clone(), Arc::new(Endpoint::new(name, config)))
            })
            .collect();
        Self { endpoints, commands: BTreeMap::new() }
    }

    /// The same with these commands, which take the place of endpoints of their names.
    #[must_use]
    pub fn with_commands(mut self, commands: BTreeMap<String, CommandConfig>) -> Self {
        for (name, config) in commands {
            self.endpoints.remove(&name);
            self.commands.insert(name.clone(), Arc::new(CommandProvider::new(name, config)));
        }
        self
    }

    /// Names and configurations of commands, in order.
    pub fn commands(&self) -> impl Iterator<Item = (&str, &CommandConfig)> {
        self.commands.iter().map(|(name, command)| (name.as_str(), &command.config))
    }

    /// Whether the endpoint of a choice is known; nothing is said about its key or its model.
    pub fn knows(&self, choice: &ModelChoice) -> Result<(), ModelError> {
        match choice {
            ModelChoice::Scripted => Ok(()),
            choice if choice.is_external() => Ok(()),
            ModelChoice::Live { endpoint, .. } if self.commands.contains_key(endpoint) => Ok(()),
            ModelChoice::Live { endpoint, .. } => self.endpoint(endpoint).map(drop),
        }
    }

    /// Names and configurations, in order.
    pub fn endpoints(&self) -> impl Iterator<Item = (&str, &EndpointConfig)> {
        self.endpoints.iter().map(|(name, endpoint)| (name.as_str(), &endpoint.config))
    }

    /// Opens a live model. Nothing is sent yet. The scripted model belongs to a run and is opened by the agents.
    pub fn open(&self, choice: &ModelChoice, keys: KeyLookup<'_>) -> Result<Arc<dyn Model>, ModelError> {
        let ModelChoice::Live { endpoint, model } = choice else {
            return Err(ModelError::NoScript { message: "a catalog holds live models only".to_owned() });
        };
        if choice.is_external() {
            return Ok(Arc::new(ExternalModel { name: model.clone() }));
        }
        if let Some(command) = self.commands.get(endpoint) {
            return Ok(Arc::new(command.open(model.clone(), keys)?));
        }
        let endpoint = self.endpoint(endpoint)?;
        let transport = transport(&endpoint, keys)?;
        Ok(Arc::new(LiveModel::new(endpoint, model.clone(), transport)))
    }

    /// Asks an endpoint for its list of models: is it there, does it take the key, which models does it offer?
    pub async fn probe(&self, endpoint: &str, keys: KeyLookup<'_>) -> Result<ProbeReport, ModelError> {
        if endpoint == EXTERNAL {
            let base_url = "requests that outside agents answer".to_owned();
            return Ok(ProbeReport { endpoint: EXTERNAL.to_owned(), base_url, models: None });
        }
        if let Some(command) = self.commands.get(endpoint) {
            return command.probe(keys);
        }
        let endpoint = self.endpoint(endpoint)?;
        let transport = transport(&endpoint, keys)?;
        probe(&transport).await
    }

    fn endpoint(&self, name: &str) -> Result<Arc<Endpoint>, ModelError> {
        self.endpoints.get(name).cloned().ok_or_else(|| ModelError::UnknownEndpoint {
            endpoint: name.to_owned(),
            known: self.endpoints.keys().chain(self.commands.keys()).map(String::as_str).collect::<Vec<_>>().join(", "),
        })
    }
}

fn transport(endpoint: &Arc<Endpoint>, keys: KeyLookup<'_>) -> Result<Transport, ModelError> {
    let parsed = reqwest::Url::parse(&endpoint.config.base_url);
    if !parsed.is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host()) {
        return Err(ModelError::Misconfigured {
            endpoint: endpoint.name.clone(),
            message: "`base_url` is not an http or https address".to_owned(),
        });
    }
    let key = match &endpoint.config.key_env {
        None => None,
        Some(variable) => match keys(variable) {
            Some(key) => Some(key),
            None if endpoint.config.key_optional => None,
            None => {
                return Err(ModelError::NoKey { endpoint: endpoint.name.clone(), variable: variable.clone() });
            }
        },
    };
    Transport::new(Arc::clone(endpoint), endpoint.client()?, key)
}

#[cfg(test)]
mod tests {
    use secrecy::SecretString;

    use super::*;

    #[test]
    fn a_models_name_may_contain_slashes() {
        let expected = ModelChoice::Live { endpoint: "vllm".to_owned(), model: "Qwen/Qwen3-32B".to_owned() };
        assert_eq!(parse_choice("vllm/Qwen/Qwen3-32B"), Ok(expected));
        assert_eq!(parse_choice("scripted"), Ok(ModelChoice::Scripted));
    }

    #[test]
    fn an_outside_agent_may_have_a_name_and_needs_no_key() {
        let labels = |text: &str| parse_choice(text).map(|choice| (choice.label(), choice.is_external()));
        assert_eq!(labels("external"), Ok(("external/agent".to_owned(), true)));
        assert_eq!(labels("external/night-shift"), Ok(("external/night-shift".to_owned(), true)));
        let catalog = Catalog::default();
        let Ok(choice) = parse_choice("external") else { panic!("not read") };
        assert!(catalog.knows(&choice).is_ok());
        let Ok(model) = catalog.open(&choice, &|_| None) else { panic!("not opened") };
        assert!(model.is_external() && !model.is_scripted());
        assert_eq!(model.label(), "external/agent");
    }

    #[test]
    fn a_server_in_the_place_of_openai_is_asked_for_chat_completions() {
        let openai = |catalog: &Catalog| {
            let found = catalog.endpoints().find(|(name, _)| *name == "openai");
            found.map(|(_, endpoint)| (endpoint.kind, endpoint.max_tokens_field))
        };
        let kind = |catalog: &Catalog| openai(catalog).map(|(kind, _)| kind);
        let moved = |name: &str| (name == "OPENAI_BASE_URL").then(|| "http://127.0.0.1:8000/v1".to_owned());
        let region = |name: &str| (name == "OPENAI_BASE_URL").then(|| "https://eu.api.openai.com/v1".to_owned());
        assert_eq!(kind(&Catalog::default()), Some(WireFormat::OpenaiResponses));
        let expected = Some((WireFormat::Openai, MaxTokensField::MaxCompletionTokens));
        assert_eq!(openai(&Catalog::with_environment(BTreeMap::new(), &moved)), expected);
        let of_region = Catalog::with_environment(BTreeMap::new(), &region);
        assert_eq!(kind(&of_region), Some(WireFormat::OpenaiResponses));
        let own = EndpointConfig::new(WireFormat::OpenaiResponses, "https://api.openai.com/v1");
        let configured = BTreeMap::from([("openai".to_owned(), own)]);
        assert_eq!(kind(&Catalog::with_environment(configured, &moved)), Some(WireFormat::OpenaiResponses));
    }

    #[test]
    fn models_that_stand_in_are_separated_by_commas() {
        let chain = parse_chain("openai/gpt-5, vllm/Qwen/Qwen3-32B,scripted").unwrap_or_default();
        let labels: Vec<String> = chain.iter().map(ModelChoice::label).collect();
        assert_eq!(labels, ["openai/gpt-5", "vllm/Qwen/Qwen3-32B", "scripted"]);
        assert!(parse_chain("openai/gpt-5,").is_err());
    }

    #[test]
    fn a_command_takes_the_place_of_an_endpoint() {
        let command = CommandConfig::new(vec!["cat".to_owned()]);
        let catalog = Catalog::default().with_commands(BTreeMap::from([("openai".to_owned(), command)]));
        let choice = ModelChoice::Live { endpoint: "openai".to_owned(), model: "m".to_owned() };
        assert!(catalog.knows(&choice).is_ok());
        let Ok(model) = catalog.open(&choice, &|_| None) else { panic!("not opened") };
        assert_eq!(model.label(), "openai/m");
        let unknown = ModelChoice::Live { endpoint: "nowhere".to_owned(), model: "m".to_owned() };
        assert!(catalog.knows(&unknown).is_err_and(|error| error.code() == "model.not_found"));
        assert!(catalog.knows(&ModelChoice::Scripted).is_ok());
    }

    #[test]
    fn a_text_without_both_parts_names_no_model() {
        for text in ["", "gpt-5", "/gpt-5", "openai/", "openai/gpt 5", "scripted/x", "openai/a\nb"] {
            assert!(parse_choice(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_missing_key_names_the_variable_to_set() {
        let choice = ModelChoice::Live { endpoint: "openai".to_owned(), model: "gpt-5".to_owned() };
        let Err(error) = Catalog::default().open(&choice, &|_| None) else { panic!("opened without a key") };
        assert_eq!(error.code(), "model.auth");
        assert!(error.to_string().contains("OPENAI_API_KEY"), "{error}");
    }

    #[test]
    fn an_unknown_endpoint_lists_the_known_ones() {
        let choice = ModelChoice::Live { endpoint: "nowhere".to_owned(), model: "m".to_owned() };
        let Err(error) = Catalog::default().open(&choice, &|_| None) else { panic!("opened") };
        assert_eq!(error.code(), "model.not_found");
        assert!(error.to_string().contains("anthropic, llamacpp, ollama, openai, sglang, vllm"), "{error}");
    }

    #[test]
    fn the_environment_replaces_a_base_address() {
        let catalog = Catalog::with_environment(BTreeMap::new(), &|name| {
            (name == "OPENAI_BASE_URL").then(|| "http://127.0.0.1:9/v1".to_owned())
        });
        let Some((_, config)) = catalog.endpoints().find(|(name, _)| *name == "openai") else { panic!("no openai") };
        assert_eq!(config.base_url, "http://127.0.0.1:9/v1");
    }

    #[test]
    fn a_key_never_shows_in_a_debug_text() {
        let choice = ModelChoice::Live { endpoint: "vllm".to_owned(), model: "m".to_owned() };
        let catalog = Catalog::default();
        let Ok(endpoint) = catalog.endpoint("vllm") else { panic!("no vllm") };
        let Ok(transport) = transport(&endpoint, &|_| Some(SecretString::from("hush-hush"))) else { panic!("no key") };
        assert!(!format!("{catalog:?} {transport:?} {choice:?}").contains("hush"));
    }
}
