//! Timed calls on a device: inputs stay there, every call gets a draw of its own from them, and what came out is kept
//! there until the parent asks for it.

use super::gate::Stay;
use super::message::{Mix, Request, RowSlots};
use super::plan::Placed;
use super::session::{Call, CallTime, Enter, Session, SessionError};
use crate::inputs::TensorData;

/// Added to the time limit of a call for what is done around it.
const AROUND_CALL_MS: u64 = 2_000;

/// Inputs of one timed call: which sets they are mixed of, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Draw(Mix);

impl Draw {
    /// A draw from two of so many sets, decided by a random number.
    #[must_use]
    pub fn new(sets: usize, random: u64) -> Self {
        let sets_wide = u64::try_from(sets.max(1)).unwrap_or(1);
        let pick = |number: u64| usize::try_from(number % sets_wide).unwrap_or(0);
        let (first, rest) = (pick(random), random / sets_wide);
        // Another one than the first, where there is another one.
        let second = if sets > 1 { (first + 1 + pick(rest) % (sets - 1)) % sets } else { first };
        Self(Mix { first, second, shift: rest / sets_wide })
    }

    /// The inputs themselves.
    #[must_use]
    pub fn inputs(self, sets: &[Vec<TensorData>]) -> Vec<TensorData> {
        let (Some(first), Some(second)) = (sets.get(self.0.first), sets.get(self.0.second)) else { return Vec::new() };
        first.iter().zip(second).map(|(first, second)| first.spliced(second, self.0.skipped(first.len()))).collect()
    }
}

/// Times of one timed call on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Burst {
    /// From the request to the answer, by the parent's clock, in nanoseconds.
    pub outside_ns: u64,
    /// Calls in it.
    pub calls: usize,
}

impl Session {
    /// Keeps inputs on the device to draw from. Sets are numbered from 0, in order.
    pub fn stage(&mut self, set: usize, inputs: &[TensorData]) -> Result<(), SessionError> {
        self.stage_within(set, inputs, &|_| None)
    }

    /// The same, with a place on the device for what happens there.
    pub(crate) fn stage_within(
        &mut self,
        set: usize,
        inputs: &[TensorData],
        enter: Enter<'_, '_>,
    ) -> Result<(), SessionError> {
        let layout = self.layout().clone();
        for (placed, data) in layout.inputs.iter().zip(inputs) {
            self.arena.write(placed, data);
        }
        let nonce = self.nonces.draw();
        let _place = enter(Stay::Short);
        self.ask(&Request::Stage { nonce, set }, self.call_timeout_ms + AROUND_CALL_MS)?;
        Ok(())
    }

    /// Makes room for samples of so many calls, each on inputs and outputs of its own.
    pub fn rotate(&mut self, calls: usize) -> Result<(), SessionError> {
        let nonce = self.nonces.draw();
        self.ask(&Request::Rotate { nonce, calls }, self.call_timeout_ms + AROUND_CALL_MS)?;
        Ok(())
    }

    /// Calls in a row with cold caches, each on a draw of its own, timed as a whole. Gives the times of one of them.
    pub fn sample(&mut self, draws: &[Draw]) -> Result<CallTime, SessionError> {
        let nonce = self.nonces.draw();
        let mixes = draws.iter().map(|draw| draw.0).collect();
        let request = Request::Sample { nonce, poison: self.poison_word(), mixes };
        let calls = u64::try_from(draws.len().max(1)).unwrap_or(1);
        let limit_ms = self.call_timeout_ms.saturating_mul(calls) + AROUND_CALL_MS;
        let (reply, outside) = self.ask(&request, limit_ms)?;
        self.succeeded("ns_run", &reply)?;
        let outside_ns = u64::try_from(outside.as_nanos()).unwrap_or(u64::MAX);
        Ok(CallTime {
            inside_ns: by_call(reply.elapsed_ns, calls),
            outside_ns: by_call(outside_ns, calls),
            processor_ns: reply.at_rest_ns().map(|time_ns| by_call(time_ns, calls)),
        })
    }

    /// Keeps what one call of the last sample, counted from 0, was given and left behind in a slot, whose earlier content is
    /// lost.
    pub fn keep(&mut self, call: usize, slot: usize) -> Result<(), SessionError> {
        let nonce = self.nonces.draw();
        self.ask(&Request::Keep { nonce, call, slot }, self.call_timeout_ms + AROUND_CALL_MS)?;
        Ok(())
    }

