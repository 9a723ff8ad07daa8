//! Reading the configuration from its four sources, each value with its origin.

use std::path::{Path, PathBuf};

use figment::error::Kind;
use figment::providers::{Format, Toml};
use figment::value::{Dict, Map, Value};
use figment::{Figment, Metadata, Profile, Provider};

use super::Config;
use super::show::{Shown, shown};
use crate::environment::{Environment, FOR_PROGRAMS};
use crate::failure::{Failure, Result};

/// What every variable of ours begins with.
const PREFIX: &str = "NIGHTSHIFT_";
/// The field's own name for the address of a database.
const DATABASE_VARIABLE: &str = "DATABASE_URL";
/// Names the configuration file itself, so it is no key of it.
const CONFIG_VARIABLE: &str = "NIGHTSHIFT_CONFIG";
/// How alike an unknown key has to be to a known one to be suggested, from 0 to 1.
const MIN_LIKENESS: f64 = 0.7;

const DEFAULTS: &str = r#"
log = "warn"
[server]
bind = "127.0.0.1:7777"
[worker]
"#;

/// Values given on the command line.
#[derive(Debug, Clone, Default)]
pub(crate) struct Flags {
    /// `--config`.
    pub(crate) config: Option<PathBuf>,
    /// Flag, key and value.
    pub(crate) values: Vec<(&'static str, &'static str, String)>,
}

/// The configuration with the origin of each value.
#[derive(Clone)]
pub(crate) struct Loaded {
    /// The configuration.
    pub(crate) config: Config,
    /// The file that is read when it exists, or that was named.
    pub(crate) file: Option<PathBuf>,
    /// Whether it was there.
    pub(crate) file_read: bool,
    /// Every value with its origin; secrets hidden.
    pub(crate) shown: Vec<Shown>,
}

/// Reads the configuration.
pub(crate) fn load(flags: &Flags, environment: &Environment) -> Result<Loaded> {
    let named = flags.config.clone().or_else(|| environment.get(CONFIG_VARIABLE).map(PathBuf::from));
    if let Some(file) = named.as_deref().filter(|file| !file.is_file()) {
        return Err(Failure::new("config.file_missing", format!("there is no file `{}`", file.display())));
    }
    let file = named.or_else(|| environment.default_config_file());
    let file_read = file.as_deref().is_some_and(Path::is_file);

    let mut figment = Figment::from(Named { name: "default".to_owned(), source: Toml::string(DEFAULTS) });
    if let Some(folder) = environment.default_data_dir() {
        figment = figment.merge(One::new("default".to_owned(), "data_dir", &folder.to_string_lossy()));
    }
    if let Some(file) = file.as_deref().filter(|_| file_read) {
        figment = figment.merge(Named { name: format!("file {}", file.display()), source: Toml::file_exact(file) });
    }
    if let Some(url) = environment.get(DATABASE_VARIABLE) {
        figment = figment.merge(One::new(format!("environment variable {DATABASE_VARIABLE}"), "database.url", url));
    }
    let is_key = |name: &str| name != CONFIG_VARIABLE && !FOR_PROGRAMS.contains(&name);
    for (name, value) in environment.with_prefix(PREFIX).filter(|(name, _)| is_key(name)) {
        let key = name.trim_start_matches(PREFIX).to_ascii_lowercase().replace("__", ".");
        figment = figment.merge(One::new(format!("environment variable {name}"), &key, value));
    }
    for (flag, key, value) in &flags.values {
        figment = figment.merge(One::new(format!("flag {flag}"), key, value));
    }

    let config: Config = figment.extract_lossy().map_err(|error| explain(&error))?;
    let shown = shown(&figment);
    Ok(Loaded { config, file, file_read, shown })
}

/// A provider under a name of ours.
struct Named<P> {
    name: String,
    source: P,
}

impl<P: Provider> Provider for Named<P> {
    fn metadata(&self) -> Metadata {
        Metadata::named(self.name.clone())
    }

    fn data(&self) -> std::result::Result<Map<Profile, Dict>, figment::Error> {
        self.source.data()
    }
}

/// One value of one variable or flag. Always text: reading it turns it into what the key takes.
struct One {
    name: String,
    key: String,
    value: String,
}

impl One {
    fn new(name: String, key: &str, value: &str) -> Self {
        Self { name, key: key.to_owned(), value: value.to_owned() }
    }
}

impl Provider for One {
    fn metadata(&self) -> Metadata {
        Metadata::named(self.name.clone())
    }

    fn data(&self) -> std::result::Result<Map<Profile, Dict>, figment::Error> {
        let nested = figment::util::nest(&self.key, Value::from(self.value.as_str()));
        let dict = nested.into_dict().unwrap_or_default();
        Ok(Map::from([(Profile::Default, dict)]))
    }
}

