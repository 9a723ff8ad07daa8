//! The address of a page with its state. The query holds filters, order and selection, so that a link shows the same
//! page to every reader.

use std::fmt::Write as _;

/// A path with the pairs of its query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Address {
    path: String,
    pairs: Vec<(String, String)>,
}

impl Address {
    /// Reads path and query of a request; what is not UTF-8 is replaced.
    pub(crate) fn parse(path_and_query: &str) -> Self {
        let (path, query) = path_and_query.split_once('?').unwrap_or((path_and_query, ""));
        let pairs = query
            .split('&')
            .filter(|pair| !pair.is_empty())
            .map(|pair| {
                let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                (decoded(name), decoded(value))
            })
            .collect();
        Self { path: path.to_owned(), pairs }
    }

    /// The first value of that name which is not empty.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.pairs.iter().find(|(known, value)| known == name && !value.is_empty()).map(|(_, value)| value.as_str())
    }

    /// All pairs, in their order.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.pairs.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The pairs that choose what a list shows, without those of its order.
    pub(crate) fn filter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.pairs().filter(|(name, _)| !matches!(*name, "sort" | "order"))
    }

    /// Returns the address with another value; `None` removes the parameter.
    pub(crate) fn with(&self, name: &str, value: Option<&str>) -> Self {
        let mut pairs: Vec<(String, String)> = self.pairs.iter().filter(|(known, _)| known != name).cloned().collect();
        pairs.extend(value.map(|value| (name.to_owned(), value.to_owned())));
        Self { path: self.path.clone(), pairs }
    }

    /// The path and the pairs that are not empty, as a link.
    pub(crate) fn href(&self) -> String {
        let mut text = self.path.clone();
        let mut sign = '?';
        for (name, value) in self.pairs.iter().filter(|(_, value)| !value.is_empty()) {
            text.push(sign);
            encode(&mut text, name);
            text.push('=');
            encode(&mut text, value);
            sign = '&';
        }
        text
    }
}

/// The unreserved characters stay, everything else is escaped.
fn encode(text: &mut String, part: &str) {
    for byte in part.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            text.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(text, "%{byte:02X}");
        }
    }
}

fn decoded(part: &str) -> String {
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let escaped = (*first == b'%').then(|| hex(after)).flatten();
        if let Some(byte) = escaped {
            bytes.push(byte);
            rest = after.get(2..).unwrap_or_default();
        } else {
            bytes.push(if *first == b'+' { b' ' } else { *first });
            rest = after;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn hex(digits: &[u8]) -> Option<u8> {
    let two = std::str::from_utf8(digits.get(..2)?).ok()?;
    two.bytes().all(|byte| byte.is_ascii_hexdigit()).then(|| u8::from_str_radix(two, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_survives_the_way_through_an_address() {
        for text in ["soft max & co", "100 %", "größer=1", "a+b", "\u{202e}x"] {
            let address = Address::parse("/x").with("q", Some(text));
            assert_eq!(Address::parse(&address.href()).get("q"), Some(text), "{}", address.href());
        }
    }

    #[test]
    fn another_value_takes_the_place_of_the_old_one_and_leaves_the_rest() {
        let address = Address::parse("/x?sort=name&q=a&empty=");
        assert_eq!(address.with("sort", Some("created")).href(), "/x?q=a&sort=created");
        assert_eq!(address.with("sort", None).href(), "/x?q=a");
    }

    #[test]
    fn a_broken_query_is_read_as_well_as_it_can_be() {
        let address = Address::parse("/x?%zz=%4&&=&b=%e2%28&c");
        assert_eq!(address.get("%zz"), Some("%4"));
        assert!(address.get("b").is_some_and(|text| text.contains('\u{fffd}')));
        assert_eq!(address.get("c"), None);
    }
}
