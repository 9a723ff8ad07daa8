//! The questions of one check: drawn for it, or those that programs before it were asked.

use std::path::Path;
use std::sync::Arc;

use nightshift_protocol::task::{ConcreteShapes, TaskSpec};

use super::examination::Questions;
use super::question::{Paper, paper_bytes};
use crate::golden::Recorded;
use crate::inputs::SecretSeeds;
use crate::known::{Held, KnownQuestions, Reserved, Subject};
use crate::runner::{Grounds, Turn};

/// For each shape of a check, in order.
#[derive(Debug)]
struct Papers(Vec<Paper>);

/// Where a check has its questions from, and what becomes of them.
pub(super) struct Asking<'a> {
    terms: Terms<'a>,
    /// At the processes of reference and truth, where these have to be asked.
    turn: Option<Turn<'a>>,
}

enum Terms<'a> {
    /// Drawn, and for this check alone.
    Once,
    /// Drawn as they were for a recording, whose answers these are.
    Recorded(Vec<Option<Recorded>>),
    /// Drawn, and kept for further programs if this one passes.
    First { known: &'a KnownQuestions, of: Subject, reserved: Reserved, papers: Vec<Paper> },
    /// Those of programs before.
    Again { known: &'a KnownQuestions, of: Subject, papers: Arc<Held<Papers>> },
}

impl<'a> Asking<'a> {
    /// Drawn, and for this check alone.
    pub(super) fn once() -> Self {
        Self { terms: Terms::Once, turn: None }
    }

    /// Drawn from the seed of a recording with these answers.
    pub(super) fn recorded(answers: Vec<Option<Recorded>>) -> Self {
        Self { terms: Terms::Recorded(answers), turn: None }
    }

    /// As other programs are asked that have the same reference and truth, where questions are kept. Waits for those who ask
    /// them first. Not for a thread that has a place on the device.
    pub(super) fn like_others(
        grounds: &Grounds<'a>,
        spec: &TaskSpec,
        shapes: &[ConcreteShapes],
        (reference, truth): (&Path, &Path),
    ) -> Self {
        let Some(known) = grounds.known() else { return Self::once() };
        let Some(of) = Subject::of(spec, shapes, reference, truth) else { return Self::once() };
        let before = || known.take(&of).map(|papers| Terms::Again { known, of: of.clone(), papers });
        if let Some(terms) = before() {
            return Self { terms, turn: None };
        }
        let turn = grounds.turn(&of, reference);
        if let Some(terms) = turn.as_ref().and_then(|_| before()) {
            return Self { terms, turn: None };
        }
        let bytes = shapes.iter().enumerate().map(|(number, shapes)| paper_bytes(shapes, number == 0)).sum();
        let reserved = grounds.reserve_known(shapes, bytes);
        let terms = reserved.map_or(Terms::Once, |reserved| Terms::First { known, of, reserved, papers: Vec::new() });
        Self { terms, turn }
    }

    /// The answers of all shapes, where they are known.
    pub(super) fn answers(&self) -> Option<Vec<Option<Recorded>>> {
        match &self.terms {
            Terms::Once | Terms::First { .. } => None,
            Terms::Recorded(answers) => Some(answers.clone()),
            Terms::Again { papers, .. } => {
                Some(papers.0.iter().flat_map(|paper| paper.answers.iter().cloned()).collect())
            }
        }
    }

    /// What to ask at the shape of that number.
    pub(super) fn questions<'q>(&'q mut self, number: usize, seeds: &'q mut SecretSeeds) -> Questions<'q> {
        match &mut self.terms {
            Terms::Once | Terms::Recorded(_) => Questions::Drawn { seeds, kept: None },
            Terms::First { papers, .. } => Questions::Drawn { seeds, kept: Some(papers) },
            Terms::Again { papers, .. } => match papers.0.get(number) {
                Some(paper) => Questions::Known(paper),
                None => Questions::Drawn { seeds, kept: None },
            },
        }
    }

    /// Whether reference and truth are not asked, as they answered before.
    pub(super) fn is_known(&self) -> bool {
        matches!(self.terms, Terms::Again { .. })
    }

    /// Keeps the questions for further programs, if all of them were asked and nothing was told of the answers; else forgets
    /// them. Gives the turn at the processes that were asked, until these are left.
    pub(super) fn end(self, says_nothing: bool) -> Option<Turn<'a>> {
        match self.terms {
            Terms::First { known, of, reserved, papers } if says_nothing => {
                known.keep(of, Papers(papers), reserved);
            }
            Terms::Again { known, of, .. } if !says_nothing => known.forget::<Papers>(&of),
            Terms::Once | Terms::Recorded(_) | Terms::First { .. } | Terms::Again { .. } => {}
        }
        self.turn
    }
}
