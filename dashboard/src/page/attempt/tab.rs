//! The tabs of an attempt's page. Each is an address, so that it works without scripts and can be sent to others.

/// A tab.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Tab {
    /// The result, the baselines, the verdict, what came next.
    #[default]
    Overview,
    /// Bound, roofline, kernels, counters, timeline.
    Profile,
    /// The source, its difference from others, how it was built and tuned.
    Source,
    /// Correctness, memory and races, how the times were taken, scores, artifacts.
    Checks,
    /// Prompts and replies.
    Conversation,
}

impl Tab {
    /// Every tab, in the order of the page.
    pub(crate) const ALL: [Self; 5] = [Self::Overview, Self::Profile, Self::Source, Self::Checks, Self::Conversation];

    /// Returns the tab with this name in an address.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tab| tab.as_str() == name)
    }

    /// Returns its name in an address.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Overview => "overview",
            Self::Profile => "profile",
            Self::Source => "source",
            Self::Checks => "checks",
            Self::Conversation => "conversation",
        }
    }

    /// Returns its title.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Overview => "Overview",
            Self::Profile => "Profile",
            Self::Source => "Source and difference",
            Self::Checks => "Checks",
            Self::Conversation => "Conversation",
        }
    }
}
