//! The latest event about each thing, in the order they happened.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use nightshift_protocol::api::LiveEvent;
use nightshift_protocol::id::{CampaignId, RunId, WorkerId};

/// Things that the journal knows something about; beyond that the oldest event is let go.
pub(super) const MAX_KEPT: usize = 8_192;

/// What an event is about. There is one event in the journal about each.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum About {
    /// A run of a campaign.
    Run(CampaignId, RunId),
    /// A campaign.
    Campaign(CampaignId),
    /// A worker.
    Worker(WorkerId),
}

/// What a stream is about: everything where it names nothing.
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

/// An event as it is sent.
#[derive(Debug)]
pub(super) struct Entry {
    about: About,
    pub(super) name: &'static str,
    /// JSON, in one line.
    pub(super) data: String,
}

/// The journal.
#[derive(Debug, Default)]
pub(super) struct Journal {
    last: u64,
    /// What came after this position, or after a later one, is all there.
    floor: u64,
    entries: BTreeMap<u64, Arc<Entry>>,
    latest: HashMap<About, u64>,
}

/// What there is after a position.
#[derive(Debug)]
pub(super) enum Read {
    /// Events with their positions, and up to where was looked.
    Found(Vec<(u64, Arc<Entry>)>, u64),
    /// Some of it is gone.
    Gone,
}

impl Journal {
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    /// Takes an event down; what was known about the same thing is out of date.
    pub(super) fn add(&mut self, about: About, event: &LiveEvent) -> u64 {
        // An event always has a JSON form; were there none, an empty one would be sent, which no client understands.
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

    /// Forgets everything: whoever read up to now may have missed something.
    pub(super) fn begin_anew(&mut self) -> u64 {
        self.last += 1;
        self.floor = self.last;
        self.entries.clear();
        self.latest.clear();
        self.last
    }

    /// At most `limit` events after a position that fit.
    pub(super) fn after(&self, position: u64, filter: &Filter, limit: usize) -> Read {
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
    fn what_does_not_fit_is_let_go_and_said_to_be_gone() {
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
    fn a_journal_that_begins_anew_resumes_nobody_who_read_before() {
        let mut journal = Journal::default();
        let before = journal.add(run(1), &event(1));
        let begun = journal.begin_anew();
        assert_eq!(positions(journal.after(before, &Filter::default(), 10)), None);
        assert_eq!(positions(journal.after(begun, &Filter::default(), 10)), Some(vec![]));
        assert_eq!(positions(journal.after(begun + 1, &Filter::default(), 10)), None, "nobody read that far");
    }

    #[test]
    fn a_stream_of_one_campaign_or_run_hears_of_nothing_else() {
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