    /// Calls in a row, each on a draw of its own, with cold caches, timed from outside only.
    pub(crate) fn burst(&mut self, draws: &[Draw], slots: RowSlots, empty: bool) -> Result<Burst, SessionError> {
        let nonce = self.nonces.draw();
        let mixes = draws.iter().map(|draw| draw.0).collect();
        let request = Request::Burst { nonce, poison: self.poison_word(), mixes, slots, empty };
        let calls = u64::try_from(draws.len()).unwrap_or(u64::MAX);
        let (reply, outside) = self.ask(&request, self.call_timeout_ms.saturating_mul(calls) + AROUND_CALL_MS)?;
        self.succeeded("ns_run", &reply)?;
        Ok(Burst { outside_ns: u64::try_from(outside.as_nanos()).unwrap_or(u64::MAX), calls: draws.len() })
    }

    /// The time of so many launches in a row of the program's calls as one graph, in nanoseconds for one; none when it
    /// cannot be recorded.
    pub fn graph(&mut self, launches: usize) -> Result<Option<f64>, SessionError> {
        let nonce = self.nonces.draw();
        let count = u64::try_from(launches.max(1)).unwrap_or(1);
        let limit_ms = self.call_timeout_ms.saturating_mul(count) + AROUND_CALL_MS;
        let (reply, _) = self.ask(&Request::Graph { nonce, launches }, limit_ms)?;
        self.succeeded("ns_run", &reply)?;
        #[expect(clippy::cast_precision_loss, reason = "times of calls are far below 2^53 nanoseconds")]
        Ok((reply.elapsed_ns > 0).then(|| reply.elapsed_ns as f64 / count as f64))
    }

    /// Takes out what a timed call left behind, and looks for broken rules. `enter` takes a place on the device.
    pub(crate) fn fetch(
        &mut self,
        slot: usize,
        inputs: Vec<TensorData>,
        time: CallTime,
        enter: Enter<'_, '_>,
    ) -> Result<Call, SessionError> {
        self.inputs = inputs;
        self.bring_back(slot, false, enter)?;
        Ok(self.collect(time))
    }

    /// [`Self::fetch`] of a program that is known to keep the rules.
    pub(crate) fn fetch_known(
        &mut self,
        slot: usize,
        time: CallTime,
        enter: Enter<'_, '_>,
    ) -> Result<Call, SessionError> {
        self.bring_back(slot, true, enter)?;
        Ok(Call { time, outputs: self.outputs(), breaches: Vec::new() })
    }

    fn bring_back(&mut self, slot: usize, outputs_only: bool, enter: Enter<'_, '_>) -> Result<(), SessionError> {
        let nonce = self.nonces.draw();
        let _place = enter(Stay::Short);
        self.ask(&Request::Fetch { nonce, slot, outputs_only }, self.call_timeout_ms + AROUND_CALL_MS)?;
        Ok(())
    }

    /// Bytes that a kept call takes on the device.
    #[must_use]
    pub fn slot_bytes(&self) -> u64 {
        let size = |placed: &Placed| u64::try_from(placed.region.size).unwrap_or(u64::MAX);
        self.layout().inputs.iter().chain(&self.layout().outputs).map(size).sum()
    }
}

/// The part of one of so many calls, to the nearest nanosecond.
fn by_call(time_ns: u64, calls: u64) -> u64 {
    time_ns.saturating_add(calls / 2) / calls.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_sample_is_shared_by_its_calls() {
        assert_eq!((by_call(100, 1), by_call(100, 3), by_call(101, 2), by_call(u64::MAX, 0)), (100, 33, 51, u64::MAX));
    }

    #[test]
    fn a_draw_takes_the_end_of_one_set_and_the_beginning_of_another() {
        let sets: Vec<Vec<TensorData>> = (0..3_i16)
            .map(|set| vec![TensorData::from((0..5).map(|i| i32::from(set) * 10 + i).collect::<Vec<_>>())])
            .collect();
        let draw = Draw(Mix { first: 2, second: 0, shift: 7 });
        assert_eq!(draw.inputs(&sets), [TensorData::from(vec![22, 23, 24, 0, 1])]);
    }

    #[test]
    fn draws_use_two_different_sets() {
        for random in (0..1000).map(|i: u64| i.wrapping_mul(0x9E37_79B9_7F4A_7C15)) {
            let Draw(mix) = Draw::new(3, random);
            assert!(mix.first < 3 && mix.second < 3 && mix.first != mix.second, "{mix:?}");
        }
        assert_eq!(Draw::new(1, 99).0.first, 0);
    }
}
