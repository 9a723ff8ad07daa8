//! The modules of a crate, and who imports whom, read from its sources.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::sources::sources;

/// The path of a module in its crate, without the crate's name; empty for the root.
pub(crate) type ModulePath = Vec<String>;

/// The modules of one crate.
pub(crate) struct Modules {
    texts: BTreeMap<ModulePath, String>,
    /// Names that a module imports or hands on, with the path that each stands for.
    exports: BTreeMap<(ModulePath, String), Vec<String>>,
}

impl Modules {
    /// Reads the sources of a crate. What a module holds for its own tests does not count.
    pub(crate) fn read(folder: &Path) -> Self {
        let mut texts = BTreeMap::new();
        for (path, text) in sources(folder) {
            let relative = path.strip_prefix(folder).unwrap().with_extension("");
            let mut module: ModulePath =
                relative.components().map(|part| part.as_os_str().to_str().unwrap().to_owned()).collect();
            if ["lib", "main"].contains(&module[0].as_str()) {
                module.remove(0);
            }
            if module.first().is_some_and(|first| first == "bin") || module.last().is_some_and(|last| last == "tests") {
                continue;
            }
            let lines = before_tests(&text).lines().filter(|line| !line.trim_start().starts_with("//"));
            texts.insert(module, lines.collect::<Vec<_>>().join("\n"));
        }
        let for_tests: Vec<ModulePath> =
            texts.iter().flat_map(|(module, text)| test_modules(text).map(|name| below(module, name))).collect();
        texts.retain(|module, _| !for_tests.iter().any(|skipped| module.starts_with(skipped)));
        let mut modules = Self { texts, exports: BTreeMap::new() };
        for (module, text) in &modules.texts {
            // A module below can also name what this one imports for itself.
            for statement in statements(text, &["\nuse ", "pub use ", "pub(crate) use ", "pub(super) use "]) {
                for path in expand(statement) {
                    if let Some(name) = path.last() {
                        modules.exports.insert((module.clone(), name.clone()), path.clone());
                    }
                }
            }
        }
        modules
    }

    /// Imports between modules of which neither holds the other, as pairs.
    pub(crate) fn imports(&self) -> BTreeSet<(ModulePath, ModulePath)> {
        let mut imports = BTreeSet::new();
        for (module, text) in &self.texts {
            for path in paths(text) {
                let Some(used) = self.resolve(module, &path, 0) else { continue };
                if !used.starts_with(module) && !module.starts_with(&used) {
                    imports.insert((module.clone(), used));
                }
            }
        }
        imports
    }

    /// Modules of one folder, with all below them, that import each other in a circle, as readable lines.
    pub(crate) fn circles(&self) -> Vec<String> {
        // Of every import, the two modules side by side that it ties.
        let mut ties: BTreeMap<ModulePath, BTreeSet<ModulePath>> = BTreeMap::new();
        for (from, to) in self.imports() {
            let shared = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
            ties.entry(from[..=shared].to_vec()).or_default().insert(to[..=shared].to_vec());
        }
        let reaches = |from: &ModulePath, to: &ModulePath| {
            let mut seen = BTreeSet::new();
            let mut open: Vec<&ModulePath> = ties.get(from).into_iter().flatten().collect();
            while let Some(next) = open.pop() {
                if seen.insert(next) {
                    open.extend(ties.get(next).into_iter().flatten());
                }
            }
            seen.contains(to)
        };
        let circle = |(from, to): &(&ModulePath, &ModulePath)| reaches(to, from);
        let all = ties.iter().flat_map(|(from, others)| others.iter().map(move |to| (from, to)));
        all.filter(circle).map(|(from, to)| format!("{} imports {}", from.join("::"), to.join("::"))).collect()
    }

