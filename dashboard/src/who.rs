//! Who looks at a page, as far as it changes what the page offers them.

use leptos::prelude::*;
use nightshift_client::Client;
use nightshift_protocol::access::Role;
use nightshift_protocol::api::{SessionView, SignedInBy, Target};

use crate::format::moment;

/// A visitor, as the server knows them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Who {
    /// What the server said; nothing where it was not asked, or did not answer.
    session: Option<SessionView>,
    /// Whether they showed something by which it may know them.
    shows_something: bool,
    /// Where they sign in, and come back from.
    sign_in: String,
}

impl Who {
    /// Asks about a visitor who shows something.
    pub(crate) async fn of(client: &Client, sign_in: String) -> Self {
        Self { session: client.session().await.ok(), shows_something: true, sign_in }
    }

    /// A visitor who shows nothing: nobody is asked about them.
    pub(crate) fn nobody(sign_in: String) -> Self {
        Self { session: None, shows_something: false, sign_in }
    }

    /// Where they sign in, and go on from to the page that they look at.
    pub(crate) fn sign_in(&self) -> &str {
        &self.sign_in
    }

    /// Whether there is a session to be ended.
    pub(crate) fn is_signed_in(&self) -> bool {
        self.session.as_ref().map_or(self.shows_something, |session| session.by == SignedInBy::Session)
    }

    /// Whether they may change what operators change. The API has the last word; it has the only one when it did not say
    /// who they are.
    pub(crate) fn may_operate(&self) -> bool {
        let role = self.session.as_ref().map(|session| session.role);
        role.map_or(self.shows_something, |role| matches!(role, Some(Role::Operator | Role::Admin)))
    }

    /// Whether they may change what this author wrote.
    pub(crate) fn may_change(&self, author: &str) -> bool {
        self.session
            .as_ref()
            .is_none_or(|session| session.role == Some(Role::Admin) || session.name.as_deref() == Some(author))
            && self.may_operate()
    }

    /// All that they may read; everything without it.
    pub(crate) fn limited_to(&self) -> Option<&Target> {
        self.session.as_ref()?.limited_to.as_ref()
    }

    /// Name and role, or what was shared with them and until when; nothing for somebody who showed nothing.
    pub(crate) fn words(&self) -> Option<String> {
        let session = self.session.as_ref().filter(|session| session.by != SignedInBy::Nothing)?;
        if session.limited_to.is_some() {
            return Some(match session.expires_at {
                Some(end) => format!("shared with you until {}", moment(end)),
                None => "shared with you".to_owned(),
            });
        }
        let role = session.role.map(Role::as_str).unwrap_or_default();
        Some(format!("{} · {role}", session.name.as_deref().unwrap_or("no name")))
    }

    /// Where they begin: all campaigns, or what was shared with them.
    pub(crate) fn home(&self) -> String {
        self.limited_to().map_or_else(|| "/".to_owned(), path)
    }

    /// Whether a link to this page leads anywhere for them.
    pub(crate) fn reaches(&self, href: &str) -> bool {
        match self.limited_to() {
            None => true,
            // The runs of a campaign were shared with it.
            Some(Target::Campaign(_)) => href.starts_with("/runs/") || href == self.home(),
            Some(_) => href.starts_with(&self.home()),
        }
    }

    /// Why they cannot do what operators do, and what helps; nothing for those who can.
    pub(crate) fn needs_operator(&self) -> Option<AnyView> {
        if self.may_operate() {
            return None;
        }
        let you = match (&self.session, self.words()) {
            (Some(session), _) if session.limited_to.is_some() => "This was shared with you to be read.".to_owned(),
            (_, Some(words)) => format!("You are {words}: this needs the role operator."),
            (_, None) => "You are not signed in: this needs the role operator.".to_owned(),
        };
        let words = if self.is_signed_in() { "Sign in as somebody else" } else { "Sign in to do it" };
        let href = self.sign_in.clone();
        Some(view! { <p class="quiet">{you}" "<a href=href>{words}</a></p> }.into_any())
    }
}

/// The page of what was shared.
fn path(target: &Target) -> String {
    match target {
        Target::Campaign(id) => format!("/campaigns/{id}"),
        Target::Run(id) => format!("/runs/{id}"),
        Target::Attempt(id, number) => format!("/runs/{id}/attempts/{number}"),
    }
}

#[cfg(test)]
impl Who {
    /// Somebody with this role.
    pub(crate) fn sample(name: &str, role: Role) -> Self {
        let session = SessionView {
            by: SignedInBy::Session,
            name: Some(name.to_owned()),
            role: Some(role),
            limited_to: None,
            expires_at: None,
        };
        Self { session: Some(session), shows_something: true, sign_in: "/sign-in".to_owned() }
    }

    /// Somebody who opened a link.
    pub(crate) fn sample_of_link(target: Target) -> Self {
        let Self { session, .. } = Self::sample("link", Role::Viewer);
        let end = nightshift_protocol::time::TimestampMs(0);
        let session = session.map(|session| SessionView { limited_to: Some(target), expires_at: Some(end), ..session });
        Self { session, shows_something: true, sign_in: "/sign-in".to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(text: &str) -> Target {
        text.parse().unwrap_or_else(|error| panic!("{error}"))
    }

    fn reason(who: &Who) -> Option<String> {
        Owner::new().with(|| who.needs_operator().map(RenderHtml::to_html))
    }

    #[test]
    fn only_operators_and_administrators_are_offered_what_changes_anything() {
        assert!(Who::sample("ci", Role::Operator).may_operate() && Who::sample("root", Role::Admin).may_operate());
        let viewer = Who::sample("reader", Role::Viewer);
        assert!(!viewer.may_operate() && !Who::default().may_operate());
        assert_eq!(viewer.words().as_deref(), Some("reader · viewer"));
        assert!(reason(&viewer).is_some_and(|html| html.contains("You are reader · viewer")));
        assert!(reason(&Who::default()).is_some_and(|html| html.contains("You are not signed in")));
        assert!(reason(&Who::sample("ci", Role::Operator)).is_none());
    }

    #[test]
    fn a_note_is_changed_by_its_author_and_by_administrators() {
        assert!(Who::sample("ci", Role::Operator).may_change("ci"));
        assert!(!Who::sample("ci", Role::Operator).may_change("late shift"));
        assert!(Who::sample("root", Role::Admin).may_change("late shift"));
        assert!(!Who::sample("ci", Role::Viewer).may_change("ci"));
    }

    #[test]
    fn whoever_opened_a_link_is_led_nowhere_else() {
        let (campaign, run) = (format!("cmp_{}", "0".repeat(32)), format!("run_{}", "1".repeat(32)));
        let of_campaign = Who::sample_of_link(target(&campaign));
        assert_eq!(of_campaign.home(), format!("/campaigns/{campaign}"));
        assert!(of_campaign.reaches(&of_campaign.home()) && of_campaign.reaches(&format!("/runs/{run}")));
        assert!(!of_campaign.reaches("/") && !of_campaign.reaches("/campaigns/cmp_other"));
        let of_run = Who::sample_of_link(target(&run));
        assert!(of_run.reaches(&format!("/runs/{run}")) && !of_run.reaches(&of_campaign.home()));
        assert_eq!(of_run.words().as_deref(), Some("shared with you until 1970-01-01 00:00:00 UTC"));
        assert!(Who::default().reaches("/"));
    }
}
