//! The scripts of the CUDA examples: they need a GPU to be run, but not to be followed.

use std::path::Path;

use nightshift_optimizer::reply::extract_json;
use nightshift_optimizer::task_file::{LoadedTask, load_folder};
use nightshift_protocol::attempt::{Diagnosis, Route};
use nightshift_protocol::plan::Plan;
use nightshift_protocol::step::StepInput;

use super::facts;
use super::script::{Script, Try, advised, crash};
use super::simulator::{self, Failure};

/// What an attempt is written to be.
#[derive(Clone, Copy)]
enum Meant {
    Right,
    Wrong,
    NotCompiling,
    Crashing,
    Cheating,
}
use Meant::{Cheating, Crashing, NotCompiling, Right, Wrong};

/// What the attempts of each example are meant to be, and how its run ends.
const MEANT: [(&str, [Meant; 4], &str); 6] = [
    ("cuda_row_softmax", [Right, Wrong, Right, Right], "verifier_stopped"),
    ("cuda_layernorm_gelu", [NotCompiling, Right, Crashing, Right], "verifier_stopped"),
    ("cuda_gemm_bias_relu", [Wrong, Right, Right, Right], "verifier_stopped"),
    ("cuda_sum_reduction", [Wrong, NotCompiling, Right, Right], "verifier_stopped"),
    ("cuda_attention", [Right, Wrong, Right, Right], "verifier_stopped"),
    // Weights that are not prepared anew look like weights that are ignored.
    ("cuda_transformer_mlp", [Right, Right, Cheating, Right], "plan_done"),
];

/// How fast the right attempts may turn out to be, one after the other.
const SPEEDUPS: [[f64; 3]; 4] = [[0.2, 1.0, 9.0], [9.0, 1.0, 0.2], [1.0, 1.0, 1.0], [1.5, 0.5, 1.6]];

fn load(name: &str) -> Result<LoadedTask, Failure> {
    Ok(load_folder(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples").join(name))?)
}

/// The reply of a call.
fn reply<'t>(task: &'t LoadedTask, key: &str) -> Result<&'t str, Failure> {
    let replies = task.replies.as_ref().ok_or("no replies")?;
    let name = key.replace('/', ".");
    Ok(replies.get(&name).ok_or_else(|| format!("{} has no reply {name}", task.bundle.spec.name))?)
}

/// The advice of the diagnosis of an attempt, in whatever subtask it stands.
fn advice(task: &LoadedTask, number: usize) -> Result<Option<Route>, Failure> {
    let ending = format!("attempt{number}.diagnose");
    let found = task.replies.iter().flatten().find(|(name, _)| name.ends_with(&ending));
    Ok(found.map(|(_, text)| extract_json::<Diagnosis>(text)).transpose()?.map(|diagnosis| diagnosis.route))
}

fn tries(task: &LoadedTask, meant: &[Meant], speedups: [f64; 3]) -> Result<Vec<Try>, Failure> {
    let mut speedups = speedups.into_iter();
    (1..)
        .zip(meant)
        .map(|(number, meant)| {
            Ok(match meant {
                Right => {
                    advised(speedups.next().ok_or("more are right than there are speedups")?, advice(task, number)?)
                }
                Wrong => Try::Wrong,
                NotCompiling => Try::CompileError,
                Crashing => Try::Ends(crash()),
                Cheating => Try::Forbidden,
            })
        })
        .collect()
}

#[test]
fn a_script_for_a_gpu_has_every_reply_however_fast_its_programs_turn_out() -> Result<(), Failure> {
    for (name, meant, ends) in MEANT {
        let task = load(name)?;
        let plan: Plan = extract_json(reply(&task, "plan")?)?;
        let targets: Vec<Option<f64>> = plan.subtasks.iter().map(|subtask| subtask.target_speedup).collect();
        for speedups in SPEEDUPS {
            let script = Script { plans: vec![targets.clone()], tries: tries(&task, &meant, speedups)? };
            let input = facts::cuda_run_input(task.bundle.spec.goal.clone());
            let finished = simulator::run(&input, |key, step| {
                if matches!(step, StepInput::Plan { .. } | StepInput::WriteCode { .. } | StepInput::Diagnose { .. }) {
                    reply(&task, key)?;
                }
                script.answer(key, step)
            })?;
            assert_eq!(finished.view.attempts.len(), meant.len(), "{name}: {:?}", finished.keys());
            assert_eq!(finished.stopped(), ends, "{name}: {:?}", finished.routes());
        }
    }
    Ok(())
}
