//! The colour theme: dark, light, or the system's.

/// Name of the cookie that stores the theme.
pub(crate) const COOKIE: &str = "theme";
/// Lifetime of the cookie.
pub(crate) const KEPT_S: u32 = 365 * 24 * 60 * 60;

/// A colour theme.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Theme {
    /// The theme of the visitor's system.
    #[default]
    System,
    /// Light.
    Light,
    /// Dark.
    Dark,
}

impl Theme {
    /// All themes, in the order of the switch.
    pub(crate) const ALL: [Self; 3] = [Self::System, Self::Light, Self::Dark];

    /// Returns the name that the cookie stores.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Light => "light",
            Self::Dark => "dark",
        }
    }

    /// Returns the theme of this name; the system's theme for an unknown name.
    pub(crate) fn parse(text: &str) -> Self {
        Self::ALL.into_iter().find(|theme| theme.as_str() == text).unwrap_or_default()
    }

    /// Returns the cookie that stores the theme.
    pub(crate) fn to_cookie(self) -> String {
        format!("{COOKIE}={}; Path=/; Max-Age={KEPT_S}; SameSite=Lax", self.as_str())
    }
}

#[cfg(feature = "ssr")]
impl Theme {
    /// Reads the theme from the cookies of a request.
    pub(crate) fn from_cookies(header: &str) -> Self {
        let mut pairs = header.split(';').filter_map(|pair| pair.trim().split_once('='));
        pairs.find(|(name, _)| *name == COOKIE).map(|(_, value)| Self::parse(value)).unwrap_or_default()
    }

    /// Returns the CSS `color-scheme`, which styles scroll bars and form fields.
    pub(crate) fn color_scheme(self) -> &'static str {
        match self {
            Self::System => "light dark",
            Self::Light => "light",
            Self::Dark => "dark",
        }
    }
}

#[cfg(all(test, feature = "ssr"))]
mod tests {
    use super::*;

    #[test]
    fn the_choice_is_found_among_other_cookies() {
        assert_eq!(Theme::from_cookies("a=b; theme=dark; c=d"), Theme::Dark);
        assert_eq!(Theme::from_cookies("theme=light"), Theme::Light);
        for strange in ["", "theme", "theme=neon", "xtheme=dark"] {
            assert_eq!(Theme::from_cookies(strange), Theme::System, "{strange}");
        }
        assert!(Theme::Dark.to_cookie().starts_with("theme=dark; Path=/;"));
    }
}
