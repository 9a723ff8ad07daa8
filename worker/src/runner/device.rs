//! A runner's tensors in the memory of a device: each with the same guards around it as in the arena, large ones in allocations of
//! their own and others in pieces of memory that the process keeps, and the calls on them, timed by the device's events and by the clock of this process.

mod rotation;

use std::ffi::c_void;

use rustix::time::{ClockId, clock_gettime};

use self::rotation::{Berth, LATE_ELEMENTS};
use super::driver::{Context, DeviceMemory, Event, PinnedMemory, Source, Stream};
use super::message::{Fault, Mix, RowSlots};
use super::plan::{GUARD_BYTES, Layout, Placed, Region};

type Outcome<T> = Result<T, Fault>;

/// What is written over before a timed call, as a multiple of the device's last cache. Twice is enough for the cache;
/// the rest keeps the device at work while the host launches the call behind it, so that its events show the time of the
/// call and not that of its launch.
const FLUSHED_CACHES: usize = 4;

/// What is written over between the calls of a row: enough to keep the device at work meanwhile.
const ROW_FILL_BYTES: usize = 32 << 20;

/// One buffer of the arena, mirrored with its guards.
#[derive(Debug)]
struct Mirror {
    memory: DeviceMemory,
    region: Region,
    /// Bytes of one element.
    width: usize,
}

impl Mirror {
    fn new(region: Region, width: usize, source: Source) -> Outcome<Self> {
        Ok(Self { memory: DeviceMemory::new(region.size + 2 * GUARD_BYTES, source)?, region, width })
    }

    fn all_of(tensors: &[Placed], source: Source) -> Outcome<Vec<Self>> {
        let width = |placed: &Placed| usize::try_from(placed.dtype.size_bytes()).unwrap_or(1);
        tensors.iter().map(|placed| Self::new(placed.region, width(placed), source)).collect()
    }

    /// Where the program finds its first element.
    fn data(&self) -> *mut c_void {
        let address = usize::try_from(self.memory.address).unwrap_or(0) + GUARD_BYTES;
        std::ptr::without_provenance_mut(address)
    }

    fn upload(&self, arena: Arena) -> Outcome<()> {
        let start = self.region.offset - GUARD_BYTES;
        self.memory.write(0, arena.at(start), self.region.size + 2 * GUARD_BYTES)
    }

    fn download(&self, arena: Arena) -> Outcome<()> {
        let start = self.region.offset - GUARD_BYTES;
        self.memory.read(0, arena.at(start), self.region.size + 2 * GUARD_BYTES)
    }

    fn upload_guards(&self, arena: Arena) -> Outcome<()> {
        let (before, behind) = (self.region.offset - GUARD_BYTES, self.region.offset + self.region.size);
        self.memory.write(0, arena.at(before), GUARD_BYTES)?;
        self.memory.write(GUARD_BYTES + self.region.size, arena.at(behind), GUARD_BYTES)
    }

    fn download_guards(&self, arena: Arena) -> Outcome<()> {
        let (before, behind) = (self.region.offset - GUARD_BYTES, self.region.offset + self.region.size);
        self.memory.read(0, arena.at(before), GUARD_BYTES)?;
        self.memory.read(GUARD_BYTES + self.region.size, arena.at(behind), GUARD_BYTES)
    }

    fn poison(&self, pattern: u32, on: &Stream) -> Outcome<()> {
        self.memory.fill(GUARD_BYTES, self.region.size, pattern, on)
    }

    /// Takes a whole buffer of the same size, with its guards.
    fn take(&self, other: &DeviceMemory, on: &Stream) -> Outcome<()> {
        self.memory.copy_from(0, other, 0, self.region.size + 2 * GUARD_BYTES, on)
    }

    /// Takes the end of one set's tensor, and behind it the beginning of another's.
    fn mix(&self, sets: Pair<'_>, mix: Mix, on: &Stream) -> Outcome<()> {
        self.mix_part(sets, mix, 0, self.region.size, on)
    }

    /// The same, of some bytes only.
    fn mix_part(&self, sets: Pair<'_>, mix: Mix, start: usize, size: usize, on: &Stream) -> Outcome<()> {
        let skipped = mix.skipped(self.region.size / self.width) * self.width;
        let border = self.region.size - skipped;
        let in_first = border.saturating_sub(start).min(size);
        let to = GUARD_BYTES + start;
        self.memory.copy_from(to, sets.0, to + skipped, in_first, on)?;
        let from = GUARD_BYTES + (start + in_first).saturating_sub(border);
        self.memory.copy_from(to + in_first, sets.1, from, size - in_first, on)
    }

