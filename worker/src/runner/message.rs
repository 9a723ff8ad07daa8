//! What parent and runner say to each other.

use serde::{Deserialize, Serialize};

use super::plan::RunnerPlan;

/// From the parent. Each request carries a number that its answer has to repeat.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Request {
    /// Say that it is there: a Python that loads for seconds answers when it has done so.
    Hello {
        /// Number of the request.
        nonce: u64,
    },
    /// Take hold of the device.
    Open {
        /// Number of the request.
        nonce: u64,
    },
    /// On a device, of a process that was started before anybody knew for what: this is what it is for. The message
    /// carries an arena, where the one that it has is too small.
    Take {
        /// Number of the request.
        nonce: u64,
        /// Library and shapes.
        plan: Box<RunnerPlan>,
    },
    /// Load the library.
    Load {
        /// Number of the request.
        nonce: u64,
    },
    /// Take the shape of this number for what follows; what was prepared for another one is freed.
    Shape {
        /// Number of the request.
        nonce: u64,
        /// Which.
        layout: usize,
    },
    /// On a device: take the first shape, and keep no more of the device's memory than a call's tensors take and so many bytes.
    Rest {
        /// Number of the request.
        nonce: u64,
        /// How many.
        keep_bytes: u64,
    },
    /// On a device, of a library's process: hold so many bytes of its memory, beside what it has in use, for what comes.
    Hold {
        /// Number of the request.
        nonce: u64,
        /// How many.
        bytes: u64,
    },
    /// Prepare the weights, after freeing what was prepared before.
    Init {
        /// Number of the request.
        nonce: u64,
    },
    /// Call the program once.
    Run {
        /// Number of the request.
        nonce: u64,
        /// On a device: what its outputs and its scratch memory are filled with before.
        poison: u32,
        /// On a device: whether the weights have to be copied anew.
        weights: bool,
        /// On a device: whether the outputs alone are brought back, and nothing to look for broken rules in.
        outputs_only: bool,
    },
    /// On a device: keep the inputs in place as a set to draw from.
    Stage {
        /// Number of the request.
        nonce: u64,
        /// Number of the set.
        set: usize,
    },
    /// On a device: make room for samples of several calls, each on inputs and outputs of its own.
    Rotate {
        /// Number of the request.
        nonce: u64,
        /// How many calls.
        calls: usize,
    },
    /// On a device: call the program in a row, once on each mixture of sets, timed as a whole, with cold caches.
    Sample {
        /// Number of the request.
        nonce: u64,
        /// What outputs are filled with before.
        poison: u32,
        /// The inputs of each call.
        mixes: Vec<Mix>,
    },
    /// On a device: keep inputs and outputs of one call of the last sample.
    Keep {
        /// Number of the request.
        nonce: u64,
        /// Which call, from 0.
        call: usize,
        /// Where.
        slot: usize,
    },
    /// On a device: as many samples as there are mixtures, in one go, timed by nobody but the parent.
    Burst {
        /// Number of the request.
        nonce: u64,
        /// What outputs are filled with before each call.
        poison: u32,
        /// The inputs of each call.
        mixes: Vec<Mix>,
        /// Where inputs and outputs of the last calls are kept.
        slots: RowSlots,
        /// Whether the program is left out.
        empty: bool,
    },
    /// On a device: the program's calls as one recorded graph, launched so many times, timed.
    Graph {
        /// Number of the request.
        nonce: u64,
        /// How many times.
        launches: usize,
    },
    /// On a device: put inputs and outputs of an earlier call in place.
    Fetch {
        /// Number of the request.
        nonce: u64,
        /// Which.
        slot: usize,
        /// Whether the outputs alone are brought back.
        outputs_only: bool,
    },
}

impl Request {
    /// Whether inputs and weights in the arena stay as the parent wrote them while it is followed: nothing is copied there from a
    /// device, and no other tensors have their place there after it.
    pub(crate) fn leaves_what_is_given(&self) -> bool {
        match self {
            Self::Run { outputs_only, .. } | Self::Fetch { outputs_only, .. } => *outputs_only,
            Self::Init { .. }
            | Self::Stage { .. }
            | Self::Rotate { .. }
            | Self::Sample { .. }
            | Self::Keep { .. }
            | Self::Burst { .. }
            | Self::Graph { .. }
            | Self::Hold { .. } => true,
            Self::Hello { .. }
            | Self::Open { .. }
            | Self::Take { .. }
            | Self::Load { .. }
            | Self::Shape { .. }
            | Self::Rest { .. } => false,
        }
    }

