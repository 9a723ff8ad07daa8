//! Timed samples: one call or several in a row, each on inputs and outputs of its own, behind caches that hold nobody's
//! data. The times of a few microseconds would drown in what it costs to begin and to end a sample; many calls in one
//! share that, and none of them finds the data of another one.

use super::{Addresses, Device, DeviceTime, Mirror, Mix, Outcome, Pair, out_of_turn};
use crate::runner::device::GUARD_BYTES;
use crate::runner::plan::Layout;

/// Most pieces of the inputs of a lone call that are put right just before it, and the elements of each. A program that
/// does not wait for its stream finds something else there. Of several calls each gets one.
const LATE_PIECES: usize = 4;
pub(super) const LATE_ELEMENTS: usize = 64;

/// Calls of a sample for each writing over of the caches: it is also what the device does while the host launches them.
const CALLS_PER_FLUSH: usize = 4;

/// Inputs and outputs of one more call of a sample.
#[derive(Debug)]
pub(super) struct Berth {
    inputs: Vec<Mirror>,
    outputs: Vec<Mirror>,
}

impl Device {
    /// Makes room for samples of so many calls: what the first one works on is there, each further one gets memory of its
    /// own. Gives the addresses of the further ones.
    pub(in crate::runner) fn rotate(&mut self, layout: &Layout, calls: usize) -> Outcome<Vec<Addresses>> {
        self.rotation = Vec::new();
        let tensors = self.tensors()?;
        let mut rotation = Vec::new();
        for _ in 1..calls {
            let (inputs, outputs) = (&layout.inputs, &layout.outputs);
            let berth =
                Berth { inputs: Mirror::all_of(inputs, self.source)?, outputs: Mirror::all_of(outputs, self.source)? };
            // With the guards around them.
            for (mirror, first) in berth.inputs.iter().chain(&berth.outputs).zip(tensors.written()) {
                mirror.take(&first.memory, &self.stream)?;
            }
            rotation.push(berth);
        }
        self.settle()?;
        let data = |mirrors: &[Mirror]| mirrors.iter().map(Mirror::data).collect();
        let addresses = |berth: &Berth| Addresses {
            inputs: data(&berth.inputs),
            params: data(&tensors.params),
            outputs: data(&berth.outputs),
            workspace: tensors.workspace.data(),
        };
        let addresses = rotation.iter().map(addresses).collect();
        self.rotation = rotation;
        Ok(addresses)
    }

    /// Timed calls in a row, each on a mixture of sets of its own, with cold caches. The call is told its number.
    pub(in crate::runner) fn sample(
        &mut self,
        mixes: &[Mix],
        poison: u32,
        call: &mut dyn FnMut(usize) -> i32,
    ) -> Outcome<(i32, DeviceTime)> {
        if mixes.is_empty() || mixes.len() > self.rotation.len() + 1 {
            return Err(out_of_turn("there is no room for a sample of so many calls"));
        }
        self.context.settle("waiting for the device before the call")?;
        self.context.forget_persisting_lines();
        self.put_in_place(mixes, poison)?;
        self.time_behind(&mut || (0..mixes.len()).map(&mut *call).find(|status| *status != 0).unwrap_or(0))
    }

    /// Keeps inputs and outputs of one call of the last sample in a slot.
    pub(in crate::runner) fn keep_call(&mut self, call: usize, slot: usize) -> Outcome<()> {
        self.make_slot(slot)?;
        self.keep(call, slot)?;
        self.settle()
    }

    /// Inputs and outputs of a call of a sample.
    pub(super) fn place(&self, call: usize) -> Outcome<(&[Mirror], &[Mirror])> {
        let Some(further) = call.checked_sub(1) else {
            let tensors = self.tensors()?;
            return Ok((&tensors.inputs, &tensors.outputs));
        };
        let berth = self.rotation.get(further).ok_or_else(|| out_of_turn("there is no such call"))?;
        Ok((&berth.inputs, &berth.outputs))
    }

    fn put_in_place(&self, mixes: &[Mix], poison: u32) -> Outcome<()> {
        let mut late: Vec<Late<'_>> = Vec::new();
        for (call, mix) in mixes.iter().enumerate() {
            let (inputs, outputs) = self.place(call)?;
            let pairs = self.mix_inputs(inputs, *mix)?;
            outputs.iter().try_for_each(|mirror| mirror.poison(poison, &self.stream))?;
            let pieces = if pairs.is_empty() { 0 } else { (LATE_PIECES / mixes.len()).max(1) };
            for piece in 0..pieces {
                // Not always the first tensor.
                if let Some((mirror, pair)) = pairs.get((call + piece) % pairs.len()) {
                    let (start, size) = mirror.late_piece(*mix, piece);
                    late.push(Late { mirror, pair: *pair, mix: *mix, start, size });
                }
            }
        }
        for Late { mirror, start, size, .. } in &late {
            mirror.memory.fill(GUARD_BYTES + start, *size, poison, &self.stream)?;
        }
        for _ in 0..=(mixes.len() - 1) / CALLS_PER_FLUSH {
            self.flush.fill(0, self.flush.size, poison, &self.stream)?;
        }
        for Late { mirror, pair, mix, start, size } in late {
            mirror.mix_part(pair, mix, start, size, &self.stream)?;
        }
        Ok(())
    }

    /// Lets inputs be a mixture of two sets.
    pub(super) fn mix_inputs<'a>(&'a self, inputs: &'a [Mirror], mix: Mix) -> Outcome<Vec<(&'a Mirror, Pair<'a>)>> {
        let set = |number: usize| self.sets.get(number).ok_or_else(|| out_of_turn("there is no such set"));
        let pairs = set(mix.first)?.iter().zip(set(mix.second)?);
        let inputs: Vec<(&Mirror, Pair<'_>)> = inputs.iter().zip(pairs).collect();
        for (mirror, pair) in &inputs {
            mirror.mix(*pair, mix, &self.stream)?;
        }
        Ok(inputs)
    }
}

/// A piece of an input that is put right last.
struct Late<'a> {
    mirror: &'a Mirror,
    pair: Pair<'a>,
    mix: Mix,
    start: usize,
    size: usize,
}
