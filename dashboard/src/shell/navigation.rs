//! Where one can go from every page, and where a page stands.

use leptos::prelude::*;

use super::Crumb;
use crate::who::Who;

/// An entry of the navigation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Section {
    /// All campaigns, and what is below them.
    Campaigns,
    /// Attempts over all campaigns.
    Attempts,
    /// Tasks with their fastest programs.
    Tasks,
    /// Several attempts beside each other.
    Compare,
    /// Machines.
    Workers,
    /// Models, and what they cost.
    Models,
    /// Full text.
    Search,
    /// Saved views.
    Views,
    /// Webhooks.
    Webhooks,
    /// Tokens, links, retention.
    Admin,
    /// Servers and tokens.
    Health,
}

impl Section {
    /// Every entry, in the order of the bar.
    pub(crate) const ALL: [Self; 11] = [
        Self::Campaigns,
        Self::Attempts,
        Self::Tasks,
        Self::Compare,
        Self::Workers,
        Self::Models,
        Self::Search,
        Self::Views,
        Self::Webhooks,
        Self::Admin,
        Self::Health,
    ];

    pub(crate) fn label(self) -> &'static str {
        self.facts().0
    }

    pub(crate) fn href(self) -> &'static str {
        self.facts().1
    }

    /// The key that leads there after `g`.
    pub(crate) fn key(self) -> &'static str {
        self.facts().2
    }

    fn facts(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Campaigns => ("Campaigns", "/", "c"),
            Self::Attempts => ("Attempts", "/attempts", "a"),
            Self::Tasks => ("Tasks", "/tasks", "t"),
            Self::Compare => ("Compare", "/compare", "p"),
            Self::Workers => ("Workers", "/workers", "w"),
            Self::Models => ("Models", "/models", "m"),
            Self::Search => ("Search", "/search", "s"),
            Self::Views => ("Views", "/views", "v"),
            Self::Webhooks => ("Webhooks", "/webhooks", "b"),
            Self::Admin => ("Admin", "/admin", "d"),
            Self::Health => ("Health", "/health", "h"),
        }
    }
}

pub(super) fn bar(current: Option<Section>, who: &Who) -> AnyView {
    // Visitors with a shared link may read nothing else.
    if who.limited_to().is_some() {
        let href = who.home();
        return view! {
            <nav class="sections" aria-label="Sections"><ul><li><a href=href>"Shared with you"</a></li></ul></nav>
        }
        .into_any();
    }
    let entries = Section::ALL
        .into_iter()
        .map(|section| {
            let is_current = (current == Some(section)).then_some("page");
            view! { <li><a href=section.href() data-go=section.key() aria-current=is_current>{section.label()}</a></li> }
        })
        .collect::<Vec<_>>();
    view! { <nav class="sections" aria-label="Sections"><ul>{entries}</ul></nav> }.into_any()
}

pub(super) fn crumbs(above: Vec<Crumb>, title: &str) -> Option<impl IntoView + use<>> {
    if above.is_empty() {
        return None;
    }
    let entries =
        above.into_iter().map(|crumb| view! { <li><a href=crumb.href>{crumb.text}</a></li> }).collect::<Vec<_>>();
    let title = title.to_owned();
    Some(view! {
        <nav class="crumbs" aria-label="Breadcrumbs">
            <ol>{entries}<li aria-current="page">{title}</li></ol>
        </nav>
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_visitor_with_a_shared_link_sees_no_section_that_they_may_not_read() {
        let run = format!("run_{}", "1".repeat(32));
        let who = Who::sample_of_link(run.parse().unwrap_or_else(|error| panic!("{error}")));
        let html = Owner::new().with(|| bar(None, &who).to_html());
        assert!(html.contains(&format!("/runs/{run}")) && !html.contains("/workers"), "{html}");
        let html = Owner::new().with(|| bar(None, &Who::default()).to_html());
        assert!(html.contains("/workers"), "{html}");
    }

    #[test]
    fn no_two_sections_have_the_same_key() {
        let keys: BTreeSet<&str> = Section::ALL.into_iter().map(Section::key).collect();
        assert_eq!(keys.len(), Section::ALL.len());
    }
}
