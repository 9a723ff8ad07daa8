//! Templates that a template includes.

/// The names that a template includes: always literals, which a test holds.
pub(super) fn included(source: &str) -> Vec<String> {
    source.split("{% include \"").skip(1).filter_map(|rest| rest.split('"').next()).map(str::to_owned).collect()
}
