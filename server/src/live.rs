//! Live events: one journal per server, filled while somebody listens, and read by each stream at its own pace.
//!
//! The store is the truth. A notice, or a look now and then, says that a run changed; the journal takes down how it
//! stands now, under a position that only grows. A newer event about the same thing takes the place of the older one, so
//! that the journal is bounded by how much there is and not by how often it changes. A stream is nothing but a position:
//! whoever reads slowly skips what is out of date by then, and nothing is kept for them.
//!
//! An id of an event names journal and position. Where the journal cannot tell what came after it (it began anew, or
//! let that go), the stream says `resync`, and the client reads again. Nothing is lost without that word.

mod follow;
mod journal;
mod streams;
mod survey;

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nightshift_protocol::api::LiveEvent;
use nightshift_protocol::id::CampaignId;
use tokio::sync::{Notify, watch};
use uuid::Uuid;

pub(crate) use self::follow::run;
pub(crate) use self::journal::{About, Filter};
use self::journal::{Journal, Read};
pub(crate) use self::streams::stream;

/// Streams at once: each holds a connection.
pub(crate) const MAX_STREAMS: usize = 256;
/// How long the beginning of a stream waits for the journal.
const FOLLOWED_WITHIN: Duration = Duration::from_secs(3);
/// Campaigns that were changed and not looked at yet.
const MAX_TOUCHED: usize = 1_000;

/// The journal with those who write and read it.
pub(crate) struct Live {
    /// Tells this journal from those of other servers and other times.
    name: String,
    journal: Mutex<Journal>,
    /// The last position: whoever waits for news waits here.
    news: watch::Sender<u64>,
    listeners: watch::Sender<usize>,
    /// Whether the journal is being written.
    follows: watch::Sender<bool>,
    touched: Mutex<HashSet<CampaignId>>,
    touch: Notify,
}

/// Where a stream begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cursor {
    /// Right after this position.
    After(u64),
    /// With what happens from now on.
    Now,
    /// With what happens from now on, though the client hoped for more.
    Lost,
}

impl Live {
    pub(crate) fn new(name: Uuid) -> Self {
        Self {
            name: name.simple().to_string(),
            journal: Mutex::default(),
            news: watch::Sender::new(0),
            listeners: watch::Sender::new(0),
            follows: watch::Sender::new(false),
            touched: Mutex::default(),
            touch: Notify::new(),
        }
    }

    /// One more listener, who has to leave; false when there are too many.
    fn enter(&self) -> bool {
        self.listeners.send_if_modified(|listeners| {
            let room = *listeners < MAX_STREAMS;
            if room {
                *listeners += 1;
            }
            room
        })
    }

    fn leave(&self) {
        self.listeners.send_modify(|listeners| *listeners = listeners.saturating_sub(1));
    }

    /// Waits until the journal is written. Should the store keep that from beginning, a stream begins all the same: it
    /// is told to read again as soon as it does.
    async fn until_followed(&self) {
        let mut follows = self.follows.subscribe();
        // The sender lives as long as `self`.
        let _ = tokio::time::timeout(FOLLOWED_WITHIN, follows.wait_for(|follows| *follows)).await;
    }

    /// What limits or shares of this campaign are was changed here.
    pub(crate) fn campaign_touched(&self, campaign: &CampaignId) {
        if *self.listeners.borrow() == 0 {
            return;
        }
        let mut touched = self.touched.lock().unwrap_or_else(PoisonError::into_inner);
        if touched.len() < MAX_TOUCHED {
            touched.insert(campaign.clone());
        }
        drop(touched);
        self.touch.notify_one();
    }

    /// Where a client goes on that names this event.
    pub(crate) fn cursor(&self, after: Option<&str>) -> Cursor {
        let Some(after) = after.filter(|text| !text.is_empty()) else { return Cursor::Now };
        match after.split_once('-') {
            Some((name, position)) if name == self.name => position.parse().map_or(Cursor::Lost, Cursor::After),
            _ => Cursor::Lost,
        }
    }

    /// The id of the event at this position.
    pub(crate) fn id(&self, position: u64) -> String {
        format!("{}-{position}", self.name)
    }

    fn last(&self) -> u64 {
        self.journal().last()
    }

    fn read(&self, after: u64, filter: &Filter, limit: usize) -> Read {
        self.journal().after(after, filter, limit)
    }

    fn add(&self, about: About, event: &LiveEvent) {
        let position = self.journal().add(about, event);
        self.news.send_replace(position);
    }

    /// What happened before is not known any more.
    fn begin_anew(&self) {
        let position = self.journal().begin_anew();
        self.news.send_replace(position);
    }

    fn take_touched(&self) -> HashSet<CampaignId> {
        std::mem::take(&mut *self.touched.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn journal(&self) -> MutexGuard<'_, Journal> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_of_another_journal_is_lost() {
        let (here, there) = (Live::new(Uuid::from_u128(1)), Live::new(Uuid::from_u128(2)));
        assert_eq!(here.cursor(Some(&here.id(7))), Cursor::After(7));
        assert_eq!(there.cursor(Some(&here.id(7))), Cursor::Lost);
        for text in ["-", "x", "7", &format!("{}-x", here.name), &format!("{}-", here.name)] {
            assert_eq!(here.cursor(Some(text)), Cursor::Lost, "{text}");
        }
        assert_eq!(here.cursor(None), Cursor::Now);
        assert_eq!(here.cursor(Some("")), Cursor::Now);
    }

    #[test]
    fn a_place_is_free_again_when_its_listener_is_gone() {
        let live = Live::new(Uuid::from_u128(1));
        for _ in 0..MAX_STREAMS {
            assert!(live.enter());
        }
        assert!(!live.enter());
        live.leave();
        assert!(live.enter());
    }
}
