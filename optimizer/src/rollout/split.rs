//! Which tasks are for training, and which are never trained on.
//!
//! The split of a task follows from what it computes and a salt, so that it stays the same whatever else is exported.
//! Tasks that share a name or a reference are one family; a family goes where its most held-out member goes, so that a new
//! variant can only take others out of training, never a held-out task into it.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::TaskName;

/// A split, from the least to the most held out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Split {
    /// For training.
    Train,
    /// For choosing between models.
    Validation,
    /// For the last word.
    Test,
}

impl Split {
    /// Every split.
    pub const ALL: [Self; 3] = [Self::Train, Self::Validation, Self::Test];

    /// The printed name, and that of its files.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Validation => "validation",
            Self::Test => "test",
        }
    }
}

/// How tasks are split.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SplitRule {
    /// Changes which tasks go where.
    pub salt: String,
    /// Share of the tasks for validation, 0 to 1.
    pub validation_share: f64,
    /// Share of the tasks for testing, 0 to 1.
    pub test_share: f64,
    /// Names of tasks that are for testing in any case.
    pub held_out: BTreeSet<String>,
}

/// The split of each task.
#[must_use]
pub fn assign(names: &[TaskName], rule: &SplitRule) -> BTreeMap<TaskName, Split> {
    let unique: BTreeSet<&TaskName> = names.iter().collect();
    let mut splits: BTreeMap<TaskName, Split> =
        unique.into_iter().map(|name| (name.clone(), of_one(name, rule))).collect();
    // A family is closed under both relations: repeat until nothing moves. Each round moves a task up or ends it.
    loop {
        let mut by_name: BTreeMap<String, Split> = BTreeMap::new();
        let mut by_fingerprint: BTreeMap<String, Split> = BTreeMap::new();
        for (task, split) in &splits {
            for (map, key) in [(&mut by_name, &task.name), (&mut by_fingerprint, &task.fingerprint)] {
                let most = map.entry(key.clone()).or_insert(*split);
                *most = (*most).max(*split);
            }
        }
        let mut moved = false;
        for (task, split) in &mut splits {
            let most = [by_name.get(&task.name), by_fingerprint.get(&task.fingerprint)];
            let most = most.into_iter().flatten().copied().max().unwrap_or(*split);
            moved |= most > *split;
            *split = most;
        }
        if !moved {
            return splits;
        }
    }
}

fn of_one(name: &TaskName, rule: &SplitRule) -> Split {
    if rule.held_out.contains(&name.name) {
        return Split::Test;
    }
    let hash = blake3::hash(format!("{}\n{}", rule.salt, name.fingerprint).as_bytes());
    let mut first = [0; 4];
    first.copy_from_slice(&hash.as_bytes()[..4]);
    let place = f64::from(u32::from_le_bytes(first)) / (f64::from(u32::MAX) + 1.0);
    if place < rule.test_share {
        Split::Test
    } else if place < rule.test_share + rule.validation_share {
        Split::Validation
    } else {
        Split::Train
    }
}

#[cfg(test)]
mod tests {
    use nightshift_protocol::artifact::ArtifactHash;

    use super::*;

    fn task(name: &str, fingerprint: &str) -> TaskName {
        TaskName {
            name: name.to_owned(),
            bundle: ArtifactHash::of(format!("{name}{fingerprint}").as_bytes()),
            fingerprint: fingerprint.to_owned(),
            target: "cpu",
        }
    }

    fn thirds() -> SplitRule {
        SplitRule { validation_share: 1.0 / 3.0, test_share: 1.0 / 3.0, ..SplitRule::default() }
    }

    #[test]
    fn a_task_stays_in_its_split_whatever_else_is_exported() {
        let many: Vec<TaskName> = (0..300).map(|n| task(&format!("t{n}"), &format!("f{n}"))).collect();
        let all = assign(&many, &thirds());
        for one in &many {
            assert_eq!(assign(std::slice::from_ref(one), &thirds())[one], all[one]);
        }
        for split in Split::ALL {
            let count = all.values().filter(|other| **other == split).count();
            assert!((60..=140).contains(&count), "{split:?}: {count}");
        }
        let salted = assign(&many, &SplitRule { salt: "x".to_owned(), ..thirds() });
        assert!(many.iter().any(|name| salted[name] != all[name]));
    }

    #[test]
    fn a_family_goes_where_its_most_held_out_member_goes() {
        let family = [task("a", "1"), task("b", "1"), task("b", "2"), task("c", "2"), task("d", "3")];
        let rule = SplitRule { held_out: BTreeSet::from(["a".to_owned()]), ..SplitRule::default() };
        let splits = assign(&family, &rule);
        for name in &family[..4] {
            assert_eq!(splits[name], Split::Test, "{}", name.name);
        }
        assert_eq!(splits[&family[4]], Split::Train);
    }
}
