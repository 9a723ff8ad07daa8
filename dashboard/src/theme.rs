//! Dark, light, or as the system has it.

/// Name of the cookie that keeps the choice.
pub(crate) const COOKIE: &str = "theme";
/// How long the choice is kept.
pub(crate) const KEPT_S: u32 = 365 * 24 * 60 * 60;

/// The colours of the pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Theme {
    /// As the visitor's system has it.
    #[default]
    System,
    /// Light.
    Light,
    /// Dark.
    Dark,
}

impl Theme {
    /// Every choice, as the switch shows them.
    pub(crate) const ALL: [Self; 3] = [Self::System, Self::Light, Self::Dark];

    /// The name, as it is kept.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Light => "light",
            Self::Dark => "dark",
        }
    }

    /// The choice of that name; the system's for every other text.
    pub(crate) fn parse(text: &str) -> Self {
        Self::ALL.into_iter().find(|theme| theme.as_str() == text).unwrap_or_default()
    }

    /// The cookie that keeps the choice.
    pub(crate) fn to_cookie(self) -> String {
        format!("{COOKIE}={}; Path=/; Max-Age={KEPT_S}; SameSite=Lax", self.as_str())
    }
}

#[cfg(feature = "ssr")]
impl Theme {
    /// The choice among the cookies of a request.
    pub(crate) fn from_cookies(header: &str) -> Self {
        let mut pairs = header.split(';').filter_map(|pair| pair.trim().split_once('='));
        pairs.find(|(name, _)| *name == COOKIE).map(|(_, value)| Self::parse(value)).unwrap_or_default()
    }

    /// What the browser's own parts (scroll bars, form fields) look like.
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
