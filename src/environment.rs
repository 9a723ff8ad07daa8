//! The environment variables, read once. Other modules receive them as a value.

use std::collections::BTreeMap;
use std::path::PathBuf;

/// Holds the path of the description of the MCP server of a session, for the coding agent that works on it.
pub(crate) const MCP_CONFIG_VARIABLE: &str = "NIGHTSHIFT_MCP_CONFIG";
/// Holds the id of the run of a session, for the coding agent that works on it.
pub(crate) const RUN_VARIABLE: &str = "NIGHTSHIFT_RUN";
/// Variables that this program sets for programs that it starts. They may start this program again.
pub(crate) const FOR_PROGRAMS: [&str; 3] = [MCP_CONFIG_VARIABLE, RUN_VARIABLE, "NIGHTSHIFT_MODEL"];

/// The variables of this process.
#[derive(Clone, Default)]
pub(crate) struct Environment {
    variables: BTreeMap<String, String>,
}

impl Environment {
    /// Reads the environment of this process. Variables that are no text are left out.
    pub(crate) fn read() -> Self {
        let variables = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        Self { variables }
    }

    /// The value of a variable; an empty one counts as not set.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// The value of a variable to which being empty means something.
    pub(crate) fn even_empty(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str)
    }

    /// Names and values that begin with a prefix.
    pub(crate) fn with_prefix<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.variables
            .iter()
            .filter(move |(name, value)| name.starts_with(prefix) && !value.is_empty())
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Folders of `PATH`.
    pub(crate) fn search_path(&self) -> Vec<PathBuf> {
        self.get("PATH").map(|path| std::env::split_paths(path).collect()).unwrap_or_default()
    }

    /// `$XDG_CONFIG_HOME/nightshift/config.toml`, or the same below `~/.config`.
    pub(crate) fn default_config_file(&self) -> Option<PathBuf> {
        self.xdg("XDG_CONFIG_HOME", ".config").map(|folder| folder.join("nightshift").join("config.toml"))
    }

    /// `$XDG_DATA_HOME/nightshift`, or the same below `~/.local/share`.
    pub(crate) fn default_data_dir(&self) -> Option<PathBuf> {
        self.xdg("XDG_DATA_HOME", ".local/share").map(|folder| folder.join("nightshift"))
    }

    /// `$XDG_CACHE_HOME/nightshift`, or the same below `~/.cache`.
    pub(crate) fn default_cache_dir(&self) -> Option<PathBuf> {
        self.xdg("XDG_CACHE_HOME", ".cache").map(|folder| folder.join("nightshift"))
    }

    /// Relative values are ignored, as the convention of these variables asks for.
    fn xdg(&self, variable: &str, below_home: &str) -> Option<PathBuf> {
        let absolute = |name: &str| self.get(name).map(PathBuf::from).filter(|path| path.is_absolute());
        absolute(variable).or_else(|| absolute("HOME").map(|home| home.join(below_home)))
    }
}

#[cfg(test)]
impl FromIterator<(&'static str, &'static str)> for Environment {
    fn from_iter<I: IntoIterator<Item = (&'static str, &'static str)>>(variables: I) -> Self {
        Self { variables: variables.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect() }
    }
}
