//! The preference for single-key shortcuts. Users of speech input, or who press keys by accident, can switch them off.

/// Name of the cookie that keeps the choice, and of the field that makes it.
pub(crate) const COOKIE: &str = "nightshift_keys";
/// The value that switches them off; every other one is on.
pub(crate) const OFF: &str = "off";

/// Returns whether the cookies of a request switch them off.
pub(crate) fn are_off(cookies: &str) -> bool {
    let mut pairs = cookies.split(';').filter_map(|pair| pair.trim().split_once('='));
    pairs.any(|(name, value)| name == COOKIE && value == OFF)
}

/// The cookie that a form asks for.
pub(crate) fn to_cookie(body: &str) -> String {
    let is_off = body.split_once('=').is_some_and(|(name, value)| name == COOKIE && value == OFF);
    let value = if is_off { OFF } else { "on" };
    format!("{COOKIE}={value}; Path=/; Max-Age={}; SameSite=Lax", crate::theme::KEPT_S)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_on_by_default_and_can_be_switched_off_and_on() {
        assert!(!are_off("") && !are_off("theme=dark; nightshift_keys=maybe"));
        let off = to_cookie("nightshift_keys=off");
        assert!(are_off(off.split(';').next().unwrap_or_default()), "{off}");
        assert!(are_off("theme=dark; nightshift_keys=off"));
        for other in ["nightshift_keys=on", "", "other=off"] {
            assert!(!are_off(&to_cookie(other)), "{other}");
        }
    }
}