    /// What is asked, in a word.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Hello { .. } => "hello",
            Self::Open { .. } => "open",
            Self::Take { .. } => "take",
            Self::Load { .. } => "load",
            Self::Shape { .. } => "shape",
            Self::Rest { .. } => "rest",
            Self::Hold { .. } => "hold",
            Self::Init { .. } => "init",
            Self::Run { .. } => "run",
            Self::Stage { .. } => "stage",
            Self::Rotate { .. } => "rotate",
            Self::Sample { .. } => "sample",
            Self::Keep { .. } => "keep",
            Self::Burst { .. } => "burst",
            Self::Graph { .. } => "graph",
            Self::Fetch { .. } => "fetch",
        }
    }

    /// Number of the request.
    pub(crate) fn nonce(&self) -> u64 {
        match self {
            Self::Hello { nonce }
            | Self::Open { nonce }
            | Self::Take { nonce, .. }
            | Self::Load { nonce }
            | Self::Shape { nonce, .. }
            | Self::Rest { nonce, .. }
            | Self::Hold { nonce, .. }
            | Self::Init { nonce }
            | Self::Run { nonce, .. }
            | Self::Stage { nonce, .. }
            | Self::Rotate { nonce, .. }
            | Self::Sample { nonce, .. }
            | Self::Keep { nonce, .. }
            | Self::Burst { nonce, .. }
            | Self::Graph { nonce, .. }
            | Self::Fetch { nonce, .. } => *nonce,
        }
    }
}

/// Where inputs and outputs of the last calls of a row are kept, one after the other and around.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RowSlots {
    /// The first slot.
    pub(crate) first: usize,
    /// How many there are; at least one.
    pub(crate) count: usize,
}

impl RowSlots {
    /// The slot of the call of this number.
    pub(crate) fn of(self, position: usize) -> usize {
        self.first + position % self.count.max(1)
    }
}

/// Inputs of one call, made of two sets: each tensor is the end of one, from a place on, followed by the beginning of
/// the other. Values are drawn independently of each other, so that this is as good a draw as any.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mix {
    /// The set that the tensors begin with.
    pub(crate) first: usize,
    /// The set that they end with.
    pub(crate) second: usize,
    /// Decides the place.
    pub(crate) shift: u64,
}

impl Mix {
    /// Elements of the first set that are left out of a tensor of so many, to be taken from the second.
    pub(crate) fn skipped(self, elements: usize) -> usize {
        let elements = u64::try_from(elements).unwrap_or(u64::MAX);
        if elements == 0 { 0 } else { usize::try_from(self.shift % elements).unwrap_or(0) }
    }
}

/// From the runner, one for each request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Reply {
    /// Number of the request.
    pub(crate) nonce: u64,
    /// What the entry point returned; 0 for success.
    pub(crate) status: i32,
    /// Time of the call in nanoseconds, as the runner's clock saw it; on a device, by the device's events.
    pub(crate) elapsed_ns: u64,
    /// On a device: from the end of the call on its stream until nothing ran on the device any more, in nanoseconds.
    pub(crate) rest_ns: Option<u64>,
    /// On the host, of a model of `PyTorch`: what it took to bring its results into the arena, which is none of the call.
    pub(crate) delivered_ns: u64,
    /// Why the library could not be loaded.
    pub(crate) load_error: Option<String>,
    /// Memory of the device that it keeps beside what a call's tensors take, in bytes.
    pub(crate) kept_bytes: u64,
    /// What went wrong on the device.
    pub(crate) fault: Option<Fault>,
}

impl Reply {
    /// On a device: from the first event around the call until nothing ran any more, in nanoseconds.
    pub(crate) fn at_rest_ns(&self) -> Option<u64> {
        self.rest_ns.map(|rest_ns| self.elapsed_ns.saturating_add(rest_ns))
    }
}

/// An error of the device's driver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Fault {
    /// What was asked of the driver.
    pub(crate) during: String,
    /// The driver's name of the error.
    pub(crate) error: String,
}
