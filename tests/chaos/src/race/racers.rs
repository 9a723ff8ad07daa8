//! The two processes.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{ChildStdin, ChildStdout};

use anyhow::Context as _;

use crate::node::{Contest, Order, Prize};
use crate::storm::process::Process;
use crate::toy::now_us;

/// How long after the order a race begins: both have read it by then.
const START_US: i64 = 5_000;

/// Two processes that compete.
pub(super) struct Racers {
    both: [Racer; 2],
    turn: usize,
}

struct Racer {
    // Killed when it is dropped.
    _process: Process,
    orders: ChildStdin,
    prizes: BufReader<ChildStdout>,
}

impl Racers {
    /// Starts them; each with arguments of its own.
    pub(super) fn start(folder: &Path, arguments: impl Fn(usize) -> Vec<String>) -> anyhow::Result<Self> {
        let racer = |n: usize| {
            let mut all = vec!["node".to_owned(), "racer".to_owned()];
            all.extend(arguments(n));
            let mut process = Process::start(&all, &folder.join(format!("racer-{n}.txt")), None)?;
            let (orders, prizes) = process.pipes().context("a racer without pipes")?;
            Ok::<_, anyhow::Error>(Racer { _process: process, orders, prizes: BufReader::new(prizes) })
        };
        Ok(Self { both: [racer(0)?, racer(1)?], turn: 0 })
    }

    /// One race, each for his own.
    pub(super) fn race(&mut self, first: Contest, second: Contest) -> anyhow::Result<[Prize; 2]> {
        // Who is told first differs from round to round.
        self.turn += 1;
        let at_us = now_us() + START_US;
        let mut contests = [Some(first), Some(second)];
        for n in [self.turn % 2, (self.turn + 1) % 2] {
            let contest = contests[n].take().context("a racer competes once")?;
            let order = serde_json::to_string(&Order { at_us, contest })?;
            writeln!(self.both[n].orders, "{order}")?;
            self.both[n].orders.flush()?;
        }
        let [first, second] = &mut self.both;
        Ok([first.prize()?, second.prize()?])
    }

    /// One race for the same.
    pub(super) fn race_for(&mut self, contest: &Contest) -> anyhow::Result<[Prize; 2]> {
        self.race(contest.clone(), contest.clone())
    }
}

impl Racer {
    fn prize(&mut self) -> anyhow::Result<Prize> {
        let mut line = String::new();
        self.prizes.read_line(&mut line)?;
        serde_json::from_str(&line).with_context(|| format!("a racer says `{line}`"))
    }
}

/// Returns whether exactly one won.
pub(super) fn one_won(prizes: &[Prize; 2]) -> bool {
    prizes[0].won != prizes[1].won
}
