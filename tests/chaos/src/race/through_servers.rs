//! Races of workers and clients, through servers.

use std::time::{Duration, Instant};

use nightshift_client::Client;
use nightshift_protocol::api::{
    Claim, ControlAction, CreateCampaign, FreeDevice, FreeSlots, LeasedStep, RegisterWorker, Report, ReportResult,
    StepView, TryOutcome,
};
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::budget::{BudgetCaps, BudgetLine, Resource};
use nightshift_protocol::id::{CampaignId, RunId, WorkerId};
use nightshift_protocol::run::StepStatus;

use super::Score;
use super::racers::{Racers, one_won};
use crate::node::{Contest, TOKEN, WORKER_TOKEN};
use crate::storm::load::{bundle, spec};
use crate::toy::{Name, offers, output};

/// How long anything may take that has to come.
const PATIENCE: Duration = Duration::from_mins(1);
/// How often is looked.
const LOOK: Duration = Duration::from_millis(5);

struct Field {
    operator: Client,
    worker_client: Client,
    bundle: ArtifactHash,
    /// One worker of each racer.
    workers: [WorkerId; 2],
    next: u64,
}

pub(super) async fn races(
    addresses: &[String],
    mut racers: Racers,
    rounds: u32,
    score: &mut Score,
) -> anyhow::Result<()> {
    let client = |token: &str| Client::new(&addresses.join(","), Some(token.to_owned().into()));
    let (operator, worker_client) = (client(TOKEN)?, client(WORKER_TOKEN)?);
    let bundle = operator.put_artifact(&bundle()?).await?;
    let introduction = |name: &str| RegisterWorker {
        name: name.to_owned(),
        embedded: false,
        offers: offers(),
        version: "race".to_owned(),
    };
    let mut field = Field {
        workers: [
            worker_client.register_worker(&introduction("first")).await?.worker,
            worker_client.register_worker(&introduction("second")).await?.worker,
        ],
        operator,
        worker_client,
        bundle,
        next: 1,
    };
    for _ in 0..rounds {
        field.same_key(&mut racers, score).await?;
        let (run, step) = field.same_step(&mut racers, score).await?;
        field.same_run(&mut racers, &run, step, score).await?;
        field.same_budget(&mut racers, score).await?;
    }
    Ok(())
}

impl Field {
    fn names(&mut self, count: u64) -> Vec<Name> {
        let first = self.next;
        self.next += count;
        (first..self.next).map(|number| Name { number, fails_first: false, gated: false }).collect()
    }

    fn request(&mut self, runs: u64, budget: BudgetCaps) -> CreateCampaign {
        let names = self.names(runs);
        CreateCampaign { spec: spec(&format!("race {}", self.next), &names, &self.bundle, budget) }
    }

    /// Two clients create a campaign with the same key.
    async fn same_key(&mut self, racers: &mut Racers, score: &mut Score) -> anyhow::Result<()> {
        let request = self.request(1, BudgetCaps::default());
        let key = format!("key-{}", self.next);
        let prizes = racers.race_for(&Contest::Create { key, request: Box::new(request) })?;
        let same = prizes[0].told == prizes[1].told;
        score.round("the same idempotency key", one_won(&prizes) && same, &prizes);
        // Its steps would stand in the way of the next race.
        self.operator.control_campaign(&prizes[0].told.parse()?, ControlAction::Cancel).await?;
        Ok(())
    }

    async fn create(&mut self, runs: u64, budget: BudgetCaps) -> anyhow::Result<(CampaignId, Vec<RunId>)> {
        let request = self.request(runs, budget);
        let created = self.operator.create_campaign(&request, &format!("key-{}", self.next)).await?;
        Ok((created.campaign, created.runs))
    }

    async fn steps(&self, run: &RunId) -> anyhow::Result<Vec<StepView>> {
        Ok(self.operator.run_steps(run).await?)
    }

