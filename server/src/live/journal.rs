//! The journal: the latest event about each object, in order of time.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use nightshift_protocol::api::LiveEvent;
use nightshift_protocol::id::{CampaignId, RunId, WorkerId};

/// Maximum number of objects. Beyond it, the oldest event is dropped.
pub(crate) const MAX_KEPT: usize = 8_192;

/// The object of an event. The journal has one event per object.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum About {
    /// A run of a campaign.
    Run(CampaignId, RunId),
    /// A campaign.
    Campaign(CampaignId),
    /// A worker.
    Worker(WorkerId),
}

/// The filter of a stream. An empty filter matches everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Filter {
    /// Only this campaign and its runs.
    pub(crate) campaign: Option<CampaignId>,
    /// Only this run and its campaign.
    pub(crate) run: Option<RunId>,
}

impl Filter {
    fn fits(&self, about: &About) -> bool {
        match about {
            About::Run(campaign, run) => {
                self.campaign.as_ref().is_none_or(|wanted| wanted == campaign)
                    && self.run.as_ref().is_none_or(|wanted| wanted == run)
            }
            About::Campaign(campaign) => self.campaign.as_ref().map_or(self.run.is_none(), |wanted| wanted == campaign),
            About::Worker(_) => self.campaign.is_none() && self.run.is_none(),
        }
    }
}

/// A serialized event.
#[derive(Debug)]
pub(crate) struct Entry {
    about: About,
    pub(crate) name: &'static str,
    /// JSON, in one line.
    pub(crate) data: String,
}

/// The journal.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    last: u64,
    /// The journal is complete after this position.
    floor: u64,
    entries: BTreeMap<u64, Arc<Entry>>,
    latest: HashMap<About, u64>,
}

/// Result of a read after a position.
#[derive(Debug)]
pub(crate) enum Read {
    /// Events with their positions, and the position up to which the journal was read.
    Found(Vec<(u64, Arc<Entry>)>, u64),
    /// Some of the events were dropped.
    Gone,
}

impl Journal {
    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    /// Adds an event, which replaces the earlier one about the same object.
    pub(crate) fn add(&mut self, about: About, event: &LiveEvent) -> u64 {
        // An event always serializes. Clients would reject the empty text.
        let data = serde_json::to_string(event).unwrap_or_default();
        self.last += 1;
        if let Some(old) = self.latest.insert(about.clone(), self.last) {
            self.entries.remove(&old);
        }
        self.entries.insert(self.last, Arc::new(Entry { about, name: event.name(), data }));
        if self.entries.len() > MAX_KEPT
            && let Some((position, entry)) = self.entries.pop_first()
        {
            self.floor = position;
            self.latest.remove(&entry.about);
        }
        self.last
    }

    /// Drops everything and returns the new position. Readers may have missed events.
    pub(crate) fn restart(&mut self) -> u64 {
        self.last += 1;
        self.floor = self.last;
        self.entries.clear();
        self.latest.clear();
        self.last
    }

    /// Returns at most `limit` matching events after a position.
    pub(crate) fn after(&self, position: u64, filter: &Filter, limit: usize) -> Read {
        if position < self.floor || position > self.last {
            return Read::Gone;
        }
        let mut found = Vec::new();
        for (at, entry) in self.entries.range(position + 1..).filter(|(_, entry)| filter.fits(&entry.about)) {
            if found.len() == limit {
                let looked = found.last().map_or(position, |(at, _)| *at);
                return Read::Found(found, looked);
            }
            found.push((*at, Arc::clone(entry)));
        }
        Read::Found(found, self.last)
    }
}

#[cfg(test)]
mod tests {
    use nightshift_protocol::time::TimestampMs;
    use uuid::Uuid;

    use super::*;

    fn run(number: usize) -> About {
        let number = number as u128;
        About::Run(CampaignId::from_uuid(Uuid::from_u128(number % 2)), RunId::from_uuid(Uuid::from_u128(number)))
    }

    fn event(number: usize) -> LiveEvent {
        LiveEvent::Heartbeat { at: TimestampMs(i64::try_from(number).unwrap_or(i64::MAX)) }
    }

    fn positions(read: Read) -> Option<Vec<u64>> {
        match read {
            Read::Found(found, _) => Some(found.into_iter().map(|(position, _)| position).collect()),
            Read::Gone => None,
        }
    }

    #[test]
    fn a_newer_event_about_the_same_run_takes_the_place_of_the_older_one() {
        let mut journal = Journal::default();
        for number in [1, 2, 1] {
            journal.add(run(number), &event(number));
        }
        assert_eq!(positions(journal.after(0, &Filter::default(), 10)), Some(vec![2, 3]));
        assert_eq!(positions(journal.after(1, &Filter::default(), 10)), Some(vec![2, 3]), "nothing after 1 is lost");
        assert_eq!(positions(journal.after(3, &Filter::default(), 10)), Some(vec![]));
    }

    #[test]
    fn events_beyond_the_limit_are_dropped_and_reported_as_gone() {
        let mut journal = Journal::default();
        for number in 0..=MAX_KEPT {
            journal.add(run(number), &event(number));
        }
        assert_eq!(positions(journal.after(0, &Filter::default(), 10)), None);
        let rest = positions(journal.after(1, &Filter::default(), MAX_KEPT));
        assert_eq!(rest.map(|rest| (rest.len(), rest[0])), Some((MAX_KEPT, 2)));
        for number in 0..MAX_KEPT * 2 {
            journal.add(run(number % 3), &event(number));
        }
        assert_eq!(journal.entries.len(), MAX_KEPT, "what changes often takes no room");
    }

    #[test]
    fn a_restarted_journal_resumes_no_earlier_reader() {
        let mut journal = Journal::default();
        let before = journal.add(run(1), &event(1));
        let begun = journal.restart();
        assert_eq!(positions(journal.after(before, &Filter::default(), 10)), None);
        assert_eq!(positions(journal.after(begun, &Filter::default(), 10)), Some(vec![]));
        assert_eq!(positions(journal.after(begun + 1, &Filter::default(), 10)), None, "the position is in the future");
    }

    #[test]
    fn a_stream_of_one_campaign_or_run_gets_no_other_events() {
        let mut journal = Journal::default();
        let (one, two) = (run(1), run(2));
        let (About::Run(campaign, id), About::Run(other, _)) = (one.clone(), two.clone()) else { return };
        for about in [one, two, About::Campaign(campaign.clone()), About::Campaign(other)] {
            journal.add(about, &event(0));
        }
        journal.add(About::Worker(nightshift_protocol::id::WorkerId::from_uuid(Uuid::from_u128(9))), &event(0));
        let of_campaign = Filter { campaign: Some(campaign), run: None };
        assert_eq!(positions(journal.after(0, &of_campaign, 10)), Some(vec![1, 3]));
        let of_run = Filter { campaign: None, run: Some(id) };
        assert_eq!(positions(journal.after(0, &of_run, 10)), Some(vec![1]));
        assert!(matches!(journal.after(0, &of_run, 10), Read::Found(_, 5)), "the rest was looked at, too");
    }
}