    /// Finds the module that a path leads to, through the names that modules hand on.
    fn resolve(&self, from: &ModulePath, path: &[String], depth: usize) -> Option<ModulePath> {
        let mut at = from.clone();
        let mut rest = path;
        let mut first = true;
        while let Some((name, after)) = rest.split_first() {
            match name.as_str() {
                "crate" => at.clear(),
                "super" => {
                    at.pop();
                }
                "self" => {}
                name => {
                    let below = below(&at, name);
                    if self.texts.contains_key(&below) {
                        at = below;
                    } else if let Some(exported) = self.exports.get(&(at.clone(), name.to_owned())) {
                        // A name that stands for itself would never end.
                        return (depth < 8).then(|| self.resolve(&at, exported, depth + 1))?;
                    } else {
                        // The path of another crate begins with no module of this one.
                        return (!first).then_some(at);
                    }
                }
            }
            first = false;
            rest = after;
        }
        Some(at)
    }
}

fn below(module: &ModulePath, name: &str) -> ModulePath {
    module.iter().cloned().chain([name.to_owned()]).collect()
}

/// The places of the items that are for tests only, each with its text without attributes.
fn for_tests(text: &str) -> impl Iterator<Item = (usize, &str)> {
    const MARK: &str = "#[cfg(test)]\n";
    text.match_indices(MARK).map(|(at, _)| {
        let mut rest = &text[at + MARK.len()..];
        while let Some((_, next)) = rest.starts_with("#[").then(|| rest.split_once("]\n")).flatten() {
            rest = next;
        }
        (at, rest)
    })
}

/// The text before the module of its tests.
fn before_tests(text: &str) -> &str {
    let tests = for_tests(text).find(|(_, item)| item.starts_with("mod tests {"));
    tests.map_or(text, |(at, _)| &text[..at])
}

/// The names of the modules that a text declares for tests only.
fn test_modules(text: &str) -> impl Iterator<Item = &str> {
    for_tests(text).filter_map(|(_, item)| {
        let (declared, _) = item.split_once(';')?;
        let name = declared.rsplit_once("mod ")?.1;
        name.chars().all(|c| c.is_alphanumeric() || c == '_').then_some(name)
    })
}

/// The texts of the statements that begin so, without their beginning and their semicolon.
fn statements<'a>(text: &'a str, beginnings: &[&str]) -> Vec<&'a str> {
    let begin =
        |beginning: &&str| text.match_indices(*beginning).map(|(at, found)| at + found.len()).collect::<Vec<_>>();
    let places = beginnings.iter().flat_map(begin);
    places.filter_map(|at| text[at..].split(';').next()).collect()
}

/// Every path of a text that begins with `crate`, `super` or `self`.
fn paths(text: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for beginning in ["crate::", "super::", "self::"] {
        for (at, _) in text.match_indices(beginning) {
            let before = text[..at].chars().next_back();
            if before.is_some_and(|before| before.is_alphanumeric() || before == '_' || before == ':') {
                continue;
            }
            found.extend(expand(&text[at..]));
        }
    }
    found
}

/// The paths of a tree of imports, such as `a::{b, c::d}`; whatever follows the tree is left alone.
fn expand(tree: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    tree_at(tree.trim_start(), &mut Vec::new(), &mut found);
    found
}

/// Reads a tree and returns what is left of the text.
fn tree_at<'a>(text: &'a str, before: &mut Vec<String>, found: &mut Vec<Vec<String>>) -> &'a str {
    let depth = before.len();
    let mut rest = text;
    loop {
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        if end > 0 {
            before.push(rest[..end].to_owned());
            rest = &rest[end..];
        }
        let Some(after) = rest.strip_prefix("::") else { break };
        if let Some(mut group) = after.strip_prefix('{') {
            loop {
                group = tree_at(group.trim_start(), before, found).trim_start();
                match group.strip_prefix(',') {
                    Some(next) => group = next,
                    None => break,
                }
            }
            before.truncate(depth);
            return group.strip_prefix('}').unwrap_or(group);
        }
        if !after.starts_with(|c: char| c.is_alphabetic() || c == '_') {
            break;
        }
        rest = after;
    }
    // A renamed import is what it was.
    if let Some(renamed) = rest.strip_prefix(" as ") {
        rest = renamed.trim_start_matches(|c: char| c.is_alphanumeric() || c == '_');
    }
    if before.len() > depth {
        found.push(before.clone());
    }
    before.truncate(depth);
    rest
}
