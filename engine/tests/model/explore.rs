//! Explores every reachable state of a model, breadth first.

use std::collections::{BTreeSet, HashMap};
use std::fmt::{self, Debug, Write as _};
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::io::Write as _;
use std::rc::Rc;

/// Maximum number of states. A larger model takes too long for a check of every change.
const MAX_STATES: usize = 600_000;

/// The rule that every reachable state can still reach the end.
pub(crate) const THE_END_STAYS_WITHIN_REACH: &str = "from every state all work can still be settled without faults";

/// A small world.
pub(crate) trait Model {
    /// A state of the world. Equal states have the same future.
    type State: Clone + Eq + Hash + Debug;
    /// A transition.
    type Action: Copy + Eq + Debug;

    /// Returns the initial state.
    fn initial(&self) -> Self::State;

    /// Adds all possible transitions, with the states that they lead to.
    fn successors(&self, state: &Self::State, into: &mut Vec<(Self::Action, Self::State)>);

    /// Returns the rule that a state breaks.
    fn broken_by_state(&self, state: &Self::State) -> Option<&'static str>;

    /// Returns the rule that a transition breaks.
    fn broken_by_action(&self, before: &Self::State, action: Self::Action, after: &Self::State)
    -> Option<&'static str>;

    /// Returns the example that a transition shows. Each example has to occur at least once.
    fn example(&self, before: &Self::State, action: Self::Action, after: &Self::State) -> Option<&'static str>;

    /// Returns whether a transition is a fault. The world has to reach its end without faults.
    fn is_fault(&self, action: Self::Action) -> bool;

    /// Returns whether all work is settled.
    fn is_settled(&self, state: &Self::State) -> bool;
}

/// Result of an exploration.
pub(crate) struct Walk {
    states: usize,
    actions: usize,
    longest: u32,
    examples: BTreeSet<&'static str>,
    counterexample: Option<Counterexample>,
}

/// The shortest path to a broken rule.
struct Counterexample {
    rule: &'static str,
    way: Vec<String>,
    state: String,
}

impl fmt::Display for Counterexample {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "broken rule: {}", self.rule)?;
        for (number, action) in self.way.iter().enumerate() {
            writeln!(formatter, "{:>4}. {action}", number + 1)?;
        }
        write!(formatter, "then: {}", self.state)
    }
}

/// Fails with a counterexample unless every rule holds in every state and every example occurs.
pub(crate) fn assert_holds<M: Model>(world: &str, model: &M, examples: &[&str]) {
    let walk = walk(model);
    tell(world, &walk);
    if let Some(counterexample) = &walk.counterexample {
        panic!("{world}: {counterexample}");
    }
    let missed: Vec<_> = examples.iter().filter(|example| !walk.examples.contains(*example)).collect();
    assert!(missed.is_empty(), "{world}: never happened: {missed:?}; happened: {:?}", walk.examples);
}

/// Fails unless the exploration finds that this rule breaks.
pub(crate) fn assert_caught<M: Model>(world: &str, model: &M, rule: &str) {
    let walk = walk(model);
    tell(world, &walk);
    let Some(counterexample) = &walk.counterexample else {
        panic!("{world}: the flaw was not found in {} states", walk.states);
    };
    assert_eq!(counterexample.rule, rule, "{world}: another rule broke: {counterexample}");
}

/// Prints the numbers past the output capture of the test harness. Prints the counterexample of a flaw only if output
/// is requested.
fn tell(world: &str, walk: &Walk) {
    let Walk { states, actions, longest, .. } = walk;
    let end = if walk.counterexample.is_some() { "a rule broke" } else { "every rule holds" };
    let line = format!("model {world}: {states} states, {actions} actions, at most {longest} actions deep: {end}\n");
    let told = std::io::stderr().lock().write_all(line.as_bytes());
    assert!(told.is_ok(), "standard error is closed: {told:?}");
    if let Some(counterexample) = &walk.counterexample {
        eprintln!("{counterexample}");
    }
}

/// A state, and how it was reached first.
struct Visit<M: Model> {
    state: Rc<M::State>,
    from: Option<(u32, M::Action)>,
    depth: u32,
}

