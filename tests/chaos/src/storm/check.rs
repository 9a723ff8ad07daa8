//! Afterwards: do database, logs and acknowledgements agree, and was every promise kept?

mod artifact;
mod budget;
mod execution;
mod run;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use nightshift_engine::event::{Event, EventRecord};
use nightshift_engine::store::{
    BudgetStore, CampaignRecord, CampaignStore, PageRequest, RunRecord, RunStore, StepRecord,
};
use nightshift_protocol::budget::BudgetLine;
use nightshift_protocol::id::{CampaignId, RunId};
use nightshift_protocol::run::RunStatus;
use nightshift_protocol::signal::Signal;
use nightshift_store::SqlStore;
use serde::Serialize;

use super::artifacts::Artifacts;
use super::fleet::Fleet;
use super::load::{Book, Load};
use super::violation::Violation;
use crate::node::open;
use crate::toy::{Line, What, read_folder};

/// Rows that are read at once.
const PAGE: u32 = 500;

/// A run with everything about it.
struct Run {
    record: RunRecord,
    events: Vec<EventRecord>,
    steps: Vec<StepRecord>,
}

/// Everything that is known.
struct Books {
    campaigns: Vec<(CampaignRecord, Vec<BudgetLine>)>,
    runs: BTreeMap<String, Run>,
    lines: Vec<Line>,
    book: Book,
}

/// Numbers of a storm.
#[derive(Debug, Default, Serialize)]
pub(super) struct Facts {
    campaigns: usize,
    runs: usize,
    /// Runs by how they ended.
    ended: BTreeMap<String, usize>,
    steps_completed: usize,
    /// Executions that began, those of agents too.
    executions: usize,
    /// Tries that failed or were lost, and were followed by another.
    retries: usize,
    events: usize,
    /// Acknowledged requests of people.
    acknowledged: BTreeMap<&'static str, u64>,
    #[serde(flatten)]
    artifacts: artifact::Facts,
    /// Longest time in which no execution ended, in milliseconds.
    longest_pause_ms: i64,
}

impl fmt::Display for Facts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} campaigns, {} runs: {:?}", self.campaigns, self.runs, self.ended)?;
        writeln!(
            f,
            "{} steps completed by {} executions, {} retries, {} events",
            self.steps_completed, self.executions, self.retries, self.events
        )?;
        writeln!(f, "acknowledged requests: {:?}", self.acknowledged)?;
        writeln!(f, "{}", self.artifacts)?;
        write!(f, "longest time without the end of an execution: {} ms", self.longest_pause_ms)
    }
}

/// Checks everything.
pub(super) async fn check(
    fleet: &Fleet,
    load: &Load,
    artifacts: &Artifacts,
    violations: &mut Vec<Violation>,
) -> anyhow::Result<Facts> {
    let store = open(&fleet.database.address(), Some(fleet.objects.direct()), None).await?;
    for told in store.find_violations().await? {
        violations.push(Violation::new("the store's own invariants", told));
    }
    let book = load.book().clone();
    let books = read(&store, read_folder(&fleet.logs)?, book).await?;
    let stored = artifact::check(&store, fleet, &books, artifacts, violations).await?;
    store.close().await?;
    campaigns(&books, violations);
    for run in books.runs.values() {
        run::check(run, violations);
    }
    signals(&books, violations);
    budget::check(&books, violations);
    execution::check(&books, violations);
    for run in books.runs.values() {
        let id = run.record.id.to_string();
        // Of a database that is gone in a moment, at least what is to be examined.
        if violations.iter().any(|violation| violation.told.contains(&id)) {
            let told = format!("{:#?}\n{:#?}\n{:#?}\n", run.record, run.events, run.steps);
            std::fs::write(fleet.logs.join(format!("{id}.txt")), told)?;
        }
    }
    Ok(Facts { artifacts: stored, ..facts(&books) })
}

async fn read(store: &SqlStore, lines: Vec<Line>, book: Book) -> anyhow::Result<Books> {
    let mut campaigns = Vec::new();
    let mut runs = BTreeMap::new();
    let mut before = None;
    loop {
        let page = store.list_campaigns(PageRequest { limit: PAGE, before: before.clone() }).await?;
        let Some(last) = page.last() else { break };
        before = Some(last.id.to_string());
        for campaign in page {
            let budget = store.load_budget(&campaign.id).await?;
            for run in runs_of(store, &campaign.id).await? {
                let record = store.load_run(&run).await?;
                let (events, steps) = (events_of(store, &run).await?, store.list_step_heads(&run).await?);
                runs.insert(run.to_string(), Run { record, events, steps });
            }
            campaigns.push((campaign, budget));
        }
    }
    Ok(Books { campaigns, runs, lines, book })
}

