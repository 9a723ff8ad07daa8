//! Names that many attempts share, each kept once.

use std::collections::HashMap;
use std::sync::Arc;

/// The number of a name.
pub(crate) type Label = u32;

/// Names by their number, and the other way round. None is ever forgotten: they are as few as tasks, models and devices.
#[derive(Debug, Default)]
pub(crate) struct Labels {
    names: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, Label>,
}

impl Labels {
    /// The number of a name, new or known.
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

    /// The number of a name, when it is known.
    pub(crate) fn find(&self, name: &str) -> Option<Label> {
        self.numbers.get(name).copied()
    }

    /// The name of a number.
    pub(crate) fn name(&self, number: Label) -> &str {
        usize::try_from(number).ok().and_then(|place| self.names.get(place)).map_or("", |name| name)
    }

    /// For every number, whether its name is one of those.
    pub(crate) fn which(&self, is_wanted: impl Fn(&str) -> bool) -> Vec<bool> {
        self.names.iter().map(|name| is_wanted(name)).collect()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }
}
