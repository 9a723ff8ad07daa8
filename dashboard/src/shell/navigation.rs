//! Where one can go from every page, and where a page stands.

use leptos::prelude::*;

use super::Crumb;

/// An entry of the navigation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Section {
    /// All campaigns, and what is below them.
    Campaigns,
    /// Machines.
    Workers,
    /// Servers and tokens.
    Health,
}

impl Section {
    /// Every entry that there is, in the order of the bar.
    pub(crate) const ALL: [Self; 3] = [Self::Campaigns, Self::Workers, Self::Health];

    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Campaigns => "Campaigns",
            Self::Workers => "Workers",
            Self::Health => "Health",
        }
    }

    pub(crate) fn href(self) -> &'static str {
        match self {
            Self::Campaigns => "/",
            Self::Workers => "/workers",
            Self::Health => "/health",
        }
    }

    /// The key that leads there after `g`.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Self::Campaigns => "c",
            Self::Workers => "w",
            Self::Health => "h",
        }
    }
}

pub(super) fn bar(current: Option<Section>) -> impl IntoView {
    let entries = Section::ALL
        .into_iter()
        .map(|section| {
            let is_current = (current == Some(section)).then_some("page");
            view! { <li><a href=section.href() data-go=section.key() aria-current=is_current>{section.label()}</a></li> }
        })
        .collect::<Vec<_>>();
    view! { <nav class="sections" aria-label="Sections"><ul>{entries}</ul></nav> }
}

pub(super) fn crumbs(above: Vec<Crumb>, title: &str) -> Option<impl IntoView + use<>> {
    if above.is_empty() {
        return None;
    }
    let entries =
        above.into_iter().map(|crumb| view! { <li><a href=crumb.href>{crumb.text}</a></li> }).collect::<Vec<_>>();
    let title = title.to_owned();
    Some(view! {
        <nav class="crumbs" aria-label="Where this page is">
            <ol>{entries}<li aria-current="page">{title}</li></ol>
        </nav>
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_two_sections_have_the_same_key() {
        let keys: BTreeSet<&str> = Section::ALL.into_iter().map(Section::key).collect();
        assert_eq!(keys.len(), Section::ALL.len());
    }
}
