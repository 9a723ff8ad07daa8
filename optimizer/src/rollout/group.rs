//! Rows of the same prompt, and how each compares with the others.

use std::collections::BTreeMap;

use super::Rollout;

/// Rewards that lie no farther apart are equal.
const EPSILON: f64 = 1e-6;
/// Characters of a group's name.
const NAME_CHARS: usize = 16;

/// Where a row stands among those of the same prompt.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Place {
    /// Name of the group: a hash of the prompt.
    pub id: String,
    /// Rows in it.
    pub size: u32,
    /// Reward minus the group's mean, over its standard deviation; none in a group of one.
    pub advantage: Option<f64>,
}

/// Gives each row its place.
pub fn assign(rows: &mut [Rollout]) {
    let mut groups: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (index, row) in rows.iter().enumerate() {
        groups.entry(name(row)).or_default().push(index);
    }
    for (id, members) in groups {
        let rewards: Vec<f64> = members.iter().map(|index| rows[*index].score.scored.reward).collect();
        let advantages = advantages(&rewards);
        for (place, index) in members.iter().enumerate() {
            rows[*index].group = Place {
                id: id.clone(),
                size: u32::try_from(members.len()).unwrap_or(u32::MAX),
                advantage: advantages.as_ref().and_then(|all| all.get(place).copied()),
            };
        }
    }
}

/// The task is part of it: equal prompts of two tasks would be an accident.
fn name(row: &Rollout) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(row.task.fingerprint.as_bytes());
    for message in &row.prompt {
        for part in [message.role, message.content.as_str()] {
            hasher.update(&u64::try_from(part.len()).unwrap_or(u64::MAX).to_le_bytes());
            hasher.update(part.as_bytes());
        }
    }
    hasher.finalize().to_hex()[..NAME_CHARS].to_owned()
}

/// Normalised advantages: each reward minus the mean, over the standard deviation of a sample (of `n - 1`). None for fewer
/// than two rewards. Exactly zero when the rewards are equal but for rounding: such a group teaches nothing, and its noise
/// must not be blown up.
#[must_use]
pub fn advantages(rewards: &[f64]) -> Option<Vec<f64>> {
    if rewards.len() < 2 || rewards.iter().any(|reward| !reward.is_finite()) {
        return None;
    }
    let (least, most) =
        rewards.iter().fold((f64::MAX, f64::MIN), |(low, high), reward| (low.min(*reward), high.max(*reward)));
    if most - least <= EPSILON {
        return Some(vec![0.0; rewards.len()]);
    }
    let count = f64::from(u32::try_from(rewards.len()).unwrap_or(u32::MAX));
    let mean = rewards.iter().sum::<f64>() / count;
    let variance = rewards.iter().map(|reward| (reward - mean).powi(2)).sum::<f64>() / (count - 1.0);
    let deviation = variance.sqrt();
    Some(rewards.iter().map(|reward| (reward - mean) / deviation).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advantages_have_no_mean_and_the_best_has_the_largest() {
        let found = advantages(&[0.0, 1.0, 2.0]).unwrap_or_default();
        assert!((found.iter().sum::<f64>()).abs() < 1e-9);
        assert!((found[2] - 1.0).abs() < 1e-12 && found[0] < found[1], "{found:?}");
    }

    #[test]
    fn equal_rewards_give_no_advantage_and_one_reward_gives_none_at_all() {
        assert_eq!(advantages(&[1.5, 1.5, 1.5]), Some(vec![0.0; 3]));
        assert_eq!(advantages(&[0.1, 0.1 + 1e-12, 0.1]), Some(vec![0.0; 3]), "rounding is no difference");
        assert_eq!(advantages(&[1.5]), None);
        assert_eq!(advantages(&[]), None);
        assert_eq!(advantages(&[1.0, f64::NAN]), None, "one broken reward must not poison its group in silence");
    }
}
