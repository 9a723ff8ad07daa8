//! The addresses of a server's replicas, and the current one.

use std::sync::atomic::{AtomicUsize, Ordering};

use reqwest::Url;

use crate::error::ClientError;

/// Addresses of one server or of its replicas. Calls go to the current one until it fails, and then to the next.
#[derive(Debug)]
pub struct Addresses {
    /// Each ends with `/api/v1/`. Never empty.
    bases: Vec<Url>,
    current: AtomicUsize,
}

impl Addresses {
    /// Parses one address, or several that are separated by commas.
    pub fn parse(list: &str) -> Result<Self, ClientError> {
        let mut bases = Vec::new();
        for address in list.split(',').map(str::trim) {
            let base = api_base(address)?;
            if !bases.contains(&base) {
                bases.push(base);
            }
        }
        Ok(Self { bases, current: AtomicUsize::new(0) })
    }

    /// Returns their number.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "there is always one")]
    pub fn len(&self) -> usize {
        self.bases.len()
    }

    /// Returns the index of the current one.
    #[must_use]
    pub fn current(&self) -> usize {
        self.current.load(Ordering::Relaxed) % self.bases.len().max(1)
    }

    /// Selects the next one, unless a concurrent call has done so since it read `failed` as the current one.
    pub fn move_on_from(&self, failed: usize) {
        let next = (failed + 1) % self.bases.len().max(1);
        let _ = self.current.compare_exchange(failed, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Returns the address of this index, without the path of the API.
    #[must_use]
    pub fn address(&self, number: usize) -> &str {
        let address = self.bases.get(number).map_or("", Url::as_str);
        address.strip_suffix("/api/v1/").unwrap_or(address)
    }

    pub(crate) fn base(&self, number: usize) -> Option<&Url> {
        self.bases.get(number)
    }

    /// Returns whether all of them are on this machine's loopback.
    #[cfg(not(target_arch = "wasm32"))]
    pub(crate) fn are_loopback(&self) -> bool {
        self.bases.iter().all(is_loopback)
    }
}

fn api_base(address: &str) -> Result<Url, ClientError> {
    let invalid = |reason: &str| ClientError::InvalidAddress { address: address.to_owned(), reason: reason.to_owned() };
    let url = Url::parse(address).map_err(|error| invalid(&error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(invalid("it begins with neither http:// nor https://"));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(invalid("it carries a query or a fragment"));
    }
    let mut url = url;
    if let Ok(mut path) = url.path_segments_mut() {
        path.pop_if_empty().extend(["api", "v1", ""]);
    }
    Ok(url)
}

#[cfg(not(target_arch = "wasm32"))]
fn is_loopback(url: &Url) -> bool {
    url.host_str().is_some_and(|host| {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
    })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn the_address_may_end_with_a_slash_or_carry_a_path() {
        for (given, expected) in [
            ("http://127.0.0.1:7777", "http://127.0.0.1:7777/api/v1/"),
            ("http://127.0.0.1:7777/", "http://127.0.0.1:7777/api/v1/"),
            ("https://host/nightshift", "https://host/nightshift/api/v1/"),
        ] {
            assert_eq!(api_base(given).unwrap().as_str(), expected);
        }
    }

    #[test]
    fn one_wrong_address_of_several_is_an_error_that_names_it() {
        let error = Addresses::parse("http://a:1, host, http://b:2").unwrap_err();
        assert!(matches!(&error, ClientError::InvalidAddress { address, .. } if address == "host"), "{error}");
        assert!(Addresses::parse("http://a:1,").is_err());
    }

    #[test]
    fn the_same_address_twice_is_one() {
        assert_eq!(Addresses::parse("http://a:1,http://a:1/").unwrap().len(), 1);
    }

    #[test]
    fn a_failure_moves_on_and_the_last_is_followed_by_the_first() {
        let addresses = Addresses::parse("http://a:1, http://b:2").unwrap();
        assert_eq!(addresses.address(addresses.current()), "http://a:1");
        addresses.move_on_from(0);
        assert_eq!(addresses.address(addresses.current()), "http://b:2");
        addresses.move_on_from(1);
        assert_eq!(addresses.current(), 0);
    }

    #[test]
    fn many_calls_that_failed_at_one_address_do_not_run_past_the_next() {
        let addresses = Addresses::parse("http://a:1,http://b:2,http://c:3").unwrap();
        addresses.move_on_from(0);
        addresses.move_on_from(0);
        assert_eq!(addresses.current(), 1);
    }

    #[test]
    fn a_single_address_stays() {
        let addresses = Addresses::parse("http://a:1").unwrap();
        addresses.move_on_from(0);
        assert_eq!(addresses.current(), 0);
    }
}
