//! How many calls make one sample, and what is left of the difference between processes then.
//!
//! Beginning and ending a sample costs a share of a microsecond that no call has to answer for: a sample of many calls has
//! it once. Where a process's code and data happen to lie costs each call another one, the same in all samples of that
//! process, which the reported interval has to allow for.

use nightshift_protocol::task::MAX_ROTATED_BYTES;

/// Time of the device that a sample is to show, in nanoseconds: long beside the events' resolution and what it costs to
/// begin and to end it.
const LONG_SAMPLE_NS: f64 = 150_000.0;

/// Most calls of a sample: each costs room on the device, and time to put its inputs in place.
const MAX_CALLS: usize = 48;

/// Time that one sample of both programs may take on the device, in nanoseconds: a slow baseline would take the time that
/// the number of samples needs.
const LONGEST_PAIR_NS: f64 = 2e6;

/// What differs from process to process and not from call to call: where memory and code of a process happen to lie. No
/// number of samples of one pair of processes shows it, and no number of calls in a sample makes it smaller: on an H200 a
/// program of 11 microseconds takes 10.92 in one process and 11.06 in the next, with thirteen calls in a sample. Pairs of
/// one and the same program differed by about this share, and by about so many nanoseconds for each call. The interval that
/// is reported is wider by both on both sides.
const BETWEEN_PROCESSES: f64 = 0.001;
const BETWEEN_PROCESSES_NS: f64 = 150.0;

/// The same share where one of the two is a Python, which launches every kernel by itself: models that were compared with
/// themselves on an H200, in two processes, were 0.96 to 1.01 times as fast, with calls of a millisecond.
const BETWEEN_PYTHONS: f64 = 0.03;

/// The same share where their calls scatter besides: such a model is as fast as its kernels are launched, and what else is at
/// work on the machine disturbs one process for longer than a measurement takes. Models that were compared with themselves
/// were 0.76 to 1.15 times as fast then.
const BETWEEN_SCATTERED_PYTHONS: f64 = 0.3;

/// What is timed, as far as the difference between processes depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pair {
    /// Two libraries.
    Native,
    /// One of the two is a Python.
    WithPython {
        /// Whether the interval of the calls alone is a wide one.
        scattered: bool,
    },
}

/// Calls of a sample, by the times of one call of each program alone and by the room that one takes. Both programs get
/// the same.
pub(super) fn calls_per_sample(candidate_ns: f64, baseline_ns: f64, call_bytes: u64) -> usize {
    let shorter_ns = candidate_ns.min(baseline_ns).max(1.0);
    let wanted = (LONG_SAMPLE_NS / shorter_ns).ceil();
    let allowed = (LONGEST_PAIR_NS / (candidate_ns + baseline_ns).max(1.0)).floor();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cast saturates, and no number is 0")]
    let by_time = wanted.min(allowed) as usize;
    let by_room = usize::try_from(MAX_ROTATED_BYTES / call_bytes.max(1)).unwrap_or(MAX_CALLS);
    by_time.min(by_room).clamp(1, MAX_CALLS)
}

/// What the interval of a ratio is widened by on each side, as a share, for calls of this time.
pub(super) fn between_processes(call_ns: f64, pair: Pair) -> f64 {
    let share = match pair {
        Pair::Native => BETWEEN_PROCESSES,
        Pair::WithPython { scattered: false } => BETWEEN_PYTHONS,
        Pair::WithPython { scattered: true } => BETWEEN_SCATTERED_PYTHONS,
    };
    share + BETWEEN_PROCESSES_NS / call_ns.max(BETWEEN_PROCESSES_NS)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn short_calls_share_a_sample_and_long_ones_have_their_own() {
        for (call_ns, calls) in [(2_000.0, 48), (4_000.0, 38), (7_000.0, 22), (60_000.0, 3), (150_000.0, 1), (5e6, 1)] {
            assert_eq!(calls_per_sample(call_ns, call_ns, MIB), calls, "{call_ns} ns");
        }
    }

    #[test]
    fn the_shorter_program_decides_and_a_slow_one_bounds_it() {
        assert_eq!(calls_per_sample(8_000.0, 30_000.0, MIB), 19);
        assert_eq!(calls_per_sample(30_000.0, 8_000.0, MIB), 19, "both sides alike");
        assert_eq!(calls_per_sample(8_000.0, 500_000.0, MIB), 3);
        assert_eq!(calls_per_sample(8_000.0, 5e6, MIB), 1);
    }

    #[test]
    fn room_on_the_device_bounds_it_too() {
        assert_eq!(calls_per_sample(4_000.0, 4_000.0, 64 * MIB), 8);
        assert_eq!(calls_per_sample(4_000.0, 4_000.0, u64::MAX), 1);
        assert_eq!(calls_per_sample(4_000.0, 4_000.0, 0), 38);
    }

    #[test]
    fn times_that_are_none_give_lone_calls_or_few() {
        for ns in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!((1..=MAX_CALLS).contains(&calls_per_sample(ns, ns, MIB)), "{ns}");
        }
    }

    #[test]
    fn the_difference_between_processes_leaves_room_for_an_interval_of_two_percent_from_some_microseconds_on() {
        for (call_ns, both_sides) in [(11_000.0, 0.0293), (30_000.0, 0.012), (168_000.0, 0.0038), (1e6, 0.0023)] {
            assert!((between_processes(call_ns, Pair::Native) * 2.0 - both_sides).abs() < 1e-4, "{call_ns} ns");
        }
        assert!(between_processes(1.0, Pair::Native) <= 1.001);
        let [native, python, scattered] =
            [Pair::Native, Pair::WithPython { scattered: false }, Pair::WithPython { scattered: true }]
                .map(|pair| between_processes(1e6, pair));
        assert!((python - native - 0.029).abs() < 1e-9, "{python} beside {native}");
        // A model as the program of its own task was 0.76 times as fast, with calls that scattered by 1.7 %.
        assert!(0.773 * (1.0 + scattered) > 1.0 && scattered < 0.31, "{scattered}");
    }
}
