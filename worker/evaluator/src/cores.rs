//! Cores of the host that are reserved for timed programs.
//!
//! A program that is bound by launches takes as long as the processor takes to launch its kernels. Cores differ in what else they and
//! their caches do, so both programs of a measurement run on the same one.

use std::sync::OnceLock;

use nightshift_sandbox::cores::{OneCore, allowed, by_physical_core, move_this_process};

/// Cores for what is timed on one GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimedCores {
    /// For the thread that times.
    evaluator: usize,
    /// For programs.
    programs: Vec<usize>,
    /// For everything else of this process and of those that it starts.
    others: Vec<usize>,
}

/// At most one in this many physical cores is reserved.
const SHARE: usize = 4;

/// Maximum and minimum number of physical cores that are reserved for a GPU: for the evaluator and a program's threads.
const MOST: usize = 4;
const FEWEST: usize = 2;

impl TimedCores {
    /// Reserves cores for each GPU of this machine, and moves all threads of this process to the others, once. None where the machine
    /// has fewer than eight physical cores for each GPU. Every process that may use the same cores reserves the same ones.
    pub fn reserve(gpus: usize) -> &'static [Self] {
        static RESERVED: OnceLock<Vec<TimedCores>> = OnceLock::new();
        RESERVED.get_or_init(|| {
            let reserved = Self::plan(gpus);
            if let Some(first) = reserved.first() {
                move_this_process(&first.others);
            }
            reserved
        })
    }

    /// Returns the cores that a process reserves which may use the same cores as this thread.
    #[must_use]
    pub fn plan(gpus: usize) -> Vec<Self> {
        Self::divide(&by_physical_core(&allowed()), gpus)
    }

    /// Divides physical cores, each given with its threads: those of the end are reserved, and of each only one thread is used.
    fn divide(cores: &[Vec<usize>], gpus: usize) -> Vec<Self> {
        let of_each = (cores.len() / SHARE / gpus.max(1)).min(MOST);
        if of_each < FEWEST {
            return Vec::new();
        }
        let (others, reserved) = cores.split_at(cores.len() - of_each * gpus.max(1));
        let others = others.concat();
        let one = |cores: &[Vec<usize>]| {
            let mut firsts = cores.iter().filter_map(|threads| threads.first().copied());
            Some(Self { evaluator: firsts.next()?, programs: firsts.collect(), others: others.clone() })
        };
        reserved.chunks(of_each).filter_map(one).collect()
    }

    /// Returns the number of cores.
    #[must_use]
    pub fn count(&self) -> usize {
        1 + self.programs.len()
    }

    /// All cores of the machine that this process may use, the reserved ones first.
    pub(crate) fn all(&self) -> Vec<usize> {
        [&[self.evaluator], &*self.programs, &*self.others].concat()
    }

    /// Keeps the calling thread on the core of the evaluator.
    pub(crate) fn take(&self) -> Option<OneCore> {
        OneCore::take(self.evaluator)
    }

    /// Returns the cores for the programs of a pair of processes, by its number. The first core is that of their first threads.
    pub(crate) fn of_programs(&self, pair: usize) -> Vec<usize> {
        let mut cores = self.programs.clone();
        cores.rotate_left(pair % self.programs.len().max(1));
        cores
    }

    /// Returns the cores that are not reserved.
    pub(crate) fn others(&self) -> &[usize] {
        &self.others
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cores(count: usize) -> Vec<Vec<usize>> {
        (0..count).map(|core| vec![core]).collect()
    }

    #[test]
    fn cores_are_reserved_at_the_end_and_never_more_than_a_quarter() {
        let of_one = TimedCores::divide(&cores(16), 1);
        assert_eq!(of_one.len(), 1);
        assert_eq!((of_one[0].evaluator, of_one[0].programs.as_slice()), (12, [13, 14, 15].as_slice()));
        assert_eq!(of_one[0].others, (0..12).collect::<Vec<_>>());
        let of_two = TimedCores::divide(&cores(16), 2);
        let taken: Vec<(usize, Vec<usize>)> = of_two.iter().map(|one| (one.evaluator, one.programs.clone())).collect();
        assert_eq!(taken, [(12, vec![13]), (14, vec![15])]);
        assert_eq!(TimedCores::divide(&cores(8), 1)[0].count(), 2);
        for few in [0, 1, 2, 7] {
            assert!(TimedCores::divide(&cores(few), 1).is_empty());
        }
        assert!(TimedCores::divide(&cores(15), 2).is_empty());
    }

    #[test]
    fn of_a_physical_core_one_thread_is_used_and_none_is_left_to_others() {
        let threads: Vec<Vec<usize>> = (0..8).map(|core| vec![core, core + 8]).collect();
        let reserved = TimedCores::divide(&threads, 1);
        assert_eq!((reserved[0].evaluator, reserved[0].programs.as_slice()), (6, [7].as_slice()));
        assert_eq!(reserved[0].others, [0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13]);
    }

    #[test]
    fn each_pair_of_processes_has_another_core() {
        let cores = TimedCores { evaluator: 4, programs: vec![5, 6, 7], others: vec![0] };
        let firsts: Vec<usize> = (0..4).map(|pair| cores.of_programs(pair)[0]).collect();
        assert_eq!(firsts, [5, 6, 7, 5]);
        assert_eq!(cores.of_programs(1), [6, 7, 5]);
    }
}
