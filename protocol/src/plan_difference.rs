//! What a new version of a plan does differently.

use serde::{Deserialize, Serialize};

use crate::plan::{Plan, PlanVersion, Subtask};

/// What was, and what is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Change {
    /// The field.
    pub field: String,
    /// Before; empty when there was nothing.
    pub before: String,
    /// After; empty when there is nothing.
    pub after: String,
}

/// What became of a subtask.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum SubtaskChange {
    /// It is new.
    Added {
        /// Its number in the new plan, from 1.
        number: usize,
        /// Its title.
        title: String,
    },
    /// It is gone.
    Removed {
        /// Its number in the old plan, from 1.
        number: usize,
        /// Its title.
        title: String,
    },
    /// It stands elsewhere or says something else.
    Changed {
        /// Its number in the old plan, from 1.
        before: usize,
        /// Its number in the new plan, from 1.
        after: usize,
        /// Its title in the new plan.
        title: String,
        /// The fields that differ.
        changes: Vec<Change>,
    },
}

/// What differs between two versions of a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PlanDifference {
    /// Version of the old plan.
    pub from: u32,
    /// Version of the new one.
    pub to: u32,
    /// Fields of the plan itself.
    pub changes: Vec<Change>,
    /// Subtasks, in the order of the new plan; what is gone comes last.
    pub subtasks: Vec<SubtaskChange>,
}

impl PlanDifference {
    /// What the new version does differently. Subtasks are the same when their titles are, else when their scopes are.
    #[must_use]
    pub fn between(old: &PlanVersion, new: &PlanVersion) -> Self {
        let pairs = pairs(&old.plan, &new.plan);
        let mut subtasks: Vec<SubtaskChange> = Vec::new();
        for (index, after) in new.plan.subtasks.iter().enumerate() {
            let before = pairs.iter().find(|(_, to)| *to == index).map(|(from, _)| *from);
            match before.and_then(|before| Some((before, old.plan.subtasks.get(before)?))) {
                None => subtasks.push(SubtaskChange::Added { number: index + 1, title: after.title.clone() }),
                Some((at, before)) => {
                    let changes = subtask_changes(before, after);
                    if at != index || !changes.is_empty() {
                        let title = after.title.clone();
                        subtasks.push(SubtaskChange::Changed { before: at + 1, after: index + 1, title, changes });
                    }
                }
            }
        }
        let gone =
            old.plan.subtasks.iter().enumerate().filter(|(index, _)| pairs.iter().all(|(from, _)| from != index));
        subtasks.extend(
            gone.map(|(index, subtask)| SubtaskChange::Removed { number: index + 1, title: subtask.title.clone() }),
        );
        let mut changes = Vec::new();
        note(&mut changes, "summary", &old.plan.summary, &new.plan.summary);
        let risks = |plan: &Plan| plan.correctness_risks.join("; ");
        note(&mut changes, "correctness_risks", &risks(&old.plan), &risks(&new.plan));
        Self { from: old.version, to: new.version, changes, subtasks }
    }

    /// What each version does differently from the one before it.
    #[must_use]
    pub fn of_versions(plans: &[PlanVersion]) -> Vec<Self> {
        plans.iter().zip(plans.iter().skip(1)).map(|(before, after)| Self::between(before, after)).collect()
    }

    /// Whether the plans are the same.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.subtasks.is_empty()
    }

    /// The difference in lines for people.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.changes.iter().map(|change| changed("plan", change)).collect();
        for subtask in &self.subtasks {
            match subtask {
                SubtaskChange::Added { number, title } => lines.push(format!("+ subtask {number}: {title}")),
                SubtaskChange::Removed { number, title } => lines.push(format!("- subtask {number}: {title}")),
                SubtaskChange::Changed { before, after, title, changes } => {
                    if before != after {
                        lines.push(format!("~ subtask {before} is subtask {after} now: {title}"));
                    }
                    lines.extend(changes.iter().map(|change| changed(&format!("subtask {after}"), change)));
                }
            }
        }
        lines
    }
}

fn changed(of: &str, change: &Change) -> String {
    let shown = |text: &str| if text.is_empty() { "nothing".to_owned() } else { format!("\"{text}\"") };
    format!("~ {of}, {}: {} instead of {}", change.field, shown(&change.after), shown(&change.before))
}

