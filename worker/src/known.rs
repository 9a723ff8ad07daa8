//! Questions with their answers, put to further programs of a task.
//!
//! With tensors of hundreds of megabytes a check draws inputs and asks reference and truth for longer than it asks the program.
//! All programs of a task may be asked the same, as nobody can hand on what one of them was asked: each has a process of its own
//! without files and network, and answers are told to nobody. So they are kept, for some programs and some minutes, and
//! forgotten as soon as something was told of them. What a result rests on, a confirmation, is asked what nobody was asked
//! before.

use std::any::Any;
use std::ops::Deref;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::task::{ConcreteShapes, ConcreteTensor, TaskSpec, Tolerance, TorchSpec};

use crate::room::{Part, Room};

/// Programs that are asked the same.
const MOST_USES: u32 = 32;

/// For how long.
const KEPT_FOR: Duration = Duration::from_mins(10);

/// How long nobody has to have asked for something that others are kept instead of: where there is too little memory for all of a
/// campaign, some of it is better than each in turn.
const UNUSED_FOR: Duration = Duration::from_mins(1);

/// Elements of an output from which on the few numbers that are told of an answer, as the largest error, say nothing of it.
const FEWEST_ELEMENTS: u64 = 1 << 16;

/// What is kept for the tasks of one device.
#[derive(Debug)]
pub struct KnownQuestions {
    limit_bytes: u64,
    fewest_elements: u64,
    /// The memory that it is kept in; none where nobody else needs any.
    room: Option<Arc<Room>>,
    taken_bytes: Arc<AtomicU64>,
    /// The one that was used last is the last one.
    kept: Mutex<Vec<Kept>>,
}

/// What questions are of.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Subject {
    reference: ArtifactHash,
    truth: ArtifactHash,
    torch: Option<TorchSpec>,
    shapes: Vec<ConcreteShapes>,
    tolerance: Tolerance,
}

#[cfg(test)]
impl Subject {
    /// One that differs from others by its tolerance.
    pub(crate) fn for_tests(atol: f64) -> Self {
        let (reference, truth) = (ArtifactHash::of(b"reference"), ArtifactHash::of(b"truth"));
        let tolerance = Tolerance { atol, rtol: 0.0, reference_error_factor: 64.0 };
        Self { reference, truth, torch: None, shapes: Vec::new(), tolerance }
    }
}

impl Subject {
    /// Of the programs for a task's shapes, by their bytes; none where those cannot be read.
    pub(crate) fn of(spec: &TaskSpec, shapes: &[ConcreteShapes], reference: &Path, truth: &Path) -> Option<Self> {
        let hash = |path: &Path| std::fs::read(path).ok().map(|bytes| ArtifactHash::of(&bytes));
        Some(Self {
            reference: hash(reference)?,
            truth: hash(truth)?,
            torch: spec.torch.clone(),
            shapes: shapes.to_vec(),
            tolerance: spec.tolerance,
        })
    }
}

#[derive(Debug)]
struct Kept {
    of: Subject,
    what: Arc<dyn Any + Send + Sync>,
    uses: u32,
    since: Instant,
    used: Instant,
}

/// What is kept, with its memory: that is given back when nobody has it any more.
#[derive(Debug)]
pub(crate) struct Held<T> {
    what: T,
    _reserved: Reserved,
}

impl<T> Deref for Held<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.what
    }
}

/// Memory for what is to be kept.
#[derive(Debug)]
pub(crate) struct Reserved {
    bytes: u64,
    of: Arc<AtomicU64>,
    _part: Option<Part>,
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.of.fetch_sub(self.bytes, Ordering::SeqCst);
    }
}

impl KnownQuestions {
    /// Keeps so many bytes at most.
    #[must_use]
    pub fn new(limit_bytes: u64) -> Self {
        let (taken_bytes, kept) = (Arc::default(), Mutex::default());
        Self { limit_bytes, fewest_elements: FEWEST_ELEMENTS, room: None, taken_bytes, kept }
    }

    /// Keeps them of outputs with so few elements, too: for tests.
    #[must_use]
    pub fn of_small_outputs(self, fewest_elements: u64) -> Self {
        Self { fewest_elements, ..self }
    }

    /// In a memory that steps take parts of.
    pub(crate) fn within(self, room: Arc<Room>) -> Self {
        Self { room: Some(room), ..self }
    }

    /// Memory to keep questions in, for which others may be forgotten; none where there is not as much, or where what is told
    /// of an answer says too much of it.
    pub(crate) fn reserve(&self, shapes: &[ConcreteShapes], bytes: u64) -> Option<Reserved> {
        let outputs = shapes.iter().flat_map(|shapes| &shapes.outputs);
        if bytes > self.limit_bytes || outputs.map(ConcreteTensor::elements).any(|count| count < self.fewest_elements) {
            return None;
        }
        let mut kept = self.kept();
        kept.retain(|one| one.since.elapsed() < KEPT_FOR);
        let part = match &self.room {
            Some(room) => Some(room.take_if_free(bytes)?),
            None => None,
        };
        while self.taken_bytes.load(Ordering::SeqCst).saturating_add(bytes) > self.limit_bytes {
            kept.first().filter(|longest| longest.used.elapsed() >= UNUSED_FOR)?;
            kept.remove(0);
        }
        self.taken_bytes.fetch_add(bytes, Ordering::SeqCst);
        Some(Reserved { bytes, of: Arc::clone(&self.taken_bytes), _part: part })
    }

