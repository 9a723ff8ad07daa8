//! Every command in the documentation is run by a test: here in an empty folder, without a network and a GPU, or by the
//! test that [`ELSEWHERE`] names. `src/args/documented.rs` checks that the program understands all of them.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test stops at the first thing that is not as it should be"
)]

#[path = "support/binary.rs"]
mod binary;
#[path = "support/documented.rs"]
mod documented;

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use binary::{expect_exit, json_lines, nightshift};
use documented::{Documented, commands, fenced, pages, root, text, words};

/// The page whose commands leave the run that other pages show.
const FIRST: &str = "docs/tutorials/first-campaign.md";
/// Maximum time of one command.
const LIMIT: Duration = Duration::from_mins(5);

/// Commands that cannot run here.
struct Elsewhere {
    /// What they need.
    reason: &'static str,
    /// The test that runs such commands with what they need.
    test: &'static str,
    /// The commands, without comments.
    lines: &'static [&'static str],
}

const ELSEWHERE: [Elsewhere; 17] = [
    Elsewhere {
        reason: "a key of a provider, or a local server of models",
        test: "tests/campaign.rs",
        lines: &[
            "nightshift run TASK --model PROVIDER/NAME --no-notes",
            "nightshift run TASK... --model PROVIDER/NAME",
            "nightshift run TASK... --strategy agent --model openai/MODEL --coder-model external",
            "nightshift run TASK... --model PROVIDER/NAME --strategy group --candidates 8 --groups 4 --no-lessons",
            "nightshift run TASK... --model openai/SMALL --coder-model anthropic/LARGE,openai/LARGE --judge-model vllm/LOCAL",
            "nightshift run examples/row_softmax --model openai/MODEL_NAME",
            "nightshift run examples/row_softmax --model openai/NAME --record session",
            "nightshift run matmul_bias_relu --model openai/MODEL_NAME --max-attempts 6",
            "nightshift run my_task --model PROVIDER/NAME",
            "nightshift run row_softmax --model PROVIDER/NAME --max-variants 16",
            "nightshift run tasks/kb-l1-40-layernorm --model PROVIDER/NAME",
        ],
    },
    Elsewhere {
        reason: "a key of a provider, or a coding agent of this machine",
        test: "tests/cli_optimize.rs",
        lines: &[
            "nightshift optimize model.py --agent claude",
            "nightshift optimize model.py --model openai/MODEL_NAME --max-cost 5",
            "nightshift optimize row_softmax --agent claude",
        ],
    },
    Elsewhere {
        reason: "a coding agent of this machine",
        test: "tests/coding_agents.rs",
        lines: &["nightshift agent claude", "nightshift optimize model.py --agent claude --strategy agent"],
    },
    Elsewhere {
        reason: "a GPU with its toolkit",
        test: "worker/tests/cuda_examples.rs",
        lines: &[
            "nightshift demo --target cuda --exit",
            "nightshift verify cuda_row_softmax softmax.cu --profile",
            "nightshift verify tasks/attention a.cu b.cu --json",
        ],
    },
    Elsewhere {
        reason: "PyTorch, and a GPU for baselines",
        test: "worker/tests/torch.rs",
        lines: &[
            "nightshift verify model.py --baselines",
            "nightshift verify model.py model_new.py --json",
            "nightshift verify model.py model_optimized.py",
        ],
    },
    Elsewhere {
        reason: "PyTorch, and a copy of KernelBench",
        test: "tests/cli_tasks.rs",
        lines: &[
            "nightshift import kernelbench KernelBench --level 1 --form torch --out tasks",
            "nightshift import kernelbench KernelBench --task 4/16 --hf-home ~/.cache/huggingface --out tasks",
            "nightshift import kernelbench https://github.com/ScalingIntelligence/KernelBench --level 1 --level 2 --out tasks",
            "nightshift import kernelbench my_model.py --target cpu --form torch --out tasks",
        ],
    },
    Elsewhere {
        reason: "results of others, in the layout of KernelBench",
        test: "tests/cli_kernelbench.rs",
        lines: &[
            "nightshift export kernelbench CAMPAIGN --beside theirs",
            "nightshift import kernelbench-results runs/THEIRS --baseline baseline_time_torch.json --tasks tasks --out theirs",
            "nightshift run theirs/* --model scripted",
        ],
    },
    Elsewhere { reason: "two minutes, and a signal to end", test: "tests/demo.rs", lines: &["nightshift demo"] },
    Elsewhere { reason: "a signal to end", test: "tests/cli_surroundings.rs", lines: &["nightshift serve"] },
    Elsewhere {
        reason: "a signal to end, and calls of a trainer",
        test: "tests/cli_rewards.rs",
        lines: &["nightshift reward serve TASK... --bind 127.0.0.1:7780"],
    },
    Elsewhere {
        reason: "a server elsewhere",
        test: "tests/cli_fleet.rs",
        lines: &[
            "nightshift work --server http://nightshift.example:7777",
            "nightshift work --server http://nightshift.example:7777 --devices 0,2",
            "nightshift work --server http://nightshift.example:7777 --devices GPU-8f2c,MIG-41ab",
            "nightshift work --server http://nightshift.example:7777 --gpu-contexts 6",
        ],
    },
    Elsewhere { reason: "a GPU in quarantine", test: "tests/cli_control.rs", lines: &["nightshift release GPU-8f2c"] },
    Elsewhere {
        reason: "an outside agent that answers",
        test: "tests/cli_requests.rs",
        lines: &[
            "nightshift requests answer ID --lease LEASE --file answer.md",
            "nightshift requests next --wait 60",
            "nightshift requests release ID --lease LEASE",
            "nightshift requests serve asked/ --of CAMPAIGN",
            "nightshift run row_softmax --model external",
        ],
    },
    Elsewhere {
        reason: "an outside agent that drives a session",
        test: "tests/agent_session.rs",
        lines: &["nightshift run row_softmax --strategy agent --model external --max-attempts 4 --max-turns 60"],
    },
    Elsewhere {
        reason: "a campaign that is not over, and a second machine",
        test: "tests/cli_handover.rs",
        lines: &[
            "nightshift handover create CAMPAIGN --out night.out",
            "nightshift handover finish night.back",
            "nightshift handover run night.out --out night.back --for 25m",
        ],
    },
    Elsewhere {
        reason: "a download of hundreds of megabytes",
        test: "tests/cli_surroundings.rs",
        lines: &["nightshift doctor --install-nvcc", "nightshift doctor --install-nvcc --with-cublas"],
    },
    Elsewhere { reason: "standard input that stays open", test: "tests/mcp_stdio.rs", lines: &["nightshift mcp"] },
];