/// Indexes of subtasks that are the same, old and new.
fn pairs(old: &Plan, new: &Plan) -> Vec<(usize, usize)> {
    let mut pairs: Vec<(usize, usize)> = Vec::new();
    let same: [fn(&Subtask, &Subtask) -> bool; 2] =
        [|one, other| one.title == other.title, |one, other| !one.scope.is_empty() && one.scope == other.scope];
    for is_same in same {
        for (from, before) in old.subtasks.iter().enumerate() {
            if pairs.iter().any(|(known, _)| *known == from) {
                continue;
            }
            let free = |to: &usize| pairs.iter().all(|(_, known)| known != to);
            let mut candidates =
                new.subtasks.iter().enumerate().filter(|(to, after)| free(to) && is_same(before, after));
            if let Some((to, _)) = candidates.next() {
                pairs.push((from, to));
            }
        }
    }
    pairs
}

fn subtask_changes(before: &Subtask, after: &Subtask) -> Vec<Change> {
    let mut changes = Vec::new();
    let number = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
    let contract = |subtask: &Subtask| {
        let of = |tensors: &[crate::plan::TensorContract]| -> Vec<String> {
            tensors.iter().map(|t| format!("{} {}[{}] {}", t.name, t.dtype, t.shape.join(", "), t.layout)).collect()
        };
        let (inputs, outputs) = (of(&subtask.contract.inputs).join(", "), of(&subtask.contract.outputs).join(", "));
        if inputs.is_empty() && outputs.is_empty() { String::new() } else { format!("{inputs} -> {outputs}") }
    };
    note(&mut changes, "title", &before.title, &after.title);
    note(&mut changes, "scope", &before.scope.join(", "), &after.scope.join(", "));
    note(&mut changes, "fusion_boundary", &before.fusion_boundary, &after.fusion_boundary);
    note(&mut changes, "contract", &contract(before), &contract(after));
    note(&mut changes, "methods", &before.methods.join("; "), &after.methods.join("; "));
    note(&mut changes, "expected_bottleneck", &before.expected_bottleneck, &after.expected_bottleneck);
    note(&mut changes, "risk", &before.risk, &after.risk);
    note(&mut changes, "time_share", &number(before.time_share), &number(after.time_share));
    note(&mut changes, "expected_gain", &number(before.expected_gain), &number(after.expected_gain));
    note(&mut changes, "target_speedup", &number(before.target_speedup), &number(after.target_speedup));
    changes
}

fn note(changes: &mut Vec<Change>, field: &str, before: &str, after: &str) {
    if before != after {
        changes.push(Change { field: field.to_owned(), before: before.to_owned(), after: after.to_owned() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subtask(title: &str, scope: &str, methods: &[&str]) -> Subtask {
        Subtask {
            title: title.to_owned(),
            scope: vec![scope.to_owned()],
            methods: methods.iter().map(|method| (*method).to_owned()).collect(),
            ..Subtask::default()
        }
    }

    fn version(version: u32, subtasks: Vec<Subtask>) -> PlanVersion {
        let plan = Plan { summary: format!("plan {version}"), subtasks, correctness_risks: Vec::new() };
        PlanVersion { version, reason: None, plan, calls: Vec::new() }
    }

    #[test]
    fn a_plan_does_not_differ_from_itself() {
        let plan = version(1, vec![subtask("a", "x", &["m"])]);
        assert!(PlanDifference::between(&plan, &plan).is_empty());
    }

    #[test]
    fn a_difference_tells_what_came_went_moved_and_changed() {
        let old = version(
            1,
            vec![subtask("tiles", "matmul", &["m"]), subtask("fuse", "gelu", &[]), subtask("old", "z", &[])],
        );
        let new = version(
            2,
            vec![subtask("fuse", "gelu", &["n"]), subtask("wider tiles", "matmul", &["m"]), subtask("new", "y", &[])],
        );
        let difference = PlanDifference::between(&old, &new);
        assert_eq!(
            difference.lines(),
            [
                "~ plan, summary: \"plan 2\" instead of \"plan 1\"",
                "~ subtask 2 is subtask 1 now: fuse",
                "~ subtask 1, methods: \"n\" instead of nothing",
                "~ subtask 1 is subtask 2 now: wider tiles",
                "~ subtask 2, title: \"wider tiles\" instead of \"tiles\"",
                "+ subtask 3: new",
                "- subtask 3: old",
            ]
        );
    }
}
