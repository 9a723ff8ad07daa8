//! The state of the page's connection to the server.

use std::cell::RefCell;

/// A state of the connection.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(not(feature = "hydrate"), expect(dead_code, reason = "the server knows of no browser's connection"))]
pub(crate) enum Link {
    /// The page shows nothing that changes, so there is no connection.
    Still,
    /// The connection is being opened.
    Connecting,
    /// Changes arrive by themselves.
    Live,
    /// There is no event stream: the page polls the server.
    Polling,
    /// The server does not answer; holds the time of the last update, as text.
    Offline(String),
    /// The server refuses the page; holds the status.
    Refused(u16),
}

impl Link {
    /// Returns the name that the stylesheet uses.
    pub(crate) fn as_str(&self) -> &'static str {
        match self {
            Self::Still => "still",
            Self::Connecting => "connecting",
            Self::Live => "live",
            Self::Polling => "polling",
            Self::Offline(_) => "offline",
            Self::Refused(_) => "refused",
        }
    }

    /// Returns the text of the state. Usual states are short: the bar has room for one word of five letters.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Still => String::new(),
            Self::Connecting => "…".to_owned(),
            Self::Live => "live".to_owned(),
            Self::Polling => "polls".to_owned(),
            Self::Offline(since) => format!("offline, as of {since}"),
            Self::Refused(401) => "not updated: sign in again".to_owned(),
            Self::Refused(status) => format!("not updated: the server answers {status}"),
        }
    }

    /// Returns the explanation of the state.
    pub(crate) fn title(&self) -> Option<&'static str> {
        match self {
            Self::Still => None,
            Self::Connecting => Some("The page connects to receive changes."),
            Self::Live => Some("Changes are shown at once."),
            Self::Polling => Some("The page is reloaded every few seconds."),
            Self::Offline(_) => Some("The server does not answer: the page shows the state at this time."),
            Self::Refused(_) => Some("The server refuses to update the page."),
        }
    }
}

type Listener = Box<dyn Fn(Link)>;

thread_local! {
    static STATE: RefCell<(Option<Link>, Vec<Listener>)> = const { RefCell::new((None, Vec::new())) };
}

/// Calls the listener with the current state, and on each change.
pub(crate) fn subscribe(listener: impl Fn(Link) + 'static) {
    STATE.with_borrow_mut(|(link, listeners)| {
        if let Some(link) = link {
            listener(link.clone());
        }
        listeners.push(Box::new(listener));
    });
}

/// Sets the state, and calls the listeners when it changed.
#[cfg(feature = "hydrate")]
pub(super) fn tell(link: &Link) {
    STATE.with_borrow_mut(|(known, listeners)| {
        if known.as_ref() != Some(link) {
            *known = Some(link.clone());
            for listener in listeners.iter() {
                listener(link.clone());
            }
        }
    });
}