    /// The piece that is put right late: first byte and size.
    fn late_piece(&self, mix: Mix, piece: usize) -> (usize, usize) {
        let elements = self.region.size / self.width;
        let size = elements.min(LATE_ELEMENTS);
        let places = u64::try_from(elements - size + 1).unwrap_or(1);
        let random = mix.shift.rotate_left(17 + u32::try_from(piece).unwrap_or(0)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        // Words are filled where it lies, and of short elements several make one.
        let place =
            usize::try_from((random >> 11) % places).unwrap_or(0).next_multiple_of(4_usize.div_ceil(self.width));
        let place = if place + size > elements { 0 } else { place };
        (place * self.width, size * self.width)
    }

    fn copy(&self, on: &Stream) -> Outcome<DeviceMemory> {
        let copy = self.memory.another()?;
        copy.copy_from(0, &self.memory, 0, copy.size, on)?;
        Ok(copy)
    }
}

/// The same tensor of two sets.
type Pair<'a> = (&'a DeviceMemory, &'a DeviceMemory);

/// The shared memory of this process and its parent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arena(pub(super) *mut u8);

impl Arena {
    fn at(self, offset: usize) -> *mut u8 {
        // The plan's regions and their guards lie inside of the arena, whose size both sides know from the plan.
        self.0.wrapping_add(offset)
    }

    /// Addresses of one shape's tensors in the arena itself, where there is no device.
    pub(super) fn addresses(self, layout: &Layout) -> Addresses {
        let all = |tensors: &[Placed]| tensors.iter().map(|placed| self.at(placed.region.offset).cast()).collect();
        Addresses {
            inputs: all(&layout.inputs),
            params: all(&layout.params),
            outputs: all(&layout.outputs),
            workspace: self.at(layout.workspace.offset).cast(),
        }
    }
}

/// The tensors of one shape.
#[derive(Debug)]
struct Tensors {
    inputs: Vec<Mirror>,
    params: Vec<Mirror>,
    outputs: Vec<Mirror>,
    workspace: Mirror,
}

impl Tensors {
    fn written(&self) -> impl Iterator<Item = &Mirror> {
        self.inputs.iter().chain(&self.outputs)
    }
}

/// Times of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct DeviceTime {
    /// Between the two events around it.
    pub(super) events_ns: u64,
    /// From the second event until the device was at rest.
    pub(super) rest_ns: u64,
}

/// Addresses of one shape's tensors, as the program is given them.
pub(super) struct Addresses {
    pub(super) inputs: Vec<*mut c_void>,
    pub(super) params: Vec<*mut c_void>,
    pub(super) outputs: Vec<*mut c_void>,
    pub(super) workspace: *mut c_void,
}

/// The device.
#[derive(Debug)]
pub(super) struct Device {
    arena: Arena,
    /// The arena as memory that the device reads and writes by itself; none where the driver cannot have it so.
    pinned: Option<PinnedMemory>,
    tensors: Option<Tensors>,
    sets: Vec<Vec<DeviceMemory>>,
    slots: Vec<Vec<DeviceMemory>>,
    /// Inputs and outputs of the calls of a sample beyond the first.
    rotation: Vec<Berth>,
    flush: DeviceMemory,
    started: Event,
    ended: Event,
    /// Where the memory of tensors comes from, and where it does unless they are large.
    source: Source,
    usual_source: Source,
    pub(super) stream: Stream,
    context: Context,
}

impl Device {
    /// Takes hold of the device. `pooled` where memory is to be kept that tensors do not need any more, for those that do.
    pub(super) fn open(arena: Arena, size_bytes: usize, pooled: bool) -> Outcome<Self> {
        let context = Context::open()?;
        let stream = Stream::new()?;
        context.start_callbacks(&stream)?;
        context.settle("starting callbacks")?;
        let flush = DeviceMemory::new(context.l2_bytes * FLUSHED_CACHES, Source::Driver)?;
        let (started, ended) = (Event::new()?, Event::new()?);
        let (sets, slots, rotation) = (Vec::new(), Vec::new(), Vec::new());
        let pinned = PinnedMemory::new(arena.0, size_bytes);
        let usual_source = if pooled { Source::pool(&stream) } else { Source::Driver };
        Ok(Self {
            arena,
            pinned,
            tensors: None,
            sets,
            slots,
            rotation,
            flush,
            started,
            ended,
            source: usual_source.of_tensors(size_bytes),
            usual_source,
            stream,
            context,
        })
    }

    /// Has nothing to do with its arena any more.
    pub(super) fn leave_arena(&mut self) {
        self.pinned = None;
    }

