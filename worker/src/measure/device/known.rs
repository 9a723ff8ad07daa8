//! Timed inputs whose right answers are known: first measurements of a task's programs draw from the same sets of inputs, and the
//! calls that are looked at afterwards are given draws that others were given, too. No program can tell which ones those are.

use std::path::Path;
use std::sync::Arc;

use nightshift_protocol::task::{ConcreteShapes, ConcreteTensor, TaskSpec};
use nightshift_protocol::verdict::Finding;

use crate::compare::{count_wrong, largest_error};
use crate::inputs::{SecretSeeds, TensorData};
use crate::known::{Held, KnownQuestions, Reserved, Subject};
use crate::measure::judge::{mutual, wrong_elements};
use crate::measure::witness::too_far;
use crate::runner::{Call, Draw, Enter, Grounds, Session, SessionError, note};
use crate::stock::Stock;
use nightshift_sandbox::process::run_in_parallel;

/// Weights and inputs of first measurements, with draws from them.
#[derive(Debug)]
pub(super) struct KnownSamples {
    pub(super) params: Vec<TensorData>,
    pub(super) sets: Vec<Vec<TensorData>>,
    pub(super) draws: Vec<KnownDraw>,
}

/// A draw whose right answer is known.
#[derive(Debug)]
pub(super) struct KnownDraw {
    pub(super) draw: Draw,
    truth: Vec<TensorData>,
    /// The reference's own largest normalized error.
    reference_error: f64,
}

impl KnownSamples {
    /// Asks truth and reference, whose weights are in place, about so many draws; leaves out those without a finite answer.
    pub(super) fn ask(
        (reference, truth): (&mut Session, &mut Session),
        (spec, shapes): (&TaskSpec, &ConcreteShapes),
        (params, sets): (Vec<TensorData>, Vec<Vec<TensorData>>),
        (seeds, count): (&mut SecretSeeds, usize),
        enter: Enter<'_, '_>,
    ) -> Result<Self, SessionError> {
        let mut draws = Vec::with_capacity(count);
        for _ in 0..count {
            let draw = Draw::new(sets.len(), seeds.draw());
            let inputs = draw.inputs(&sets);
            let (truth, reference) =
                run_in_parallel(|| truth.run_known(&inputs, enter), || reference.run_known(&inputs, enter));
            let (truth, reference) = (truth?.outputs, reference?.outputs);
            if truth.iter().chain(&reference).all(TensorData::is_finite) {
                let reference_error = largest_error(&reference, &truth, &shapes.outputs, &spec.tolerance);
                draws.push(KnownDraw { draw, truth, reference_error });
            }
        }
        Ok(Self { params, sets, draws })
    }

    /// Bytes that these take.
    fn bytes(shapes: &ConcreteShapes, stock: Stock) -> u64 {
        let times = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        let inputs = shapes.inputs.iter().map(ConcreteTensor::size_bytes).sum::<u64>();
        let params = shapes.params.iter().map(ConcreteTensor::size_bytes).sum::<u64>();
        let widened = shapes.outputs.iter().map(|output| output.elements().saturating_mul(8)).sum::<u64>();
        inputs * times(stock.sets) + params + widened.saturating_mul(times(stock.looks()))
    }
}

/// Where known samples are kept. They are forgotten with it, unless nothing was told of them.
pub(super) struct Shelf<'a> {
    known: &'a KnownQuestions,
    of: Subject,
    told: bool,
}

impl Drop for Shelf<'_> {
    fn drop(&mut self) {
        if self.told {
            self.known.forget::<KnownSamples>(&self.of);
        }
    }
}

/// What is on it.
pub(super) enum Shelved {
    Known(Arc<Held<KnownSamples>>),
    /// Nothing yet, but memory for it.
    Room(Reserved),
}

impl<'a> Shelf<'a> {
    /// Of the programs of a task, where there is one, with what is on it; none where nothing can be on it.
    pub(super) fn of(
        grounds: &Grounds<'a>,
        spec: &TaskSpec,
        (all_shapes, shapes): (&[ConcreteShapes], &ConcreteShapes),
        (reference, truth): (&Path, &Path),
        stock: Stock,
    ) -> Option<(Self, Shelved)> {
        let known = grounds.known()?;
        let of = Subject::of(spec, all_shapes, reference, truth)?;
        let found = match known.take(&of) {
            Some(samples) => Shelved::Known(samples),
            None => Shelved::Room(grounds.reserve_known(all_shapes, KnownSamples::bytes(shapes, stock))?),
        };
        // A program that ends badly may say anything.
        Some((Self { known, of, told: true }, found))
    }

    pub(super) fn keep(&self, samples: KnownSamples, reserved: Reserved) -> Arc<Held<KnownSamples>> {
        self.known.keep(self.of.clone(), samples, reserved)
    }
}

/// Looks at calls on known draws.
pub(super) struct KnownJudge<'a> {
    shelf: Shelf<'a>,
    spec: &'a TaskSpec,
    shapes: &'a ConcreteShapes,
    pub(super) samples: Arc<Held<KnownSamples>>,
    /// Draws that this program was not given yet, by their numbers: each is given once, so that it tells nothing of others.
    unused: Vec<usize>,
    /// Whether what was found says something of an answer.
    told: bool,
    pub(super) findings: Vec<Finding>,
}

impl<'a> KnownJudge<'a> {
    pub(super) fn new(
        shelf: Shelf<'a>,
        (spec, shapes): (&'a TaskSpec, &'a ConcreteShapes),
        samples: Arc<Held<KnownSamples>>,
    ) -> Self {
        let unused = (0..samples.draws.len()).collect();
        Self { shelf, spec, shapes, samples, unused, told: false, findings: Vec::new() }
    }

    /// Another draw for a sample; the last one is left for a row.
    pub(super) fn draw_for_sample(&mut self) -> Option<(usize, Draw)> {
        if self.unused.len() < 2 { None } else { self.draw_for_row() }
    }

    pub(super) fn draw_for_row(&mut self) -> Option<(usize, Draw)> {
        let number = self.unused.pop()?;
        self.samples.draws.get(number).map(|known| (number, known.draw))
    }

    /// Looks at a call on the draw of that number.
    pub(super) fn look(&mut self, number: usize, call: &Call) {
        self.note_breaches(call);
        let Some(known) = self.samples.draws.get(number) else { return };
        let far = too_far(&call.outputs, &known.truth, known.reference_error, self.shapes, &self.spec.tolerance);
        self.told |= far.is_some();
        let Some(finding) = far else { return };
        let wrong = count_wrong(&call.outputs, &known.truth, &mutual(self.spec.tolerance));
        if wrong > 0 {
            note(&mut self.findings, wrong_elements(wrong));
        }
        note(&mut self.findings, finding);
    }

    /// Looks at a call on inputs whose answer is not known, beside the baseline's.
    pub(super) fn look_beside(&mut self, call: &Call, baseline: &Call) {
        self.note_breaches(call);
        let wrong = count_wrong(&call.outputs, &baseline.outputs, &mutual(self.spec.tolerance));
        if wrong > 0 {
            self.told = true;
            note(&mut self.findings, wrong_elements(wrong));
        }
    }

    /// Notes the rules that a call broke.
    pub(super) fn note_breaches(&mut self, call: &Call) {
        self.told |= !call.breaches.is_empty();
        for breach in &call.breaches {
            note(&mut self.findings, breach.finding());
        }
    }

    /// What it found. Where that says something of an answer, others are asked something else.
    pub(super) fn into_findings(mut self) -> Vec<Finding> {
        self.shelf.told = self.told;
        self.findings
    }
}
