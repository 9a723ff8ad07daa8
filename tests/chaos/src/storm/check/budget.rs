//! Budgets: never more than the cap, nothing set aside at the end, and what was used is what was done.

use nightshift_engine::event::Event;
use nightshift_protocol::budget::{BudgetLine, Resource};
use nightshift_protocol::run::StepStatus;

use super::Books;
use crate::storm::violation::Violation;
use crate::toy::{CALL_TOKENS, DEVICE_MS, RESERVED_TOKENS, What};

const RULE: &str = "budgets are kept";

pub(super) fn check(books: &Books, violations: &mut Vec<Violation>) {
    for (campaign, lines) in &books.campaigns {
        let mut wrong = |told: String| violations.push(Violation::new(RULE, format!("{}: {told}", campaign.name)));
        let runs: Vec<_> = books.runs.values().filter(|run| run.record.campaign == campaign.id).collect();
        let asked = books.book.campaigns.get(&campaign.name);
        for line in lines {
            if asked.is_some_and(|asked| asked.budget.of(line.resource) != line.cap) {
                wrong(format!("another cap was asked for: {line:?}"));
            }
            if line.cap.is_some_and(|cap| line.resource != Resource::WallMs && line.used > cap) {
                wrong(format!("more was used than there was: {line:?}"));
            }
            if line.reserved != 0 {
                wrong(format!("something is still set aside: {line:?}"));
            }
        }
        let of = |resource| lines.iter().find(|line| line.resource == resource);
        let codes = runs.iter().flat_map(|run| &run.steps);
        let attempts = codes.filter(|step| step.key == "code" && step.status == StepStatus::Completed).count() as u64;
        if of(Resource::Attempts).is_some_and(|line| line.used != attempts) {
            wrong(format!("{attempts} attempts were committed: {:?}", of(Resource::Attempts)));
        }
        let ids: Vec<String> = runs.iter().map(|run| run.record.id.to_string()).collect();
        let committed = books.lines.iter().filter(|line| line.what == What::CallCommitted && ids.contains(&line.run));
        let tokens = committed.count() as u64 * CALL_TOKENS;
        if of(Resource::Tokens).is_some_and(|line| line.used < tokens) {
            wrong(format!("answered calls used {tokens} tokens: {:?}", of(Resource::Tokens)));
        }
        for run in &runs {
            for event in &run.events {
                let Event::RunCompleted { result } = &event.event else { continue };
                let Some(resource) = result["exhausted"].as_str().and_then(Resource::parse) else { continue };
                if !of(resource).is_some_and(is_used_up) {
                    wrong(format!("{} ended for want of {resource:?}: {:?}", run.record.id, of(resource)));
                }
            }
        }
    }
}

/// Returns whether not even one more step could be afforded.
fn is_used_up(line: &BudgetLine) -> bool {
    line.is_exhausted_for(match line.resource {
        Resource::Attempts => 1,
        Resource::Tokens => RESERVED_TOKENS,
        Resource::DeviceMs => DEVICE_MS,
        Resource::CostMicrousd | Resource::WallMs => return false,
    })
}