    /// Exchanges tensors with the parent through another arena from now on.
    pub(super) fn take_arena(&mut self, arena: Arena, size_bytes: usize) {
        self.arena = arena;
        self.pinned = PinnedMemory::new(arena.0, size_bytes);
    }

    /// Is given tensors of so many bytes from now on.
    pub(super) fn expect_tensors(&mut self, size_bytes: usize) {
        self.source = self.usual_source.of_tensors(size_bytes);
        if matches!(self.source, Source::Driver) {
            self.give_back_to(0);
        }
    }

    /// Holds memory of so many bytes for tensors that come, as far as there is as much.
    pub(super) fn hold(&self, size_bytes: usize) {
        self.source.hold(size_bytes);
    }

    /// Gives back memory that no tensor is in, but for so many bytes, with those in use.
    pub(super) fn give_back_to(&self, size_bytes: usize) {
        self.usual_source.give_back_to(size_bytes);
    }

    /// Whether memory that is freed stays with it.
    pub(super) fn keeps_memory(&self) -> bool {
        matches!(self.source, Source::Pool(..))
    }

    /// Frees everything that a shape takes.
    pub(super) fn free_tensors(&mut self) -> Outcome<()> {
        // Whatever is still at work there is not to find the tensors of others.
        self.settle()?;
        (self.tensors, self.sets, self.slots, self.rotation) = (None, Vec::new(), Vec::new(), Vec::new());
        Ok(())
    }

    /// Makes room for one shape; what belonged to another is freed.
    pub(super) fn take_shape(&mut self, layout: &Layout) -> Outcome<Addresses> {
        self.free_tensors()?;
        let source = self.source;
        let tensors = Tensors {
            inputs: Mirror::all_of(&layout.inputs, source)?,
            params: Mirror::all_of(&layout.params, source)?,
            outputs: Mirror::all_of(&layout.outputs, source)?,
            workspace: Mirror::new(layout.workspace, 1, source)?,
        };
        let addresses = |mirrors: &[Mirror]| mirrors.iter().map(Mirror::data).collect();
        let addresses = Addresses {
            inputs: addresses(&tensors.inputs),
            params: addresses(&tensors.params),
            outputs: addresses(&tensors.outputs),
            workspace: tensors.workspace.data(),
        };
        self.tensors = Some(tensors);
        Ok(addresses)
    }

    fn tensors(&self) -> Outcome<&Tensors> {
        self.tensors.as_ref().ok_or_else(|| out_of_turn("no shape was taken"))
    }

    /// Copies the weights from the arena.
    pub(super) fn upload_weights(&self) -> Outcome<()> {
        self.tensors()?.params.iter().try_for_each(|mirror| mirror.upload(self.arena))
    }

    /// Copies inputs and guards from the arena, and poisons what the program writes to.
    pub(super) fn upload(&self, poison: u32) -> Outcome<()> {
        let tensors = self.tensors()?;
        tensors.inputs.iter().try_for_each(|mirror| mirror.upload(self.arena))?;
        for mirror in tensors.params.iter().chain(&tensors.outputs).chain([&tensors.workspace]) {
            mirror.upload_guards(self.arena)?;
        }
        for mirror in tensors.outputs.iter().chain([&tensors.workspace]) {
            mirror.poison(poison, &self.stream)?;
        }
        self.settle()
    }

    /// Copies to the arena what the parent compares: the outputs, and where it looks for broken rules everything else.
    pub(super) fn download(&self, outputs_only: bool) -> Outcome<()> {
        let tensors = self.tensors()?;
        tensors.outputs.iter().try_for_each(|mirror| mirror.download(self.arena))?;
        if outputs_only {
            return Ok(());
        }
        tensors.inputs.iter().chain(&tensors.params).try_for_each(|mirror| mirror.download(self.arena))?;
        tensors.workspace.download_guards(self.arena)
    }

    /// Waits until the device is at rest.
    pub(super) fn settle(&self) -> Outcome<()> {
        self.context.settle("waiting for the device")
    }

    /// Calls something between two events. The device is at rest before and after.
    pub(super) fn time(&self, call: &mut dyn FnMut() -> i32) -> Outcome<(i32, DeviceTime)> {
        self.context.settle("waiting for the device before the call")?;
        self.time_behind(call)
    }

    /// The same, behind work that is on its way.
    fn time_behind(&self, call: &mut dyn FnMut() -> i32) -> Outcome<(i32, DeviceTime)> {
        self.started.record(&self.stream)?;
        let status = call();
        self.ended.record(&self.stream)?;
        self.ended.wait("the call")?;
        // From here on only what the program left on other streams can be at work.
        let before = clock_gettime(ClockId::MonotonicRaw);
        self.context.settle("the call")?;
        let after = clock_gettime(ClockId::MonotonicRaw);
        let rest = (after.tv_sec - before.tv_sec) * 1_000_000_000 + (after.tv_nsec - before.tv_nsec);
        let events_ns = self.started.until_ns(&self.ended)?;
        Ok((status, DeviceTime { events_ns, rest_ns: u64::try_from(rest).unwrap_or(0) }))
    }

