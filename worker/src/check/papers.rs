//! The questions of one check: drawn for it, or those that programs before it were asked.

use std::path::Path;
use std::sync::Arc;

use nightshift_protocol::task::{ConcreteShapes, TaskSpec};

use super::examination::Questions;
use super::question::{Paper, paper_bytes};
use crate::golden::Recorded;
use crate::inputs::SecretSeeds;
use crate::known::{Held, KnownQuestions, Reserved, Subject};
use crate::runner::Grounds;

/// For each shape of a check, in order.
#[derive(Debug)]
struct Papers(Vec<Paper>);

/// Where a check has its questions from, and what becomes of them.
pub(super) struct Asking<'a>(Terms<'a>);

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
        Self(Terms::Once)
    }

    /// Drawn from the seed of a recording with these answers.
    pub(super) fn recorded(answers: Vec<Option<Recorded>>) -> Self {
        Self(Terms::Recorded(answers))
    }

    /// As other programs are asked that have the same reference and truth, where questions are kept.
    pub(super) fn like_others(
        grounds: &Grounds<'a>,
        spec: &TaskSpec,
        shapes: &[ConcreteShapes],
        (reference, truth): (&Path, &Path),
    ) -> Self {
        let Some(known) = grounds.known() else { return Self::once() };
        let Some(of) = Subject::of(spec, shapes, reference, truth) else { return Self::once() };
        if let Some(papers) = known.take(&of) {
            return Self(Terms::Again { known, of, papers });
        }
        let bytes = shapes.iter().enumerate().map(|(number, shapes)| paper_bytes(shapes, number == 0)).sum();
        let reserved = grounds.reserve_known(shapes, bytes);
        Self(reserved.map_or(Terms::Once, |reserved| Terms::First { known, of, reserved, papers: Vec::new() }))
    }

    /// The answers of all shapes, where they are known.
    pub(super) fn answers(&self) -> Option<Vec<Option<Recorded>>> {
        match &self.0 {
            Terms::Once | Terms::First { .. } => None,
            Terms::Recorded(answers) => Some(answers.clone()),
            Terms::Again { papers, .. } => {
                Some(papers.0.iter().flat_map(|paper| paper.answers.iter().cloned()).collect())
            }
        }
    }

    /// What to ask at the shape of that number.
    pub(super) fn questions<'q>(&'q mut self, number: usize, seeds: &'q mut SecretSeeds) -> Questions<'q> {
        match &mut self.0 {
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
        matches!(self.0, Terms::Again { .. })
    }

    /// Keeps the questions for further programs, if all of them were asked and nothing was told of the answers; else forgets
    /// them.
    pub(super) fn end(self, says_nothing: bool) {
        match self.0 {
            Terms::First { known, of, reserved, papers } if says_nothing => {
                known.keep(of, Papers(papers), reserved);
            }
            Terms::Again { known, of, .. } if !says_nothing => known.forget::<Papers>(&of),
            Terms::Once | Terms::Recorded(_) | Terms::First { .. } | Terms::Again { .. } => {}
        }
    }
}
