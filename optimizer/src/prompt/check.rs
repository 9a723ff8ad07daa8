//! Finds variables that a template names and no step provides, also in branches that no rendering takes.

use std::collections::{BTreeMap, BTreeSet};

use minijinja::value::ValueKind;
use minijinja::{Environment, Value};

use super::inclusion::included;

/// What one prompt was made from.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    /// Its templates, without those that they include.
    pub(super) names: [&'static str; 2],
    /// What they were given.
    pub(super) values: Value,
}

/// What is wrong with a template.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PromptProblem {
    /// The template, as a path below the folder of prompts; or the recording that could not be used.
    pub template: String,
    /// Line, from 1, when it is known.
    pub line: Option<u32>,
    /// What is wrong.
    pub message: String,
}

impl std::fmt::Display for PromptProblem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.template, self.message),
            None => write!(f, "{}: {}", self.template, self.message),
        }
    }
}

/// How often a name was given, over all prompts.
#[derive(Default)]
struct Given {
    found: bool,
    missing: bool,
}

/// Looks for names that were never given where they could have been, and for templates that no prompt used.
pub(super) fn problems(
    environment: &Environment<'_>,
    sources: &BTreeMap<String, String>,
    seen: &[Seen],
    answered: &[&'static str],
) -> Vec<PromptProblem> {
    let mut given: BTreeMap<(String, String), Given> = BTreeMap::new();
    let mut used: BTreeSet<String> = answered.iter().map(|name| (*name).to_owned()).collect();
    let mut known: BTreeSet<String> = environment.globals().map(|(name, _)| name.to_owned()).collect();
    // What a template assigns is known in those that it includes, too.
    known.extend(sources.values().flat_map(|source| assigned(source)));
    for sight in seen {
        for name in with_inclusions(sources, &sight.names) {
            let Ok(template) = environment.get_template(&name) else { continue };
            for path in template.undeclared_variables(true) {
                if path.split('.').next().is_some_and(|first| known.contains(first)) {
                    continue;
                }
                let given = given.entry((name.clone(), path.clone())).or_default();
                match look_up(&sight.values, &path) {
                    Some(true) => given.found = true,
                    Some(false) => given.missing = true,
                    // Its parent is none here: another prompt may decide it.
                    None => {}
                }
            }
            used.insert(name);
        }
    }
    let mut problems = Vec::new();
    for ((template, path), given) in given {
        let source = sources.get(&template).map_or("", String::as_str);
        let asks_first =
            source.contains(&format!("{path} is defined")) || source.contains(&format!("{path} is not defined"));
        if given.missing && !given.found && !asks_first {
            let line = line_of(source, &path);
            problems.push(PromptProblem { template, line, message: format!("unknown variable `{path}`") });
        }
    }
    for template in sources.keys().filter(|name| !used.contains(*name)) {
        let message = "no recorded step uses it, so it is not known whether it can be rendered".to_owned();
        problems.push(PromptProblem { template: template.clone(), line: None, message });
    }
    problems
}

/// Names that a template assigns: `{% set NAME = ... %}`, `{% with NAME = ... %}`.
fn assigned(source: &str) -> Vec<String> {
    let blocks = source.split("{%").skip(1).map(|block| block.trim_start_matches(['-', ' ']));
    blocks
        .filter_map(|block| block.strip_prefix("set ").or_else(|| block.strip_prefix("with ")))
        .filter_map(|rest| rest.split(['=', ' ', '%']).find(|word| !word.is_empty()))
        .map(str::to_owned)
        .collect()
}

/// Whether there is a value at the end of a path; none when that cannot be told, because something before it is no map.
fn look_up(values: &Value, path: &str) -> Option<bool> {
    let mut value = values.clone();
    for part in path.split('.') {
        if value.kind() != ValueKind::Map {
            return None;
        }
        value = value.get_attr(part).ok()?;
        if value.is_undefined() {
            return Some(false);
        }
    }
    Some(true)
}

fn with_inclusions(sources: &BTreeMap<String, String>, names: &[&str]) -> BTreeSet<String> {
    let mut used = BTreeSet::new();
    let mut open: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    while let Some(name) = open.pop() {
        if let Some(source) = sources.get(&name)
            && used.insert(name)
        {
            open.extend(included(source));
        }
    }
    used
}

/// The first line that names a path, as a whole word.
fn line_of(source: &str, path: &str) -> Option<u32> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
    let names = |line: &str| {
        line.match_indices(path).any(|(at, _)| {
            !line[..at].ends_with(is_word)
                && !line[at + path.len()..].starts_with(|c: char| c.is_alphanumeric() || c == '_')
        })
    };
    source.lines().position(names).and_then(|at| u32::try_from(at + 1).ok())
}

/// The place that an error of a template names last: `(in NAME:LINE)`.
pub(crate) fn place_of(detail: &str) -> Option<(String, u32)> {
    let place = detail.rsplit_once("(in ")?.1.split_once(')')?.0;
    let (name, line) = place.rsplit_once(':')?;
    Some((name.to_owned(), line.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_of_an_error_is_the_innermost_one() {
        let detail = "could not render include: error in \"b.md\" (in a.md:3): undefined value (in shared/b.md:12)";
        assert_eq!(place_of(detail), Some(("shared/b.md".to_owned(), 12)));
        assert_eq!(place_of("nothing"), None);
    }

    #[test]
    fn a_path_is_given_missing_or_unknown() {
        let values = Value::from(minijinja::value::Serde(
            serde_json::json!({"attempt": {"build": null, "number": 3}, "text": "x"}),
        ));
        assert_eq!(look_up(&values, "attempt.number"), Some(true));
        assert_eq!(look_up(&values, "attempt.nubmer"), Some(false));
        assert_eq!(look_up(&values, "attempt.build.log"), None, "its parent is none here, so it cannot be checked");
        assert_eq!(look_up(&values, "nothing"), Some(false));
    }

    #[test]
    fn what_a_template_assigns_is_known() {
        let source = "{% set seen = attempt.gpu %}{%- with a=1 %}{{ b }}{% if set %}";
        assert_eq!(assigned(source), ["seen", "a"]);
    }

    #[test]
    fn a_line_is_found_by_the_whole_name() {
        let source = "{{ attempt.number_of }}\n{{ an_attempt.number }}\n{% if attempt.number %}";
        assert_eq!(line_of(source, "attempt.number"), Some(3));
        assert_eq!(line_of(source, "attempt"), Some(1));
        assert_eq!(line_of(source, "plan"), None);
    }
}