fn explain(error: &figment::Error) -> Failure {
    let origin = error.metadata.as_ref().map(|metadata| format!(" ({})", metadata.name)).unwrap_or_default();
    let mut path = error.path.clone();
    match &error.kind {
        Kind::UnknownField(field, known) => {
            if path.last() != Some(field) {
                path.push(field.clone());
            }
            let failure = Failure::new(
                "config.unknown_key",
                format!("the configuration has no key `{}`{origin}", path.join(".")),
            );
            match closest(field, known) {
                Some(known) => failure.hint(format!("did you mean `{known}`?")),
                None => failure.hint(format!("known here: {}", known.join(", "))),
            }
        }
        Kind::MissingField(field) if field == "data_dir" => {
            Failure::new("config.no_data_dir", "there is no place for data: neither HOME nor XDG_DATA_HOME is set")
                .hint("give one with --data-dir or NIGHTSHIFT_DATA_DIR")
        }
        kind => {
            let place = if path.is_empty() { String::new() } else { format!("`{}`: ", path.join(".")) };
            let text = kind.to_string();
            // A syntax error quotes lines of the file: the file's name goes into the first one.
            let (first, rest) = text.split_at(text.find('\n').unwrap_or(text.len()));
            Failure::new("config.invalid", format!("{place}{first}{origin}{rest}"))
        }
    }
}

/// The most similar known key, if one is similar enough.
pub(crate) fn closest<'a>(given: &str, known: &[&'a str]) -> Option<&'a str> {
    known
        .iter()
        .map(|known| (strsim::jaro_winkler(given, known), *known))
        .filter(|(likeness, _)| *likeness >= MIN_LIKENESS)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, known)| known)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn origin<'a>(loaded: &'a Loaded, key: &str) -> &'a str {
        loaded.shown.iter().find(|shown| shown.key == key).unwrap().origin.as_str()
    }

    #[test]
    fn a_flag_wins_over_a_variable_over_the_file_over_the_default() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.toml");
        std::fs::write(&file, "log = \"info\"\n[server]\nbind = \"127.0.0.1:1\"\n[worker]\ncpu_slots = 3\n").unwrap();
        let environment: Environment =
            [("HOME", "/home/someone"), ("NIGHTSHIFT_SERVER__BIND", "127.0.0.1:2"), ("NIGHTSHIFT_LOG", "debug")]
                .into_iter()
                .collect();
        let flags = Flags { config: Some(file), values: vec![("--data-dir", "data_dir", "/data".to_owned())] };
        let loaded = load(&flags, &environment).unwrap();
        assert_eq!(loaded.config.data_dir, Path::new("/data"));
        assert_eq!(loaded.config.server.bind.port(), 2);
        assert_eq!(loaded.config.worker.cpu_slots, Some(3));
        assert_eq!(loaded.config.log, "debug");
        assert_eq!(origin(&loaded, "data_dir"), "flag --data-dir");
        assert_eq!(origin(&loaded, "server.bind"), "environment variable NIGHTSHIFT_SERVER__BIND");
        assert!(origin(&loaded, "worker.cpu_slots").starts_with("file "));
        assert_eq!(origin(&loaded, "worker.name"), "not set");
    }

    #[test]
    fn a_number_in_a_variable_is_read_as_what_the_key_takes() {
        let environment: Environment =
            [("HOME", "/home/someone"), ("NIGHTSHIFT_WORKER__CPU_SLOTS", "7"), ("NIGHTSHIFT_SERVER__TOKEN", "12345")]
                .into_iter()
                .collect();
        let loaded = load(&Flags::default(), &environment).unwrap();
        assert_eq!(loaded.config.worker.cpu_slots, Some(7));
        assert!(loaded.config.server.token.is_some());
        let token = loaded.shown.iter().find(|shown| shown.key == "server.token").unwrap();
        assert!(!format!("{token:?}").contains("12345"));
    }

    #[test]
    fn an_unknown_key_is_refused_with_the_key_that_was_meant() {
        let environment: Environment =
            [("HOME", "/home/someone"), ("NIGHTSHIFT_SERVER__BNID", "x")].into_iter().collect();
        let Err(failure) = load(&Flags::default(), &environment) else { panic!("it was accepted") };
        assert_eq!(failure.error.code, "config.unknown_key");
        assert!(failure.error.message.contains("server.bnid"), "{}", failure.error.message);
        assert!(failure.error.message.contains("NIGHTSHIFT_SERVER__BNID"), "{}", failure.error.message);
        assert_eq!(failure.hint.as_deref(), Some("did you mean `bind`?"));
    }

    #[test]
    fn the_address_of_another_kind_of_database_is_refused_and_not_repeated() {
        for (url, accepted) in [
            ("postgres://u:hunter2@h/d", true),
            ("postgresql:///night", true),
            ("mysql://u:hunter2@h/d", false),
            ("sqlite:///hunter2.db", false),
        ] {
            let environment: Environment = [("HOME", "/home/someone"), ("DATABASE_URL", url)].into_iter().collect();
            match load(&Flags::default(), &environment) {
                Ok(loaded) => assert!(accepted && loaded.config.database.url.is_some(), "{url}"),
                Err(failure) => {
                    assert!(!accepted, "{url}");
                    assert_eq!(failure.error.code, "config.invalid");
                    let message = &failure.error.message;
                    assert!(message.contains("database.url") && message.contains("DATABASE_URL"), "{message}");
                    assert!(!message.contains("hunter2"), "{message}");
                }
            }
        }
    }

    #[test]
    fn without_a_home_a_data_folder_has_to_be_named() {
        let Err(failure) = load(&Flags::default(), &Environment::default()) else { panic!("it was accepted") };
        assert_eq!(failure.error.code, "config.no_data_dir");
    }
}
