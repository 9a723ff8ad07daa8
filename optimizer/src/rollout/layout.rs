//! How trainers want their rows: columns, their types, and how they are filled.

use nightshift_protocol::rubric::Skill;
use serde_json::{Value, json};

use super::{Rollout, judge_state};

/// A trainer's layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Layout {
    /// verl: `data_source`, `prompt`, `ability`, `reward_model`, `extra_info`.
    Verl,
    /// TRL: `prompt` and `completion` as conversations, everything else in columns of its own.
    Trl,
}

/// Type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Text.
    Text,
    /// Whole number.
    Integer,
    /// Number.
    Number,
    /// Yes or no.
    Flag,
    /// A list of messages with `role` and `content`.
    Messages,
    /// Columns with names of their own.
    Group(&'static [Column]),
}

/// A column. Any but messages and groups may be null.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    /// Name.
    pub name: &'static str,
    /// Type.
    pub kind: Kind,
}

const fn column(name: &'static str, kind: Kind) -> Column {
    Column { name, kind }
}

/// What both layouts tell of a row, beside prompt and completion.
const FACTS: [Column; 35] = [
    column("index", Kind::Integer),
    column("split", Kind::Text),
    column("skill", Kind::Text),
    column("task_id", Kind::Text),
    column("task_name", Kind::Text),
    column("target", Kind::Text),
    column("run", Kind::Text),
    column("from_attempt", Kind::Integer),
    column("to_attempt", Kind::Integer),
    column("fix_turn", Kind::Integer),
    column("stage", Kind::Text),
    column("outcome", Kind::Text),
    column("correct", Kind::Flag),
    column("major_hacking", Kind::Flag),
    column("speedup", Kind::Number),
    column("prev_speedup", Kind::Number),
    column("judge", Kind::Text),
    column("judge_model", Kind::Text),
    column("judge_total", Kind::Integer),
    column("rule_total", Kind::Integer),
    column("reward", Kind::Number),
    column("reward_formula", Kind::Text),
    column("group", Kind::Text),
    column("group_size", Kind::Integer),
    column("advantage", Kind::Number),
    column("model", Kind::Text),
    column("scripted", Kind::Flag),
    column("speedup_over_fastest", Kind::Number),
    column("prev_speedup_over_fastest", Kind::Number),
    column("reasoning", Kind::Text),
    column("input_tokens", Kind::Integer),
    column("cached_input_tokens", Kind::Integer),
    column("output_tokens", Kind::Integer),
    column("reasoning_tokens", Kind::Integer),
    column("before", Kind::Text),
];

const VERL_EXTRA: [Column; FACTS.len() + 3] = {
    let mut all = [column("question", Kind::Text); FACTS.len() + 3];
    all[1] = column("answer", Kind::Text);
    all[2] = column("response", Kind::Text);
    let mut place = 0;
    while place < FACTS.len() {
        all[place + 3] = FACTS[place];
        place += 1;
    }
    all
};

const VERL: [Column; 5] = [
    column("data_source", Kind::Text),
    column("prompt", Kind::Messages),
    column("ability", Kind::Text),
    column("reward_model", Kind::Group(&[column("style", Kind::Text), column("ground_truth", Kind::Text)])),
    column("extra_info", Kind::Group(&VERL_EXTRA)),
];

const TRL: [Column; FACTS.len() + 2] = {
    let mut all = [column("prompt", Kind::Messages); FACTS.len() + 2];
    all[1] = column("completion", Kind::Messages);
    let mut place = 0;
    while place < FACTS.len() {
        all[place + 2] = FACTS[place];
        place += 1;
    }
    all
};

impl Layout {
    /// Every layout.
    pub const ALL: [Self; 2] = [Self::Verl, Self::Trl];

    /// The printed name, and that of its folder.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Verl => "verl",
            Self::Trl => "trl",
        }
    }

    /// Its columns.
    #[must_use]
    pub fn columns(self) -> &'static [Column] {
        match self {
            Self::Verl => &VERL,
            Self::Trl => &TRL,
        }
    }

    /// A row; `index` is its place in its file.
    #[must_use]
    pub fn row(self, index: usize, row: &Rollout) -> Value {
        let mut facts = facts(index, row);
        match self {
            Self::Verl => {
                // The task itself, not a solution: what the author of a program has to reproduce faster.
                facts["answer"] = json!(row.reference_source);
                facts["question"] = json!(format!("{}: {}", row.task.name, row.stage));
                facts["response"] = json!(row.completion);
                json!({
                    "data_source": format!("nightshift/{}", skill(row.skill)),
                    "prompt": row.prompt,
                    "ability": if row.task.target == "cuda" { "CUDA" } else { "CPP" },
                    "reward_model": { "style": "rule", "ground_truth": row.task.bundle },
                    "extra_info": facts,
                })
            }
            Self::Trl => {
                facts["prompt"] = json!(row.prompt);
                facts["completion"] = json!([{ "role": "assistant", "content": row.completion }]);
                facts
            }
        }
    }
}

/// The printed name of a skill, and that of its folder.
#[must_use]
pub fn skill(skill: Skill) -> &'static str {
    match skill {
        Skill::FromScratch => "from_scratch",
        Skill::Refinement => "refinement",
    }
}

fn facts(index: usize, row: &Rollout) -> Value {
    let scored = &row.score.scored;
    json!({
        "index": index,
        "split": row.split.as_str(),
        "skill": skill(row.skill),
        "task_id": row.task.bundle,
        "task_name": row.task.name,
        "target": row.task.target,
        "run": row.run,
        "from_attempt": row.parent,
        "to_attempt": row.attempt,
        "fix_turn": row.fix_turn,
        "stage": row.stage,
        "outcome": row.outcome,
        "correct": scored.inputs.correct,
        "major_hacking": scored.inputs.major_hacking,
        "speedup": row.speedup,
        "prev_speedup": row.parent_speedup,
        "judge": judge_state(&row.score),
        "judge_model": row.judge_model,
        "judge_total": scored.inputs.judge_total,
        "rule_total": scored.inputs.rule_total,
        "reward": scored.reward,
        "reward_formula": scored.formula.as_str(),
        "group": row.group.id,
        "group_size": row.group.size,
        "advantage": row.group.advantage,
        "model": row.model,
        "scripted": row.scripted,
        "speedup_over_fastest": row.speedup_over_fastest,
        "prev_speedup_over_fastest": row.parent_speedup_over_fastest,
        "reasoning": row.reasoning,
        "input_tokens": row.tokens.input,
        "cached_input_tokens": row.tokens.cached_input,
        "output_tokens": row.tokens.output,
        "reasoning_tokens": row.tokens.reasoning,
        "before": row.before,
    })
}
