//! How attempts are compared: all of it stands in the address.

use std::fmt;

use nightshift_protocol::id::RunId;

use crate::picks::MAX_COMPARED;
use crate::source::DiffView;

/// Longest place of an address that is repeated when it is wrong, in characters.
const MAX_REPEATED_CHARS: usize = 80;

/// An attempt as addresses name it: `RUN/NUMBER`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) run: RunId,
    pub(super) number: u32,
}

impl Place {
    fn parse(text: &str) -> Option<Self> {
        let (run, number) = text.split_once('/')?;
        Some(Self { run: run.parse().ok()?, number: number.parse().ok()? })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.run, self.number)
    }
}

/// What an address asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Look {
    /// `a`: the attempts, in the order of their columns.
    pub(super) wanted: Vec<Place>,
    /// What stands in the place of an attempt and cannot be one.
    pub(super) unreadable: Vec<String>,
    /// How many more were asked for than are compared.
    pub(super) left_out: usize,
    /// `only=differences`.
    pub(super) differences_only: bool,
    /// `view`: how sources stand beside each other.
    pub(super) view: DiffView,
    /// `from` and `to`: whose sources.
    pub(super) from: Option<Place>,
    pub(super) to: Option<Place>,
}

impl Look {
    pub(super) fn of(query: &[(String, String)]) -> Self {
        let value = |name: &str| query.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
        let (mut wanted, mut unreadable) = (Vec::new(), Vec::new());
        for (_, text) in query.iter().filter(|(name, _)| name == "a") {
            match Place::parse(text) {
                Some(place) if wanted.contains(&place) => {}
                Some(place) => wanted.push(place),
                None => unreadable.push(text.chars().take(MAX_REPEATED_CHARS).collect()),
            }
        }
        let left_out = wanted.len().saturating_sub(MAX_COMPARED);
        wanted.truncate(MAX_COMPARED);
        unreadable.truncate(MAX_COMPARED);
        Self {
            wanted,
            unreadable,
            left_out,
            differences_only: value("only") == Some("differences"),
            view: DiffView::parse(value("view")),
            from: value("from").and_then(Place::parse),
            to: value("to").and_then(Place::parse),
        }
    }

    /// Names and values of its address, but for those that say whose sources are shown.
    pub(super) fn pairs(&self) -> Vec<(&'static str, String)> {
        let mut pairs: Vec<(&'static str, String)> = self.wanted.iter().map(|place| ("a", place.to_string())).collect();
        if self.differences_only {
            pairs.push(("only", "differences".to_owned()));
        }
        if self.view != DiffView::default() {
            pairs.push(("view", self.view.as_str().to_owned()));
        }
        pairs
    }

    /// Its address.
    pub(super) fn href(&self) -> String {
        let mut pairs = self.pairs();
        pairs.extend(self.from.as_ref().map(|place| ("from", place.to_string())));
        pairs.extend(self.to.as_ref().map(|place| ("to", place.to_string())));
        let pairs: Vec<String> = pairs.iter().map(|(name, value)| format!("{name}={value}")).collect();
        format!("?{}", pairs.join("&"))
    }

    /// The same without one of them.
    pub(super) fn without(&self, place: &Place) -> Self {
        let left = self.wanted.iter().filter(|one| *one != place).cloned().collect();
        Self { wanted: left, ..self.clone() }
    }

    /// The same with one of them a column further to the left.
    pub(super) fn moved_left(&self, place: &Place) -> Self {
        let mut wanted = self.wanted.clone();
        if let Some(at) = wanted.iter().position(|one| one == place).filter(|at| *at > 0) {
            wanted.swap(at - 1, at);
        }
        Self { wanted, ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(query: &str) -> Look {
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        Look::of(&pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect::<Vec<_>>())
    }

    fn run() -> String {
        format!("run_{}", "0".repeat(32))
    }

    #[test]
    fn an_address_says_what_is_compared_and_reads_back() {
        let run = run();
        let query = format!("a={run}/1&a={run}/2&a={run}/3&only=differences&view=split&from={run}/2&to={run}/3");
        assert_eq!(look(&query).href(), format!("?{query}"));
        let many: Vec<String> = (1..=20).map(|number| format!("a={run}/{number}")).collect();
        let many = look(&many.join("&"));
        assert_eq!((many.wanted.len(), many.left_out), (MAX_COMPARED, 8));
    }

    #[test]
    fn what_cannot_be_an_attempt_is_set_aside_and_not_forgotten() {
        let found = look(&format!("a=../../etc/passwd&a={}/1", run()));
        assert_eq!((found.wanted.len(), found.unreadable), (1, vec!["../../etc/passwd".to_owned()]));
    }

    #[test]
    fn columns_are_taken_away_and_moved() {
        let run = run();
        let three = look(&format!("a={run}/1&a={run}/2&a={run}/3"));
        let numbers = |look: &Look| look.wanted.iter().map(|place| place.number).collect::<Vec<_>>();
        assert_eq!(numbers(&three.without(&three.wanted[1])), [1, 3]);
        assert_eq!(numbers(&three.moved_left(&three.wanted[2])), [1, 3, 2]);
        assert_eq!(numbers(&three.moved_left(&three.wanted[0])), [1, 2, 3]);
    }
}
