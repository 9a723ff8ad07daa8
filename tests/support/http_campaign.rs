//! A campaign of the built binary whose models are played by a server of this machine, and what it left behind.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::agents::{self, diagnosis};
use crate::binary::{expect_exit, json_lines, nightshift};
use crate::model_server::{INPUT_TOKENS, ModelServer, OUTPUT_TOKENS, Reply, Wire};

/// Endpoints that have replies. The one named `down` has none.
const ENDPOINTS: [&str; 4] = ["plans", "codes", "verifies", "judges"];
/// What the roles are called by which these endpoints are asked.
pub(crate) const ROLES: [&str; 4] = ["planner", "coder", "verifier", "judge"];
/// Prices that are configured, in dollars per million tokens.
const INPUT_USD: u64 = 3;
const OUTPUT_USD: u64 = 20;

/// What a campaign leaves behind.
pub(crate) struct FinishedCampaign {
    pub(crate) run: Value,
    pub(crate) server: ModelServer,
    pub(crate) data_dir: PathBuf,
    _folder: tempfile::TempDir,
}

/// Runs the small task with these replies of each role, and these further arguments.
pub(crate) fn run(wire: Wire, arguments: &[&str], replies: [Vec<Reply>; 4]) -> FinishedCampaign {
    let folder = tempfile::tempdir().unwrap();
    let task = agents::write_task(folder.path(), "gaussian");
    run_task(&task, wire, arguments, replies)
}

/// The same with another task.
pub(crate) fn run_task(task: &Path, wire: Wire, arguments: &[&str], replies: [Vec<Reply>; 4]) -> FinishedCampaign {
    let server = ModelServer::start(wire, ENDPOINTS.into_iter().zip(replies));
    let folder = tempfile::tempdir().unwrap();
    let data_dir = folder.path().join("data");
    let mut config = format!("prices = '{}'\n", folder.path().join("prices.toml").display());
    let mut prices = String::new();
    for endpoint in ENDPOINTS.into_iter().chain(["down"]) {
        let (kind, base_url) = (wire.kind(), server.base_url(endpoint));
        write!(config, "[models.{endpoint}]\nkind = \"{kind}\"\nbase_url = \"{base_url}\"\nretry_delay_ms = 1\n")
            .unwrap();
        write!(
            prices,
            "[[price]]\nmodel = \"{endpoint}/m\"\ninput_usd = {INPUT_USD}.0\noutput_usd = {OUTPUT_USD}.0\n\
             as_of = \"2026-01\"\n"
        )
        .unwrap();
    }
    // A role of the configuration, beside those of the command line.
    config += "[roles.judge]\nmodel = \"judges/m\"\ntemperature = 0.0\n";
    let config_file = folder.path().join("config.toml");
    std::fs::write(&config_file, config).unwrap();
    std::fs::write(folder.path().join("prices.toml"), prices).unwrap();
    let command = |arguments: &[&str]| {
        let mut command = nightshift(&data_dir);
        command.arg("--config").arg(&config_file).args(arguments);
        command
    };
    let models = ["--model", "verifies/m", "--planner-model", "plans/m", "--coder-model", "down/m,codes/m"];
    let mut running = command(&["run"]);
    running.arg(task).args(models).args(["--allow-unsandboxed", "--exit"]).args(arguments);
    expect_exit(&mut running, 0);
    let runs = json_lines(&expect_exit(&mut command(&["list", "runs", "--json"]), 0));
    let id = runs[0]["items"][0]["id"].as_str().expect("a run").to_owned();
    let run = json_lines(&expect_exit(&mut command(&["show", &id, "--json"]), 0)).remove(0);
    FinishedCampaign { run, server, data_dir, _folder: folder }
}

impl FinishedCampaign {
    pub(crate) fn attempts(&self) -> &Vec<Value> {
        self.run["view"]["attempts"].as_array().unwrap()
    }