async fn runs_of(store: &SqlStore, campaign: &CampaignId) -> anyhow::Result<Vec<RunId>> {
    let page = PageRequest { limit: PAGE, before: None };
    Ok(store.list_runs(Some(campaign), None, page).await?.into_iter().map(|run| run.id).collect())
}

async fn events_of(store: &SqlStore, run: &RunId) -> anyhow::Result<Vec<EventRecord>> {
    let mut events: Vec<EventRecord> = Vec::new();
    loop {
        let page = store.events_after(run, events.last().map_or(0, |event| event.seq), PAGE).await?;
        if page.is_empty() {
            return Ok(events);
        }
        events.extend(page);
    }
}

/// Checks that each key has one campaign, and that each campaign was requested.
fn campaigns(books: &Books, violations: &mut Vec<Violation>) {
    let mut stored: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for (campaign, _) in &books.campaigns {
        stored.entry(&campaign.name).or_default().insert(campaign.id.to_string());
    }
    for (name, ids) in &stored {
        let asked = books.book.campaigns.get(*name);
        let told = match asked {
            None => format!("{name} exists and was not requested"),
            Some(_) if ids.len() > 1 => format!("{name} is there {} times", ids.len()),
            Some(asked) if !asked.ids.is_empty() && asked.ids != *ids => {
                format!("{name} was acknowledged as {:?} and is {ids:?}", asked.ids)
            }
            Some(_) => continue,
        };
        violations.push(Violation::new("one campaign for each key", told));
    }
    for (name, asked) in &books.book.campaigns {
        if !asked.ids.is_empty() && !stored.contains_key(name.as_str()) {
            violations.push(Violation::new("what was acknowledged is kept", format!("the campaign {name} is lost")));
        }
    }
    for (campaign, _) in &books.campaigns {
        let Some(asked) = books.book.campaigns.get(&campaign.name) else { continue };
        let mut expected: Vec<String> = asked.runs.iter().map(ToString::to_string).collect();
        let of_it = books.runs.values().filter(|run| run.record.campaign == campaign.id);
        let mut found: Vec<String> =
            of_it.filter_map(|run| run.record.digest["task"].as_str().map(str::to_owned)).collect();
        expected.sort();
        found.sort();
        if expected != found {
            let told = format!("{} has the runs {found:?} instead of {expected:?}", campaign.name);
            violations.push(Violation::new("what was acknowledged is kept", told));
        }
    }
}

/// Advice and cancellations that were acknowledged are in the log.
fn signals(books: &Books, violations: &mut Vec<Violation>) {
    let rule = "what was acknowledged is kept";
    for (id, text) in &books.book.hints {
        let times = books.runs.get(id).map_or(0, |run| {
            let hints = run.events.iter().filter(|event| match &event.event {
                Event::SignalReceived { signal: Signal::Hint { text: found }, .. } => found == text,
                _ => false,
            });
            hints.count()
        });
        if times != 1 {
            violations.push(Violation::new(
                rule,
                format!("`{text}` was acknowledged for {id} and is {times} times in its log"),
            ));
        }
    }
    for id in &books.book.cancelled {
        let ended = books.runs.get(id).map(|run| run.record.status);
        if ended != Some(RunStatus::Cancelled) {
            let told = format!("the cancellation of {id} was acknowledged, and it ended as {ended:?}");
            violations.push(Violation::new(rule, told));
        }
    }
}

fn facts(books: &Books) -> Facts {
    let mut facts = Facts {
        campaigns: books.campaigns.len(),
        runs: books.runs.len(),
        executions: books.lines.iter().filter(|line| line.what == What::Begin).count(),
        acknowledged: books.book.acknowledged.clone(),
        longest_pause_ms: execution::longest_pause_ms(&books.lines),
        ..Facts::default()
    };
    for run in books.runs.values() {
        let exhausted = run.events.iter().any(|event| event.event.kind() == "run_completed" && !run::has_sum(event));
        let ended = if exhausted { "out_of_budget" } else { run.record.status.as_str() };
        *facts.ended.entry(ended.to_owned()).or_default() += 1;
        facts.events += run.events.len();
        facts.steps_completed += run.events.iter().filter(|event| event.event.kind() == "step_completed").count();
        facts.retries += run.events.iter().filter(|event| event.event.kind() == "step_retried").count();
    }
    facts
}
