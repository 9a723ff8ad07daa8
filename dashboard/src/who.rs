//! The identity and rights of a visitor, as far as pages depend on them.

use leptos::prelude::*;
use nightshift_client::Client;
use nightshift_protocol::access::Role;
use nightshift_protocol::api::{SessionView, SignedInBy, Target};

use crate::format::moment;

/// The identity of a visitor, as the server knows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Who {
    /// Session as the server describes it; `None` when the server was not called or did not answer.
    session: Option<SessionView>,
    /// Whether the request carries credentials.
    shows_something: bool,
    /// Address of the sign-in page that leads back to the page.
    sign_in: String,
}

impl Who {
    /// Reads the session of a visitor whose request carries credentials.
    pub(crate) async fn of(client: &Client, sign_in: String) -> Self {
        Self { session: client.session().await.ok(), shows_something: true, sign_in }
    }

    /// Creates the identity of a visitor without credentials, without calling the server.
    pub(crate) fn anonymous(sign_in: String) -> Self {
        Self { session: None, shows_something: false, sign_in }
    }

    /// Returns the address of the sign-in page that leads back to the page.
    pub(crate) fn sign_in(&self) -> &str {
        &self.sign_in
    }

    /// Returns whether there is a session that can be ended.
    pub(crate) fn is_signed_in(&self) -> bool {
        self.session.as_ref().map_or(self.shows_something, |session| session.by == SignedInBy::Session)
    }

    /// Returns whether the visitor may change what operators change. The API checks each call again. When the API did not
    /// describe the session, only that check applies.
    pub(crate) fn may_operate(&self) -> bool {
        let role = self.session.as_ref().map(|session| session.role);
        role.map_or(self.shows_something, |role| matches!(role, Some(Role::Operator | Role::Admin)))
    }

    /// Returns whether the visitor may change what this author wrote.
    pub(crate) fn may_change(&self, author: &str) -> bool {
        self.session
            .as_ref()
            .is_none_or(|session| session.role == Some(Role::Admin) || session.name.as_deref() == Some(author))
            && self.may_operate()
    }

    /// Returns the only object that the visitor may read; `None` means no restriction.
    pub(crate) fn limited_to(&self) -> Option<&Target> {
        self.session.as_ref()?.limited_to.as_ref()
    }

    /// Describes the visitor: name and role, or until when the page is shared. Returns `None` without credentials.
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

    /// Returns the visitor's first page: all campaigns, or the shared object.
    pub(crate) fn home(&self) -> String {
        self.limited_to().map_or_else(|| "/".to_owned(), path)
    }

    /// Returns whether the visitor may read the page at this address.
    pub(crate) fn reaches(&self, href: &str) -> bool {
        match self.limited_to() {
            None => true,
            // A shared campaign includes its runs.
            Some(Target::Campaign(_)) => href.starts_with("/runs/") || href == self.home(),
            Some(_) => href.starts_with(&self.home()),
        }
    }

    /// Explains that an action needs the role operator, with a link to sign in. Returns `None` when the visitor has it.
    pub(crate) fn needs_operator(&self) -> Option<AnyView> {
        if self.may_operate() {
            return None;
        }
        let you = match (&self.session, self.words()) {
            (Some(session), _) if session.limited_to.is_some() => "This was shared with you to be read.".to_owned(),
            (_, Some(words)) => format!("You are {words}: this needs the role operator."),
            (_, None) => "You are not signed in: this needs the role operator.".to_owned(),
        };
        let words = if self.is_signed_in() { "Sign in with another token" } else { "Sign in as an operator" };
        let href = self.sign_in.clone();
        Some(view! { <p class="quiet">{you}" "<a href=href>{words}</a></p> }.into_any())
    }
}

/// Returns the path of the shared object's page.
fn path(target: &Target) -> String {
    match target {
        Target::Campaign(id) => format!("/campaigns/{id}"),
        Target::Run(id) => format!("/runs/{id}"),
        Target::Attempt(id, number) => format!("/runs/{id}/attempts/{number}"),
    }
}

#[cfg(test)]
impl Who {
    /// Returns a visitor with this role.
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

    /// Returns a visitor who opened a shared link.
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
    fn a_visitor_with_a_shared_link_reaches_only_the_shared_pages() {
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
