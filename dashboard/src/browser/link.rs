//! How the page is joined with the server, for whom it concerns.

use std::cell::RefCell;

/// A state of the connection.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(not(feature = "hydrate"), expect(dead_code, reason = "the server knows of no browser's connection"))]
pub(crate) enum Link {
    /// The page shows nothing that changes.
    Still,
    /// Not yet.
    Connecting,
    /// Changes arrive by themselves.
    Live,
    /// The server tells nothing by itself: it is asked again and again.
    Polling,
    /// Nobody answers; since when, as text.
    Offline(String),
    /// The server answers, but not with the page: the status.
    Refused(u16),
}

impl Link {
    /// The name, for the stylesheet.
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

    /// For people.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Still => String::new(),
            Self::Connecting => "updates by itself".to_owned(),
            Self::Live => "live".to_owned(),
            Self::Polling => "updated every few seconds".to_owned(),
            Self::Offline(since) => format!("offline, as of {since}"),
            Self::Refused(status) => format!("not updated: the server answers {status}"),
        }
    }
}

type Listener = Box<dyn Fn(Link)>;

thread_local! {
    static STATE: RefCell<(Option<Link>, Vec<Listener>)> = const { RefCell::new((None, Vec::new())) };
}

/// Hears of the state, and of each change.
pub(crate) fn subscribe(listener: impl Fn(Link) + 'static) {
    STATE.with_borrow_mut(|(link, listeners)| {
        if let Some(link) = link {
            listener(link.clone());
        }
        listeners.push(Box::new(listener));
    });
}

/// Tells everybody, when it is news.
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