/// Commands that end with other codes than 0 here, and why.
const CODES: [(&str, &[i32], &str); 5] = [
    ("nightshift requests next --json", &[4], "no request is open"),
    ("nightshift show c0ffee --json", &[3], "there is no such run"),
    ("nightshift verify my_task my_task/reference.cpp", &[0, 10], "a reference is as fast as itself"),
    ("nightshift verify row_softmax my_softmax.cpp", &[0, 10], "the speedup depends on the machine"),
    ("nightshift verify row_softmax softmax/candidate.cpp", &[0, 10], "the speedup depends on the machine"),
];

/// The folder of a reader, who follows the pages from its top.
struct Reader {
    folder: tempfile::TempDir,
}

impl Reader {
    /// Makes the folder, with the files that pages ask readers to write.
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let examples = root().join("examples");
        let reply =
            std::fs::read_to_string(examples.join("row_softmax/replies/subtask1.attempt1.write_code.md")).unwrap();
        std::fs::write(folder.path().join("my_softmax.cpp"), &fenced(&reply, "cpp")[0]).unwrap();
        let task = folder.path().join("my_task");
        std::fs::create_dir(&task).unwrap();
        std::fs::write(task.join("task.toml"), &fenced(&text("docs/reference/task-toml.md"), "toml")[0]).unwrap();
        std::fs::write(task.join("reference.cpp"), &fenced(&text("docs/how-to/own-task.md"), "cpp")[0]).unwrap();
        let copy = folder.path().join("my_copy_of_row_softmax");
        std::fs::create_dir_all(copy.join("replies")).unwrap();
        for part in ["", "replies"] {
            for entry in std::fs::read_dir(examples.join("row_softmax").join(part)).unwrap() {
                let path = entry.unwrap().path();
                if path.is_file() {
                    std::fs::copy(&path, copy.join(part).join(path.file_name().unwrap())).unwrap();
                }
            }
        }
        Self { folder }
    }

    /// Returns the data folder.
    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Returns the arguments with the ids of what there is in place of RUN, CAMPAIGN and ids in the examples.
    fn filled_in(&self, args: &[String]) -> Vec<String> {
        const IDS: [(&str, &str); 3] = [("RUN", "runs"), ("CAMPAIGN", "campaigns"), ("3f9c2a10", "campaigns")];
        let newest = |noun: &str| {
            let page = json_lines(&expect_exit(nightshift(&self.data()).args(["list", noun, "--json"]), 0));
            page[0]["items"][0]["id"].as_str().unwrap_or_else(|| panic!("there are {noun}")).to_owned()
        };
        let fill = |arg: &String| {
            let (name, rest) = arg.split_once('/').map_or((arg.as_str(), None), |(name, rest)| (name, Some(rest)));
            let Some((_, noun)) = IDS.into_iter().find(|(id, _)| *id == name) else { return arg.clone() };
            rest.map_or_else(|| newest(noun), |rest| format!("{}/{rest}", newest(noun)))
        };
        args.iter().map(fill).collect()
    }

    /// Runs a command of a page. Returns what is wrong with how it ended.
    fn run(&self, command: &Documented) -> Option<String> {
        let line = command.line();
        let codes = CODES.iter().find(|(known, ..)| *known == line).map_or(&[0][..], |(_, codes, _)| codes);
        let printed = self.folder.path().join("printed");
        let file = File::create(&printed).unwrap();
        let mut started = nightshift(&self.data());
        started.args(self.filled_in(&command.args)).current_dir(self.folder.path()).env("HOME", self.folder.path());
        if command.args[0] == "verify" {
            started.arg("--allow-unsandboxed");
        }
        let mut child = started.stdout(file.try_clone().unwrap()).stderr(file).spawn().unwrap();
        let begun = Instant::now();
        let code = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status.code();
            }
            if begun.elapsed() > LIMIT {
                child.kill().unwrap();
                child.wait().unwrap();
                break None;
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        if code.is_some_and(|code| codes.contains(&code)) {
            return None;
        }
        let printed = String::from_utf8_lossy(&std::fs::read(&printed).unwrap()).into_owned();
        Some(format!("{}: `{line}` ended with {code:?} and not with one of {codes:?}:\n{printed}", command.page))
    }
}

