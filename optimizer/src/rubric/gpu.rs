//! Engineering on a GPU, as the machine code of a program's own kernels shows it.

use nightshift_protocol::attempt::Attempt;
use nightshift_protocol::cuda_build::{KernelBuild, SassCounts};
use nightshift_protocol::task::TaskSpec;
use nightshift_protocol::verdict::Answer;

use super::Scored;

/// Share of the kernels' time from which a kernel matters.
const MATTERS_FROM: f64 = 0.1;
/// Share of the kernels' time below which a program leaves its work to a library.
pub(super) const OWN_SHARE: f64 = 0.2;

/// The kernels of an attempt that matter, by the timeline where there is one.
pub(super) struct Kernels<'a> {
    all: Vec<&'a KernelBuild>,
}

impl<'a> Kernels<'a> {
    /// None when the program was not built for a GPU.
    pub(super) fn of(attempt: &'a Attempt) -> Option<Self> {
        let built = attempt.build.as_ref()?.cuda.as_ref()?;
        let timeline = attempt.profile.as_ref().and_then(|profile| profile.timeline.as_ref());
        let is_timed = |kernel: &&KernelBuild| {
            timeline.into_iter().flat_map(|timeline| &timeline.kernels).any(|timed| {
                let is_it = timed.mangled.as_ref().map_or(timed.name == kernel.name, |name| *name == kernel.symbol);
                is_it && timed.share >= MATTERS_FROM
            })
        };
        let timed: Vec<&KernelBuild> = built.kernels.iter().filter(is_timed).collect();
        Some(Self { all: if timed.is_empty() { built.kernels.iter().collect() } else { timed } })
    }

    /// Returns the sum of a count of instructions over all kernels; none when no kernel has counts.
    fn counted(&self, kind: fn(&SassCounts) -> u64) -> Option<u64> {
        let counts = self.all.iter().filter_map(|kernel| kernel.sass.as_ref());
        counts.map(kind).reduce(u64::saturating_add)
    }

    fn spills(&self) -> bool {
        self.all.iter().any(|kernel| kernel.spills())
    }

    fn shared_bytes(&self) -> u64 {
        self.all.iter().map(|kernel| kernel.shared_bytes).fold(0, u64::saturating_add)
    }
}

/// Starts at 3, plausible but naive. Accesses of 16 bytes, asynchronous copies or tensor cores add one, closeness to the
/// limit adds one; registers that spill take one, work that is left to a library takes one, being slower than the naive
/// reference takes one.
pub(super) fn quality(attempt: &Attempt, kernels: &Kernels<'_>, near_limit: Option<String>) -> Scored {
    let mut score = 3_u8;
    let mut evidence = Vec::new();
    match means(kernels) {
        Some(means) if !means.is_empty() => {
            score += 1;
            evidence.push(format!("its kernels use {}", means.join(", ")));
        }
        Some(_) => {
            evidence.push("its kernels use no wide accesses, no asynchronous copies, no tensor cores".to_owned());
        }
        None => evidence.push("what its kernels consist of is not known".to_owned()),
    }
    if let Some(limit) = near_limit {
        score += 1;
        evidence.push(limit);
    }
    if kernels.spills() {
        score -= 1;
        evidence.push("registers spill to memory".to_owned());
    }
    if let Some(share) = attempt.verdict.custom_kernel_time_share.filter(|share| *share < OWN_SHARE) {
        score -= 1;
        evidence.push(format!("its own kernels take only {:.0} % of the time", share * 100.0));
    }
    if attempt.verdict.fast == Answer::Fail {
        score -= 1;
        evidence.push("it is slower than the reference".to_owned());
    }
    let score = score.max(1);
    (score, format!("cuda_engineering {score}: {}", evidence.join("; ")))
}

/// Checks whether kernels other than the program's own took the device's time, where the task allows no library that
/// could bring them. Returns the score that this leaves and the evidence; none without a timeline.
pub(super) fn work_of_others(spec: &TaskSpec, attempt: &Attempt) -> Option<(u8, String)> {
    if !spec.libraries.is_empty() {
        return None;
    }
    let share = attempt.verdict.custom_kernel_time_share?;
    let has_own = !attempt.build.as_ref()?.cuda.as_ref()?.kernels.is_empty();
    let percent = share * 100.0;
    if share <= 0.0 && has_own {
        Some((2, "none of its own kernels took any time: they are there for show".to_owned()))
    } else if share < OWN_SHARE {
        Some((3, format!("its own kernels took only {percent:.0} % of the time, and the task allows no library")))
    } else {
        None
    }
}

/// Lists the techniques of an engineer that the kernels use; none when their instructions were not counted.
fn means(kernels: &Kernels<'_>) -> Option<Vec<&'static str>> {
    let means = [
        ("tensor cores", kernels.counted(|sass| sass.tensor_core)?),
        ("accesses of 16 bytes", kernels.counted(wide)?),
        ("asynchronous copies", kernels.counted(asynchronous)?),
    ];
    Some(means.into_iter().filter(|(_, count)| *count > 0).map(|(name, _)| name).collect())
}

fn wide(sass: &SassCounts) -> u64 {
    sass.loads_128.saturating_add(sass.stores_128)
}

fn asynchronous(sass: &SassCounts) -> u64 {
    sass.async_copies.saturating_add(sass.bulk_copies)
}

fn shared(sass: &SassCounts) -> u64 {
    sass.shared_loads.saturating_add(sass.shared_stores)
}

/// What a request may ask for that machine code shows: the words that ask for it, what it is, how it is counted. Short
/// words have a blank before them: `softmax` asks for no `tma`, and `gamma` for no `mma`.
type Claim = (&'static [&'static str], &'static str, fn(&SassCounts) -> u64);
const CLAIMS: [Claim; 5] = [
    (
        &["tensor core", "tensor-core", "wmma", "wgmma", "mma.sync", "mma_sync", " mma", "tf32"],
        "tensor cores",
        |sass| sass.tensor_core,
    ),
    (
        &["float4", "16 byte", "16-byte", "128-bit", "128 bit", "vectoriz", "vector load", "wide load"],
        "accesses of 16 bytes",
        wide,
    ),
    (
        &["cp.async", "asynchronous cop", "async cop", "memcpy_async", "bulk cop", " tma", "pipeline"],
        "asynchronous copies",
        asynchronous,
    ),
    (&["shared memory", "shared-memory", " smem", "__shared__"], "shared memory", shared),
    (&["shuffle", "__shfl", "warp reduc", "warp-level reduc", "warp-wide"], "exchanges within a warp", |sass| {
        sass.warp_exchanges
    }),
];

/// Which of the things that a request asks for the build shows.
pub(super) fn claims(kernels: &Kernels<'_>, request: &str) -> Vec<(&'static str, bool)> {
    let request = format!(" {request}");
    let asks = |words: &[&str]| words.iter().any(|word| request.contains(word));
    let mut claims = Vec::new();
    for (words, what, kind) in CLAIMS {
        if let Some(count) = kernels.counted(kind)
            && asks(words)
        {
            let is_static_memory = what == "shared memory" && kernels.shared_bytes() > 0;
            claims.push((what, count > 0 || is_static_memory));
        }
    }
    if asks(&["spill"]) {
        claims.push(("no spills", !kernels.spills()));
    }
    claims
}