    /// Keeps the inputs in place as a set to draw from.
    pub(super) fn stage(&mut self, set: usize) -> Outcome<()> {
        let tensors = self.tensors()?;
        tensors.inputs.iter().try_for_each(|mirror| mirror.upload(self.arena))?;
        // Copies from the host may be on their way still, and our stream does not wait for them.
        self.settle()?;
        let copies = tensors.inputs.iter().map(|mirror| mirror.copy(&self.stream)).collect::<Outcome<Vec<_>>>()?;
        self.settle()?;
        if set > self.sets.len() {
            return Err(out_of_turn("sets come in order"));
        }
        self.sets.truncate(set);
        self.sets.push(copies);
        Ok(())
    }

    /// Calls in a row, each on its own mixture, and nothing in between but putting things in place, and enough other work
    /// to keep the device busy while the host launches. Inputs and outputs of the last calls are kept.
    pub(super) fn burst(
        &mut self,
        mixes: &[Mix],
        poison: u32,
        slots: RowSlots,
        call: &mut dyn FnMut() -> i32,
    ) -> Outcome<i32> {
        self.make_slot(slots.first + slots.count.max(1) - 1)?;
        self.context.settle("waiting for the device before a row of calls")?;
        self.context.forget_persisting_lines();
        for (position, mix) in mixes.iter().enumerate() {
            self.mix_inputs(&self.tensors()?.inputs, *mix)?;
            self.tensors()?.outputs.iter().try_for_each(|mirror| mirror.poison(poison, &self.stream))?;
            self.flush.fill(0, ROW_FILL_BYTES.min(self.flush.size), poison, &self.stream)?;
            let status = call();
            if status != 0 {
                return Ok(status);
            }
            self.keep(0, slots.of(position))?;
        }
        self.context.settle("a row of calls")?;
        Ok(0)
    }

    /// The time of the program's calls as a graph that is launched so many times in a row. A program that cannot be
    /// recorded, because it waits or allocates, takes no time.
    pub(super) fn graph(&self, launches: usize, call: &mut dyn FnMut() -> i32) -> Outcome<(i32, DeviceTime)> {
        self.settle()?;
        self.stream.begin_recording()?;
        let status = call();
        let recorded = self.stream.end_recording();
        let (0, Ok(graph)) = (status, recorded) else {
            self.settle()?;
            return Ok((0, DeviceTime::default()));
        };
        graph.launch(&self.stream)?;
        let mut fault = None;
        let (_, time) = self.time(&mut || {
            fault = (0..launches).find_map(|_| graph.launch(&self.stream).err());
            0
        })?;
        fault.map_or(Ok((0, time)), Err)
    }

    /// Puts inputs and outputs of an earlier call in place, and all that the parent compares into the arena.
    pub(super) fn fetch(&self, slot: usize, outputs_only: bool) -> Outcome<()> {
        let tensors = self.tensors()?;
        let kept = self.slots.get(slot).ok_or_else(|| out_of_turn("nothing was kept there"))?;
        for (mirror, copy) in tensors.written().zip(kept) {
            mirror.take(copy, &self.stream)?;
        }
        self.settle()?;
        self.download(outputs_only)
    }

    /// Marks the range that profilers are asked to look at.
    pub(super) fn profile(&self, on: bool) {
        self.context.profile(on);
    }

    fn make_slot(&mut self, slot: usize) -> Outcome<()> {
        while self.slots.len() <= slot {
            let memory = self.tensors()?.written().map(|mirror| mirror.memory.another());
            let memory = memory.collect::<Outcome<Vec<_>>>()?;
            self.slots.push(memory);
        }
        Ok(())
    }

    /// Keeps inputs and outputs of a call.
    fn keep(&self, call: usize, slot: usize) -> Outcome<()> {
        let (inputs, outputs) = self.place(call)?;
        let kept = self.slots.get(slot).ok_or_else(|| out_of_turn("there is no such slot"))?;
        for (mirror, copy) in inputs.iter().chain(outputs).zip(kept) {
            copy.copy_from(0, &mirror.memory, 0, copy.size, &self.stream)?;
        }
        Ok(())
    }
}

fn out_of_turn(what: &str) -> Fault {
    Fault { during: "following the parent".to_owned(), error: what.to_owned() }
}