/// Returns whether the command is run by another test.
fn is_elsewhere(line: &str) -> bool {
    ELSEWHERE.iter().any(|group| group.lines.contains(&line))
}

#[test]
fn commands_of_the_pages_run_in_an_empty_folder() {
    let mut here = commands();
    here.retain(|command| !is_elsewhere(&command.line()));
    here.sort_by_key(|command| command.page != FIRST);
    let mut seen = BTreeSet::new();
    here.retain(|command| seen.insert(command.line()));
    assert!(here.len() > 20, "commands run here: {}", here.len());
    let reader = Reader::new();
    let wrong: Vec<String> = here.iter().filter_map(|command| reader.run(command)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn exceptions_are_of_commands_that_pages_have_and_name_a_test() {
    let lines: BTreeSet<String> = commands().iter().map(Documented::line).collect();
    for group in &ELSEWHERE {
        let test = std::fs::read_to_string(root().join(group.test)).expect(group.test);
        for line in group.lines {
            let command = line.split(' ').nth(1).unwrap();
            let runs = test.contains(&format!("\"{command}\"")) || !group.test.starts_with("tests/");
            assert!(runs, "{} does not run `{command}`", group.test);
            assert!(lines.contains(*line), "no page has `{line}` any more, which needs {}", group.reason);
        }
    }
    for (line, _, reason) in CODES {
        assert!(lines.contains(line) && !is_elsewhere(line), "no page has `{line}` any more: {reason}");
    }
}

#[test]
fn the_other_commands_of_the_pages_name_what_exists() {
    const PROGRAMS: [&str; 10] =
        ["claude", "cp", "curl", "echo", "export", "pip", "sqlite3", "sudo", "systemd-run", "uvx"];
    let mut wrong = Vec::new();
    for page in pages() {
        for line in fenced(&text(&page), "sh").iter().flat_map(|block| documented::joined(block)) {
            let words: Vec<String> =
                words(&line).into_iter().skip_while(|word| word.starts_with("NIGHTSHIFT_")).collect();
            let Some(program) = words.first() else { continue };
            let exists = match program.as_str() {
                "cargo" => cargo_names_exist(&words),
                "nightshift" | "./target/release/nightshift" | "target/release/nightshift-chaos" => true,
                name if PROGRAMS.contains(&name) => true,
                path => root().join(path).is_file(),
            };
            if !exists {
                wrong.push(format!("{page}: {line}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Returns whether there are the packages and tests that a command of cargo names.
fn cargo_names_exist(words: &[String]) -> bool {
    let after = |flag: &str| words.iter().position(|word| word == flag).and_then(|at| words.get(at + 1));
    let folder = match after("-p") {
        None => Some(root().to_owned()),
        Some(package) => package_folder(package),
    };
    let Some(folder) = folder else { return false };
    after("--test").is_none_or(|test| {
        folder.join("tests").join(test).with_extension("rs").is_file() || folder.join("tests").join(test).is_dir()
    })
}

/// Returns the folder of a package of the workspace.
fn package_folder(package: &str) -> Option<PathBuf> {
    let manifest = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let members = manifest.lines().find(|line| line.starts_with("members")).unwrap();
    let folders = members.split('"').skip(1).step_by(2).map(|member| root().join(member));
    let named = |folder: &Path| {
        let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        manifest.contains(&format!("name = \"{package}\""))
    };
    folders.into_iter().find(|folder| named(folder))
}
