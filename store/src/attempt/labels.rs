//! Interned names that many attempts share.

use std::collections::HashMap;
use std::sync::Arc;

/// The number of a name.
pub(crate) type Label = u32;

/// Names by number, and numbers by name. Entries are never removed: there are only as many as tasks, models and
/// devices.
#[derive(Debug, Default)]
pub(crate) struct Labels {
    names: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, Label>,
}

impl Labels {
    /// Returns the number of a name, and adds the name if it is new.
    pub(crate) fn number(&mut self, name: &str) -> Label {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = Label::try_from(self.names.len()).unwrap_or(Label::MAX);
        let name: Arc<str> = Arc::from(name);
        self.names.push(Arc::clone(&name));
        self.numbers.insert(name, number);
        number
    }

    /// Returns the number of a known name.
    pub(crate) fn find(&self, name: &str) -> Option<Label> {
        self.numbers.get(name).copied()
    }

    /// Returns the name of a number.
    pub(crate) fn name(&self, number: Label) -> &str {
        usize::try_from(number).ok().and_then(|place| self.names.get(place)).map_or("", |name| name)
    }

    /// Returns, for every number, whether its name is wanted.
    pub(crate) fn which(&self, is_wanted: impl Fn(&str) -> bool) -> Vec<bool> {
        self.names.iter().map(|name| is_wanted(name)).collect()
    }

    /// Returns the number of names.
    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }
}
