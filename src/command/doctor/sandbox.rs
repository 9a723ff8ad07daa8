//! The sandbox: one check for the result, and one for each means.

use std::path::Path;

use nightshift_protocol::machine::{SandboxMeans, SandboxReport};
use nightshift_worker::execute::probe_sandbox;

use super::Check;
use crate::compose;

/// How the names of the probe's attempts to break out begin.
const ATTEMPT: &str = "probe_";

/// How the names of means begin that a compiler's jail has and a tool's lacks.
const OF_TOOL: &str = "tool_";

/// Probes the sandbox of a worker. Blocks, and starts processes.
pub(super) fn checks(executable: &Path, scratch: &Path) -> Vec<Check> {
    match probe_sandbox(executable, scratch) {
        Ok(report) => describe(&report),
        Err(error) => vec![Check::problem(
            "sandbox",
            compose::describe(&error),
            "no program can be started in a sandbox: check that the binary is complete, and that worker.cache_dir can be \
             written",
        )],
    }
}

fn describe(report: &SandboxReport) -> Vec<Check> {
    let (attempts, means): (Vec<&SandboxMeans>, Vec<&SandboxMeans>) =
        report.means.iter().partition(|means| means.name.starts_with(ATTEMPT));
    let mut checks = vec![match report.insufficiency() {
        None => Check::ok("sandbox", "programs reach neither files of the machine nor the network"),
        Some(missing) => Check::warning(
            "sandbox",
            missing,
            "code of a live model is refused here: see the means below, or accept the risk with --allow-unsandboxed",
        ),
    }];
    checks.extend(means.iter().map(|means| check(means)));
    checks.push(attempts_check(&attempts));
    checks
}

fn check(means: &SandboxMeans) -> Check {
    let name = format!("- {}", means.name);
    if means.in_force {
        Check::ok(&name, means.detail.clone())
    } else {
        Check::warning(&name, format!("not in force: {}", means.detail), advice(&means.name))
    }
}

fn attempts_check(attempts: &[&SandboxMeans]) -> Check {
    let what = |means: &&SandboxMeans| means.name.trim_start_matches(ATTEMPT).replace('_', " ");
    let names = |in_force: bool| -> Vec<String> {
        attempts.iter().copied().filter(|means| means.in_force == in_force).map(|means| what(&means)).collect()
    };
    let (refused, succeeded) = (names(true).join(", "), names(false).join(", "));
    if succeeded.is_empty() {
        Check::ok("- attempts", format!("refused: {refused}"))
    } else {
        Check::warning(
            "- attempts",
            format!("succeeded: {succeeded}; refused: {refused}"),
            "the probe broke out in these ways: the means above that are not in force would prevent it",
        )
    }
}

/// Returns what an operator can do about a means that is not in force.
fn advice(name: &str) -> &'static str {
    match name.trim_start_matches(OF_TOOL) {
        "user_namespace" => {
            "allow unprivileged user namespaces: sysctl kernel.unprivileged_userns_clone=1, \
             kernel.apparmor_restrict_unprivileged_userns=0, and user.max_user_namespaces above 0; or a container that \
             permits them"
        }
        "pid_namespace" | "network_namespace" | "ipc_namespace" => {
            "the user namespace exists, but this one is refused: raise the limits in /proc/sys/user"
        }
        "mount_namespace" | "proc" => {
            "a private root needs user namespaces and a /proc that is not covered: in a container, leave /proc unmasked \
             (Docker: --security-opt systempaths=unconfined)"
        }
        "landlock" => {
            "use a kernel of version 6.2 or later with Landlock in its list of security modules (boot option lsm=)"
        }
        "seccomp" => "use a kernel with CONFIG_SECCOMP_FILTER",
        "unprivileged_user" => {
            "start the worker as an ordinary user, or as root with CAP_SETUID, CAP_SETGID, CAP_CHOWN, CAP_DAC_OVERRIDE and \
             CAP_KILL"
        }
        "cgroup" => {
            "run the worker in a cgroup of version 2 of its own that it may write to: as a systemd service with \
             Delegate=yes, or with systemd-run --user --scope -p Delegate=yes"
        }
        "signals" => "allow user namespaces, or use a kernel of version 6.12 or later with Landlock",
        "freeze" => "programs that are not timed cannot be stopped: see the reason",
        _ => "docs/reference/sandbox.md explains this means",
    }
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    fn means(name: &str, in_force: bool) -> SandboxMeans {
        SandboxMeans { name: name.to_owned(), in_force, detail: "the detail".to_owned() }
    }

    #[test]
    fn each_means_has_a_row_and_a_missing_one_has_advice() {
        let report = SandboxReport {
            means: vec![means("landlock", true), means("tool_proc", false), means("probe_connect", true)],
            isolates_files: true,
            isolates_network: true,
        };
        let checks = describe(&report);
        let rows: Vec<(&str, State)> = checks.iter().map(|check| (check.name.as_str(), check.state)).collect();
        let expected = [
            ("sandbox", State::Ok),
            ("- landlock", State::Ok),
            ("- tool_proc", State::Warning),
            ("- attempts", State::Ok),
        ];
        assert_eq!(rows, expected);
        assert!(checks[2].advice.as_deref().is_some_and(|advice| advice.contains("systempaths")));
        assert_eq!(checks[3].found, "refused: connect");
    }

    #[test]
    fn programs_of_root_are_a_warning_that_says_what_to_do() {
        let report = SandboxReport {
            means: vec![means("unprivileged_user", false), means("probe_root_outside", false)],
            isolates_files: true,
            isolates_network: true,
        };
        let checks = describe(&report);
        assert_eq!(checks[0].state, State::Warning);
        assert!(checks[0].found.contains("as an ordinary user"), "{}", checks[0].found);
        assert!(checks[1].advice.as_deref().is_some_and(|advice| advice.contains("CAP_SETUID")));
        assert!(checks[2].found.starts_with("succeeded: root outside"));
    }

    #[test]
    fn every_means_of_the_sandbox_has_advice_of_its_own() {
        for name in
            ["user_namespace", "mount_namespace", "landlock", "seccomp", "cgroup", "signals", "unprivileged_user"]
        {
            assert_ne!(advice(name), advice("something else"), "{name}");
        }
    }
}