    /// Keeps questions, instead of those of the same kind that are known of the subject; not when somebody waits for memory.
    pub(crate) fn keep<T: Any + Send + Sync>(&self, of: Subject, what: T, reserved: Reserved) -> Arc<Held<T>> {
        let what = Arc::new(Held { what, _reserved: reserved });
        let mut kept = self.kept();
        kept.retain(|one| one.of != of || !one.what.is::<Held<T>>());
        if !self.room.as_ref().is_some_and(|room| room.is_waited_for()) {
            let now = Instant::now();
            kept.push(Kept { of, what: what.clone(), uses: 1, since: now, used: now });
        }
        what
    }

    /// Questions for one more program.
    pub(crate) fn take<T: Any + Send + Sync>(&self, of: &Subject) -> Option<Arc<Held<T>>> {
        let mut kept = self.kept();
        kept.retain(|one| one.since.elapsed() < KEPT_FOR);
        let found = kept.iter().position(|one| one.of == *of && one.what.is::<Held<T>>())?;
        let mut one = kept.remove(found);
        (one.uses, one.used) = (one.uses + 1, Instant::now());
        let what = Arc::clone(&one.what);
        if one.uses < MOST_USES {
            kept.push(one);
        }
        what.downcast().ok()
    }

    /// Something was told of the answers.
    pub(crate) fn forget<T: Any + Send + Sync>(&self, of: &Subject) {
        self.kept().retain(|one| one.of != *of || !one.what.is::<Held<T>>());
    }

    /// Forgets what was not asked for the longest. Whether there was something.
    pub(crate) fn forget_longest(&self) -> bool {
        let mut kept = self.kept();
        let some = !kept.is_empty();
        kept.drain(..usize::from(some));
        some
    }

    /// Forgets what was kept long enough.
    pub(crate) fn forget_old(&self) {
        self.kept().retain(|one| one.since.elapsed() < KEPT_FOR);
    }

    /// Forgets everything.
    pub(crate) fn clear(&self) {
        self.kept().clear();
    }

    /// Gives memory back to steps that have to wait for some: until there is as much for them, or nothing is left.
    pub(crate) fn make_room(&self, bytes: u64, beside: u64) {
        let Some(room) = &self.room else { return };
        let mut kept = self.kept();
        while !room.has_room(bytes, beside) && !kept.is_empty() {
            kept.remove(0);
        }
    }

    /// Bytes that are kept.
    #[must_use]
    pub fn kept_bytes(&self) -> u64 {
        self.taken_bytes.load(Ordering::SeqCst)
    }

    fn kept(&self) -> MutexGuard<'_, Vec<Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nightshift_sandbox::process::CancelFlag;

    fn kept(known: &KnownQuestions, of: f64, bytes: u64) -> bool {
        known.reserve(&[], bytes).map(|reserved| known.keep(Subject::for_tests(of), "questions", reserved)).is_some()
    }

    #[test]
    fn so_many_programs_are_asked_the_same() {
        let known = KnownQuestions::new(100);
        assert!(known.take::<&str>(&Subject::for_tests(1.0)).is_none());
        assert!(kept(&known, 1.0, 60));
        assert!(
            known.take::<&str>(&Subject::for_tests(2.0)).is_none()
                && known.take::<String>(&Subject::for_tests(1.0)).is_none()
        );
        let further = (1..100).take_while(|_| known.take::<&str>(&Subject::for_tests(1.0)).is_some()).count();
        assert_eq!((further + 1, known.kept_bytes()), (usize::try_from(MOST_USES).unwrap_or(0), 0));
    }

    #[test]
    fn what_was_told_is_forgotten_and_nothing_else() {
        let known = KnownQuestions::new(100);
        assert!(kept(&known, 1.0, 30) && kept(&known, 2.0, 30));
        known.forget::<String>(&Subject::for_tests(1.0));
        assert_eq!(known.kept_bytes(), 60);
        known.forget::<&str>(&Subject::for_tests(1.0));
        assert!(
            known.take::<&str>(&Subject::for_tests(1.0)).is_none()
                && known.take::<&str>(&Subject::for_tests(2.0)).is_some()
        );
        assert!(kept(&known, 2.0, 50), "newer ones");
        assert_eq!(known.kept_bytes(), 50);
    }

    #[test]
    fn what_is_in_use_is_not_forgotten_for_others() {
        let known = KnownQuestions::new(100);
        assert!(kept(&known, 1.0, 60) && !kept(&known, 2.0, 60) && !kept(&known, 3.0, 101));
        assert!(known.take::<&str>(&Subject::for_tests(1.0)).is_some());
        let reserved = known.reserve(&[], 40);
        assert!(reserved.is_some() && known.reserve(&[], 1).is_none(), "what is reserved counts");
        if let Some(first) = known.kept().first_mut() {
            first.used = Instant::now().checked_sub(UNUSED_FOR).unwrap_or(first.used);
        }
        assert!(kept(&known, 2.0, 60) && known.take::<&str>(&Subject::for_tests(1.0)).is_none());
    }

    #[test]
    fn steps_have_the_memory_before() {
        let room = Room::new("memory", 1 << 40);
        let known = KnownQuestions::new(u64::MAX).within(Arc::clone(&room));
        assert!(kept(&known, 1.0, 1 << 39) && kept(&known, 2.0, 1 << 38));
        known.make_room(1 << 36, 0);
        assert_eq!(known.kept_bytes(), (1 << 39) + (1 << 38), "there is enough");
        known.make_room(1 << 38, 0);
        assert_eq!(known.kept_bytes(), 1 << 38);
        let step = room.take(1 << 39, 0, &|| known.make_room(1 << 39, 0), &CancelFlag::default());
        assert!(step.is_ok() && !kept(&known, 3.0, 1 << 38), "a step has it");
    }
}