    pub(crate) fn each<'a>(&'a self, pick: impl Fn(&'a Value) -> &'a Value) -> Vec<&'a str> {
        self.attempts().iter().map(|attempt| pick(attempt).as_str().unwrap_or("none")).collect()
    }

    pub(crate) fn stages(&self) -> Vec<&str> {
        self.each(|attempt| &attempt["stage"])
    }

    pub(crate) fn outcomes(&self) -> Vec<&str> {
        self.each(|attempt| &attempt["outcome"])
    }

    pub(crate) fn routes(&self) -> Vec<&str> {
        self.each(|attempt| &attempt["route"]["route"])
    }

    pub(crate) fn stopped(&self) -> &str {
        self.run["view"]["stop_reason"]["kind"].as_str().unwrap()
    }

    pub(crate) fn estimate(&self, number: usize) -> f64 {
        self.attempts()[number - 1]["measurement"]["speedup"]["estimate"].as_f64().unwrap()
    }

    /// The best attempt went up the whole ladder, and no faster one was right.
    pub(crate) fn assert_best_is_verified(&self) {
        assert_eq!(self.run["summary"]["status"], "completed");
        let number = self.run["view"]["best_attempt"].as_u64().expect("a best attempt");
        let best = &self.attempts()[usize::try_from(number).unwrap() - 1];
        for answer in ["compiled", "numerically_correct", "contract_compliant", "fast"] {
            assert_eq!(best["verdict"][answer], "pass", "{answer}: {:#}", best["verdict"]);
        }
        assert_eq!(best["outcome"], "correct_faster");
        assert!(best["measurement"].is_object() && best["confirmation"].is_object(), "confirmed in a fresh process");
        assert_eq!(self.run["summary"]["digest"]["best_attempt"], number);
        assert_eq!(self.run["summary"]["digest"]["best_confirmed"], true);
        for attempt in self.attempts().iter().filter(|attempt| !is_right(attempt)) {
            assert!(attempt["confirmation"].is_null(), "what is not right is never confirmed: {attempt:#}");
            assert_ne!(attempt["number"], number);
            assert_eq!(attempt["reward"]["reward"].as_f64(), Some(0.0), "and earns nothing");
        }
    }

    /// Calls of a role that began a conversation.
    fn first_turns(&self, role: &str) -> usize {
        let calls = self.attempts().iter().flat_map(|attempt| attempt["calls"].as_array().unwrap());
        calls.filter(|call| call["role"] == role && call["turn"] == 1).count()
    }

    /// Every reply was asked for, and each role paid for its own ones.
    pub(crate) fn assert_costs(&self, roles: &[&str]) {
        assert_eq!(self.server.left(), BTreeMap::new(), "replies that were not requested");
        let by_role: BTreeMap<&str, &Value> =
            self.run["cost"].as_array().unwrap().iter().map(|cost| (cost["role"].as_str().unwrap(), cost)).collect();
        assert_eq!(by_role.keys().copied().collect::<BTreeSet<_>>(), roles.iter().copied().collect());
        for (role, endpoint) in ROLES.into_iter().zip(ENDPOINTS).filter(|(role, _)| roles.contains(role)) {
            let cost = by_role[role];
            let calls = cost["calls"].as_u64().unwrap();
            assert_eq!(cost["models"][format!("{endpoint}/m")], calls, "{role}: {cost:#}");
            assert!(calls >= 1 && calls <= u64::try_from(self.server.asked(endpoint).len()).unwrap());
            assert_eq!((&cost["unpriced_calls"], &cost["uncounted_calls"]), (&Value::from(0), &Value::from(0)));
            assert_eq!(cost["input_tokens"], calls * INPUT_TOKENS);
            assert_eq!(cost["output_tokens"], calls * OUTPUT_TOKENS);
            let price = calls * (INPUT_TOKENS * INPUT_USD + OUTPUT_TOKENS * OUTPUT_USD);
            assert_eq!(cost["price_microusd"], price, "{role}: {cost:#}");
            // Only the Coder has a model before the one that answers; a repair turn goes to who answered.
            let fallback_calls = if role == "coder" { self.first_turns(role) } else { 0 };
            assert_eq!(cost["fallback_calls"], fallback_calls, "{role}");
        }
        assert!(!self.server.asked("down").is_empty());
    }
}

fn is_right(attempt: &Value) -> bool {
    attempt["outcome"].as_str().is_some_and(|outcome| outcome.starts_with("correct"))
}

/// A diagnosis that rests on what was measured.
pub(crate) fn honest(route: &str, modification: &str) -> Reply {
    diagnosis(route, modification, "speedup").into()
}
