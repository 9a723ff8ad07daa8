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

    /// For people. What is usual is short: the bar of the page has room for one word of five letters.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Still => String::new(),
            Self::Connecting => "…".to_owned(),
            Self::Live => "live".to_owned(),
            Self::Polling => "polls".to_owned(),
            Self::Offline(since) => format!("offline, as of {since}"),
            Self::Refused(status) => format!("not updated: the server answers {status}"),
        }
    }

    /// What the word means.
    pub(crate) fn title(&self) -> Option<&'static str> {
        match self {
            Self::Still => None,
            Self::Connecting => Some("The page is about to follow what happens."),
            Self::Live => Some("What happens is shown at once."),
            Self::Polling => Some("The page is read again every few seconds."),
            Self::Offline(_) => Some("Nobody answers: the page is as old as this."),
            Self::Refused(_) => Some("The server does not give the page any more."),
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
