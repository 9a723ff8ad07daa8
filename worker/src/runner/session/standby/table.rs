//! The processes that are kept on one device.

use std::time::{Duration, Instant};

use super::process::MAX_ARENA_BYTES;
use super::shares::shares;
use super::{KEPT_FOR, Kind, OwnMemory, Purpose};
use crate::runner::session::Session;

/// Programs of this time ask for as many processes to be ready: about twice what one takes to become so.
const RECENT: Duration = Duration::from_secs(2);
const RECENT_PYTHONS: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) trusted: Vec<Kept<()>>,
    pub(super) spare: Vec<Kept<Kind>>,
    /// Spare ones that are getting ready.
    pub(super) coming: Vec<Kind>,
    /// Those that are of no use any more.
    pub(super) over: Vec<Session>,
    /// Of which kinds programs were lately, and when the last ones of each came.
    last: Vec<(Kind, Vec<Program>)>,
    /// Whether nothing is kept any more.
    pub(super) closed: bool,
}

/// A program that was there.
#[derive(Debug)]
struct Program {
    at: Instant,
    memory: ExpectedMemory,
}

/// Memory that a program takes before it computes anything, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct ExpectedMemory {
    /// Size of its arena.
    pub(super) arena: u64,
    /// What it is told to hold of the device for what is kept there.
    pub(super) stock: u64,
}

impl Program {
    fn is_recent(&self, kind: &Kind) -> bool {
        self.at.elapsed() < recent(kind)
    }
}

#[derive(Debug)]
pub(super) struct Kept<T> {
    pub(super) session: Session,
    pub(super) what: T,
    pub(super) since: Instant,
}

/// See [`RECENT`].
fn recent(kind: &Kind) -> Duration {
    if kind.python { RECENT_PYTHONS } else { RECENT }
}

impl Table {
    /// Remembers that a program of this kind was there.
    pub(super) fn note(&mut self, kind: &Kind, memory: ExpectedMemory) {
        let known = self.last.iter().position(|(other, _)| other == kind).map(|known| self.last.swap_remove(known).1);
        self.last.retain(|(other, _)| other.python != kind.python);
        let mut programs = known.unwrap_or_default();
        programs.retain(|program| program.is_recent(kind));
        programs.push(Program { at: Instant::now(), memory });
        self.last.push((kind.clone(), programs));
    }

    /// The most that programs of this kind took lately, of those that do not take too much to have it ready.
    pub(super) fn expected_memory(&self, kind: &Kind) -> ExpectedMemory {
        let programs = self.last.iter().filter(|(other, _)| other == kind).flat_map(|(_, programs)| programs);
        let small = programs.map(|program| program.memory).filter(|memory| memory.arena <= MAX_ARENA_BYTES);
        small.fold(ExpectedMemory::default(), |most, memory| ExpectedMemory {
            arena: most.arena.max(memory.arena),
            stock: most.stock.max(memory.stock),
        })
    }

    /// The kinds of which programs were lately, and how many of each not long ago.
    pub(super) fn wanted(&self) -> Vec<(Kind, usize)> {
        let is_late = |programs: &[Program]| programs.last().is_some_and(|last| last.at.elapsed() < KEPT_FOR);
        let lately = self.last.iter().filter(|(_, programs)| is_late(programs));
        lately
            .map(|(kind, programs)| (kind.clone(), programs.iter().filter(|program| program.is_recent(kind)).count()))
            .collect()
    }

    /// How many spare processes there are of this kind, with those that are getting ready.
    pub(super) fn spares_of(&self, kind: &Kind) -> usize {
        self.spare.iter().map(|kept| &kept.what).chain(&self.coming).filter(|what| *what == kind).count()
    }

    /// How many of them are getting ready.
    pub(super) fn coming_of(&self, kind: &Kind) -> usize {
        self.coming.iter().filter(|what| *what == kind).count()
    }

    /// What spare processes hold, and those that are getting ready.
    pub(super) fn spare_shares(&self) -> usize {
        self.spare.iter().map(|kept| &kept.what).chain(&self.coming).map(|kind| shares(kind.python)).sum()
    }

    pub(super) fn has_come(&mut self, kind: &Kind) {
        if let Some(position) = self.coming.iter().position(|coming| coming == kind) {
            self.coming.swap_remove(position);
        }
    }

    pub(super) fn take_spare(&mut self, kind: &Kind) -> Option<Session> {
        let found = self.spare.iter().position(|kept| kept.what == *kind)?;
        Some(self.spare.remove(found).session)
    }

    /// The one that was used last: its memory is the most likely to be where it was.
    pub(super) fn take_trusted(&mut self, purpose: &Purpose) -> Option<Session> {
        let serves = |kept: &Kept<()>| kept.session.purpose.as_ref().is_some_and(|own| own.serves(purpose));
        let found = self.trusted.iter().rposition(serves)?;
        Some(self.trusted.remove(found).session)
    }

    /// One that makes room: of those that are of no use any more, or the one that was kept longest.
    pub(super) fn take_to_make_room(&mut self) -> Option<Session> {
        if let Some(over) = self.over.pop() {
            return Some(over);
        }
        // Both are in the order in which they came.
        let (trusted, spare) = (self.trusted.first(), self.spare.first());
        match (trusted.map(|kept| kept.since), spare.map(|kept| kept.since)) {
            (Some(trusted), Some(spare)) if spare < trusted => Some(self.spare.remove(0).session),
            (Some(_), _) => Some(self.trusted.remove(0).session),
            (None, Some(_)) => Some(self.spare.remove(0).session),
            (None, None) => None,
        }
    }

    /// The trusted one that was kept longest of those that have memory of the device which somebody else could use.
    pub(super) fn take_trusted_with_device_memory(&mut self) -> Option<Kept<()>> {
        let found = self.trusted.iter().position(|kept| kept.session.own().is_on_device())?;
        Some(self.trusted.remove(found))
    }

    /// Puts one back to where it was.
    pub(super) fn put_back(&mut self, kept: Kept<()>) {
        let place = self.trusted.partition_point(|other| other.since <= kept.since);
        self.trusted.insert(place, kept);
    }

    /// The spare one that was kept longest of those that have such memory of their own.
    pub(super) fn take_spare_with(&mut self, has: impl Fn(&OwnMemory) -> bool) -> Option<Session> {
        let found = self.spare.iter().position(|kept| has(kept.session.own()))?;
        Some(self.spare.remove(found).session)
    }

    pub(super) fn take_kept_since_before(&mut self, moment: Option<Instant>) -> Vec<Session> {
        let Some(moment) = moment else { return Vec::new() };
        let trusted = self.trusted.extract_if(.., |kept| kept.since < moment).map(|kept| kept.session);
        let spare = self.spare.extract_if(.., |kept| kept.since < moment).map(|kept| kept.session);
        trusted.chain(spare).collect()
    }

    pub(super) fn take_all(&mut self) -> Vec<Session> {
        let trusted = self.trusted.drain(..).map(|kept| kept.session);
        trusted.chain(self.spare.drain(..).map(|kept| kept.session)).chain(self.over.drain(..)).collect()
    }
}