/// Explores until a rule breaks or no state is left.
fn walk<M: Model>(model: &M) -> Walk {
    let initial = Rc::new(model.initial());
    let mut known: HashMap<Rc<M::State>, u32, BuildHasherDefault<WordHasher>> = HashMap::default();
    known.insert(Rc::clone(&initial), 0);
    let mut visits: Vec<Visit<M>> = vec![Visit { state: initial, from: None, depth: 0 }];
    let mut faultless: Vec<(u32, u32)> = Vec::new();
    let mut found = Walk { states: 0, actions: 0, longest: 0, examples: BTreeSet::new(), counterexample: None };
    if let Some(rule) = model.broken_by_state(&visits[0].state) {
        found.counterexample = Some(retrace(&visits, 0, None, rule));
        return found;
    }

    let mut next = 0;
    let mut successors = Vec::new();
    while let Some(visit) = visits.get(next) {
        let (before, depth) = (Rc::clone(&visit.state), visit.depth);
        let from = number(next);
        model.successors(&before, &mut successors);
        for (action, after) in successors.drain(..) {
            found.actions += 1;
            let broken = model.broken_by_action(&before, action, &after).or_else(|| model.broken_by_state(&after));
            if let Some(rule) = broken {
                found.states = visits.len();
                found.counterexample = Some(retrace(&visits, next, Some((action, &after)), rule));
                return found;
            }
            found.examples.extend(model.example(&before, action, &after));
            let to = if let Some(to) = known.get(&after) {
                *to
            } else {
                let to = number(visits.len());
                let state = Rc::new(after);
                known.insert(Rc::clone(&state), to);
                visits.push(Visit { state, from: Some((from, action)), depth: depth + 1 });
                found.longest = found.longest.max(depth + 1);
                to
            };
            if to != from && !model.is_fault(action) {
                faultless.push((to, from));
            }
        }
        next += 1;
    }
    found.states = visits.len();
    if let Some(stuck) = first_stuck(model, &visits, faultless) {
        found.counterexample = Some(retrace(&visits, stuck, None, THE_END_STAYS_WITHIN_REACH));
    }
    found
}

/// Returns the first state from which faultless transitions reach no settled state. `faultless` has them reversed, as
/// (to, from).
fn first_stuck<M: Model>(model: &M, visits: &[Visit<M>], mut faultless: Vec<(u32, u32)>) -> Option<usize> {
    faultless.sort_unstable();
    let mut ends = vec![false; visits.len()];
    let mut open: Vec<u32> = Vec::new();
    for (index, visit) in visits.iter().enumerate() {
        if model.is_settled(&visit.state) {
            ends[index] = true;
            open.push(number(index));
        }
    }
    while let Some(to) = open.pop() {
        let begin = faultless.partition_point(|edge| edge.0 < to);
        for (_, from) in faultless[begin..].iter().take_while(|edge| edge.0 == to) {
            let from_index = index(*from);
            if !ends[from_index] {
                ends[from_index] = true;
                open.push(*from);
            }
        }
    }
    ends.iter().position(|ends| !ends)
}

/// Returns the path to a visited state, with one more transition.
fn retrace<M: Model>(
    visits: &[Visit<M>],
    at: usize,
    further: Option<(M::Action, &M::State)>,
    rule: &'static str,
) -> Counterexample {
    let mut way = Vec::new();
    let mut state = String::new();
    let told = match further {
        Some((action, after)) => {
            way.push(format!("{action:?}"));
            write!(state, "{after:#?}")
        }
        None => write!(state, "{:#?}", visits[at].state),
    };
    assert!(told.is_ok(), "a state cannot be told");
    let mut from = visits[at].from;
    while let Some((before, action)) = from {
        way.push(format!("{action:?}"));
        from = visits[index(before)].from;
    }
    way.reverse();
    Counterexample { rule, way, state }
}

fn number(index: usize) -> u32 {
    match u32::try_from(index) {
        Ok(number) if index < MAX_STATES => number,
        _ => panic!("the model has more than {MAX_STATES} states: make its world smaller"),
    }
}

fn index(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// A hash function for words that is fast even without optimization. States are compared by equality.
#[derive(Default)]
struct WordHasher(u64);

impl WordHasher {
    fn mix(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

impl Hasher for WordHasher {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            self.mix(chunk.iter().fold(0, |word, byte| (word << 8) | u64::from(*byte)));
        }
    }

    fn write_u8(&mut self, byte: u8) {
        self.mix(u64::from(byte));
    }

    fn write_i8(&mut self, byte: i8) {
        self.mix(u64::from(byte.cast_unsigned()));
    }

    fn write_usize(&mut self, size: usize) {
        self.mix(u64::try_from(size).unwrap_or(u64::MAX));
    }

    fn write_isize(&mut self, size: isize) {
        self.write_usize(size.cast_unsigned());
    }

    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }
}