    /// Waits until the run has so many steps.
    async fn until_steps(&self, run: &RunId, count: usize) -> anyhow::Result<Vec<StepView>> {
        let began = Instant::now();
        loop {
            let steps = self.steps(run).await?;
            if steps.len() >= count {
                return Ok(steps);
            }
            anyhow::ensure!(began.elapsed() < PATIENCE, "{run} has {} steps instead of {count}", steps.len());
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Two workers want the only step there is.
    async fn same_step(
        &mut self,
        racers: &mut Racers,
        score: &mut Score,
    ) -> anyhow::Result<(RunId, (usize, LeasedStep))> {
        let (_, runs) = self.create(1, BudgetCaps::default()).await?;
        let run = runs[0].clone();
        self.until_steps(&run, 1).await?;
        let [first, second] = self.workers.clone();
        let prizes = racers.race(Contest::Claim { worker: first }, Contest::Claim { worker: second })?;
        score.round("the same step", one_won(&prizes), &prizes);
        let winner = usize::from(!prizes[0].won);
        let steps: Vec<LeasedStep> = serde_json::from_str(&prizes[winner].told)?;
        let step = steps.into_iter().next().ok_or_else(|| anyhow::anyhow!("no process won: {prizes:?}"))?;
        Ok((run, (winner, step)))
    }

    /// The two last steps of a run that it waits for end at the same moment, reported to two servers: one of them decides
    /// what follows, once. Before that, two reports with different results compete for one step.
    async fn same_run(
        &mut self,
        racers: &mut Racers,
        run: &RunId,
        (winner, step): (usize, LeasedStep),
        score: &mut Score,
    ) -> anyhow::Result<()> {
        let worker = self.workers[winner].clone();
        let report = |step: &LeasedStep, value: u64| Contest::Report {
            step: Box::new(step.clone()),
            worker: worker.clone(),
            outcome: TryOutcome::Completed { output: Box::new(output(value)) },
        };
        let prizes = racers.race(report(&step, 1), report(&step, 2))?;
        let completions = self.count(run, "step_completed", "prepare").await?;
        score.round("the same lease's report", completions == 1, (&prizes, completions));

        self.until_steps(run, 4).await?;
        let mut fan = self.claim(&worker, 3, FreeSlots { cpu: 3, devices: Vec::new() }).await?;
        let last = fan.split_off(1);
        for step in fan {
            self.complete(&worker, &step).await?;
        }
        anyhow::ensure!(last.len() == 2, "the fan has {} steps", last.len() + 1);
        let prizes = racers.race(report(&last[0], 3), report(&last[1], 4))?;
        self.until_steps(run, 5).await?;
        let scheduled = self.count(run, "step_scheduled", "code").await?;
        score.round("the same run", scheduled == 1, (&prizes, scheduled));
        Ok(())
    }

    /// Two runs of a campaign want the only attempt that it has.
    async fn same_budget(&mut self, racers: &mut Racers, score: &mut Score) -> anyhow::Result<()> {
        let budget = BudgetCaps { attempts: Some(1), ..BudgetCaps::default() };
        let (campaign, runs) = self.create(2, budget).await?;
        let worker = self.workers[0].clone();
        for run in &runs {
            self.until_steps(run, 1).await?;
        }
        for _ in &runs {
            let alone = FreeDevice { index: 0, exclusive: true, shared: 0 };
            for step in self.claim(&worker, 1, FreeSlots { cpu: 0, devices: vec![alone] }).await? {
                self.complete(&worker, &step).await?;
            }
        }
        for run in &runs {
            self.until_steps(run, 4).await?;
        }
        let mut fans = self.claim(&worker, 6, FreeSlots { cpu: 6, devices: Vec::new() }).await?;
        let mut last = Vec::new();
        for run in &runs {
            let at = fans.iter().position(|step| step.run == *run);
            last.push(fans.remove(at.ok_or_else(|| anyhow::anyhow!("a run without a fan"))?));
        }
        for step in fans {
            self.complete(&worker, &step).await?;
        }
        let report = |step: &LeasedStep| Contest::Report {
            step: Box::new(step.clone()),
            worker: worker.clone(),
            outcome: TryOutcome::Completed { output: Box::new(output(5)) },
        };
        let prizes = racers.race(report(&last[0]), report(&last[1]))?;
        let mut ready = 0;
        for run in &runs {
            let steps = self.until_steps(run, 5).await?;
            let code = steps.iter().find(|step| step.key == "code");
            // The one that has to wait says for what.
            ready += usize::from(code.is_some_and(|code| {
                code.status == StepStatus::Scheduled
                    && !code
                        .waiting_for
                        .as_deref()
                        .is_some_and(|waits| waits.contains("budget") || waits.contains("attempts"))
            }));
        }
        let lines = self.operator.campaign(&campaign).await?.budget;
        let reserved = |line: &&BudgetLine| line.resource == Resource::Attempts;
        let line = lines.iter().find(reserved);
        let held = line.is_some_and(|line| line.used + line.reserved == 1);
        score.round("the same budget", held && ready == 1, (&prizes, line, ready));
        Ok(())
    }

    /// Leases so many steps for what is free.
    async fn claim(&self, worker: &WorkerId, count: usize, free: FreeSlots) -> anyhow::Result<Vec<LeasedStep>> {
        let began = Instant::now();
        let mut steps: Vec<LeasedStep> = Vec::new();
        while steps.len() < count {
            anyhow::ensure!(began.elapsed() < PATIENCE, "only {} of {count} steps came", steps.len());
            let cpu = free.cpu.saturating_sub(u32::try_from(steps.len())?);
            let free = FreeSlots { cpu, devices: free.devices.clone() };
            steps.extend(self.worker_client.claim(worker, &Claim { free, wait_ms: 200 }).await?.steps);
        }
        Ok(steps)
    }

    async fn complete(&self, worker: &WorkerId, step: &LeasedStep) -> anyhow::Result<()> {
        let result = TryOutcome::Completed { output: Box::new(output(7)) };
        let report = Report { worker: worker.clone(), epoch: step.epoch, result, free: None };
        let reply = self.worker_client.report(&step.step, &report).await?;
        anyhow::ensure!(reply.result == ReportResult::Committed, "the report of {} is not taken", step.key);
        Ok(())
    }

    async fn count(&self, run: &RunId, kind: &str, key: &str) -> anyhow::Result<usize> {
        let page = self.operator.run_events(run, 0, 0).await?;
        Ok(page.events.iter().filter(|event| event.kind == kind && event.step_key.as_deref() == Some(key)).count())
    }
}
