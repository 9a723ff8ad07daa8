//! Reads the selected attempts from addresses, and writes them into addresses.

/// Query parameter of the selected attempts, the same as on the server (`page/attempts/picks.rs`).
pub(super) const PICK: &str = "pick";

/// Returns the selected attempts of an address, as `RUN/NUMBER`.
pub(super) fn picks(address: &str) -> Vec<String> {
    let (query, _) = address.split_once('#').unwrap_or((address, ""));
    let (_, query) = query.split_once('?').unwrap_or((query, ""));
    let value = query.split('&').find_map(|pair| pair.strip_prefix(PICK)?.strip_prefix('=')).unwrap_or_default();
    let value = value.replace("%2F", "/").replace("%2f", "/").replace("%2C", ",").replace("%2c", ",");
    let is_name = |name: &&str| {
        let mut bytes = name.bytes();
        !name.is_empty() && bytes.all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'/'))
    };
    value.split(',').filter(is_name).map(str::to_owned).collect()
}

/// Returns the address with this selection at the end of its query.
pub(super) fn with_picks(address: &str, picks: &[String]) -> String {
    with(address, PICK, &picks.join("%2C").replace('/', "%2F"))
}

/// Returns the address with another value, which must be escaped. An empty value removes the parameter.
pub(super) fn with(address: &str, name: &str, value: &str) -> String {
    let (rest, hash) = address.find('#').map_or((address, ""), |at| address.split_at(at));
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    let is_other = |pair: &&str| !pair.is_empty() && pair.split('=').next() != Some(name);
    let mut pairs: Vec<String> = query.split('&').filter(is_other).map(str::to_owned).collect();
    if !value.is_empty() {
        pairs.push(format!("{name}={value}"));
    }
    let sign = if pairs.is_empty() { "" } else { "?" };
    format!("{path}{sign}{}{hash}", pairs.join("&"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_is_read_as_it_was_written_and_the_rest_of_the_address_stays() {
        let chosen = ["run_a/1".to_owned(), "run_b/22".to_owned()];
        let address = with_picks("/attempts?sort=speedup&pick=old&q=a%26b#list", &chosen);
        assert_eq!(address, "/attempts?sort=speedup&q=a%26b&pick=run_a%2F1%2Crun_b%2F22#list");
        assert_eq!(picks(&address), chosen);
        assert_eq!(with_picks(&address, &[]), "/attempts?sort=speedup&q=a%26b#list");
        assert_eq!(with_picks("/attempts?pick=run_a%2F1", &[]), "/attempts");
    }

    #[test]
    fn what_cannot_be_chosen_is_not_read() {
        assert!(picks("/attempts#?pick=run_a/1").is_empty());
        assert!(picks("/attempts?picked=run_a/1&pick=").is_empty());
        assert_eq!(picks("/attempts?pick=run_a/1,%22%3E,%2c"), ["run_a/1"]);
    }
}
