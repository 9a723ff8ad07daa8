//! The process that restricts itself and then becomes the program.

use std::os::unix::process::CommandExt;

use nightshift_protocol::machine::{SandboxMeans, SandboxReport, UNPRIVILEGED_USER};
use rustix::process::{DumpableBehavior, Signal, getppid, set_dumpable_behavior, set_parent_process_death_signal};

use super::context::Init;
use super::{has_loopback, refuse};
use crate::break_out::try_to_break_out;
use crate::cores::stay_on;
use crate::isolation::landlock_rules::{self, LandlockScope, Surroundings};
use crate::isolation::namespaces::enter_user_namespace;
use crate::isolation::private_root::SHORT_SCRATCH;
use crate::isolation::system_calls::{self, FilterScope, ProgramKind};
use crate::isolation::{privileges, resource_limits, visible_paths};
use crate::plan::{ControlMessage, HostedKind, SandboxChoice, Work};
use crate::report::{in_force, not_in_force};
use crate::user::{ProgramUser, become_user};
use crate::wire::{WireError, send};

/// The program before it starts.
pub(super) struct Program {
    context: Init,
    means: Vec<SandboxMeans>,
}

impl Program {
    pub(super) fn new(mut context: Init) -> Self {
        let means = std::mem::take(&mut context.means);
        Self { context, means }
    }

    /// Restricts this process and becomes the program. Returns the exit status, unless another program replaced this one.
    pub(super) fn run(mut self) -> i32 {
        match self.restrict() {
            Ok(()) => self.become_program(),
            Err(message) => refuse(&self.context.control, &message),
        }
    }

    /// Restricts this process for good. The order matters: each step needs what the next one takes away.
    fn restrict(&mut self) -> Result<(), String> {
        restore_default_signals();
        let in_cgroup = self.join_cgroup();
        self.become_unprivileged()?;
        let folder = self.context.launch.plan.scratch.clone().unwrap_or_else(|| "/".into());
        std::env::set_current_dir(&folder).map_err(|error| format!("entering {}: {error}", folder.display()))?;
        let plan = &self.context.launch.plan;
        if let Work::Hosted(hosted) = &plan.work
            && let Some(core) = hosted.core
        {
            stay_on(core);
        }
        resource_limits::apply(plan, self.context.base_bytes, self.context.namespaces.user, &mut self.means)?;
        privileges::drop_all(&mut self.means)?;
        let landlock = self.restrict_by_landlock()?;
        let filter = self.filter_system_calls(landlock);
        self.report_signals(landlock, filter);
        self.report_proc(landlock);
        self.report_device();
        let report = SandboxReport {
            means: std::mem::take(&mut self.means),
            isolates_files: landlock.files || self.context.namespaces.mount,
            isolates_network: filter.network || self.context.namespaces.network,
        };
        send(&self.context.control, &ControlMessage::Ready { report, in_cgroup }, &[])
            .map_err(|error: WireError| error.to_string())
    }

    /// Moves this process into the cgroup of the jail. Returns whether that worked.
    fn join_cgroup(&mut self) -> bool {
        let joined = self.context.cgroup_procs.take().map(|procs| {
            let procs = procs?;
            rustix::io::write(&procs, b"0").map(drop).map_err(|error| format!("joining the cgroup: {error}"))
        });
        match joined {
            Some(Err(reason)) => {
                self.means.push(not_in_force("cgroup", &reason));
                false
            }
            joined => {
                self.means.push(self.context.launch.cgroup_means.clone());
                joined.is_some()
            }
        }
    }

    /// Becomes the unprivileged user, where the worker is root, and has the kernel kill this process when init dies.
    fn become_unprivileged(&mut self) -> Result<(), String> {
        let parent = getppid();
        let is_restricted = self.context.launch.plan.means != SandboxChoice::None;
        let mapped = self.context.launch.user.mapped().filter(|_| is_restricted);
        if let Some(user) = mapped {
            // The supervisor may have changed the user already.
            if rustix::process::geteuid().as_raw() != user.uid {
                become_user(user)?;
            }
            if let (true, Some(procfs)) = (self.context.namespaces.by_root, &self.context.procfs) {
                self.context.namespaces.user = enter_user_namespace(procfs, &mut self.means);
            }
            visible_paths::check_reachable(&self.context.launch.plan)?;
        }
        // The program must not get hold of the machine's process table.
        self.context.procfs = None;
        self.means.push(match &self.context.launch.user {
            ProgramUser::Mapped(_) if !is_restricted => not_in_force(UNPRIVILEGED_USER, "not asked for"),
            user => user.means(),
        });
        set_dumpable_behavior(DumpableBehavior::Dumpable).map_err(|error| format!("PR_SET_DUMPABLE: {error}"))?;
        // A change of the user clears this signal, so it is set afterwards.
        set_parent_process_death_signal(Some(Signal::KILL)).map_err(|error| format!("PR_SET_PDEATHSIG: {error}"))?;
        if getppid() == parent { Ok(()) } else { Err("init ended while the program started".to_owned()) }
    }

    fn restrict_by_landlock(&mut self) -> Result<LandlockScope, String> {
        match self.context.launch.plan.means {
            SandboxChoice::Best | SandboxChoice::Landlock => {
                let surroundings = Surroundings {
                    own_network: self.context.namespaces.network && has_loopback(&self.context.launch.plan),
                    own_root: self.context.namespaces.mount,
                };
                landlock_rules::restrict(&self.context.launch.plan, surroundings, &mut self.means)
            }
            SandboxChoice::Namespaces | SandboxChoice::None => {
                self.means.push(not_in_force("landlock", "not asked for"));
                Ok(LandlockScope::default())
            }
        }
    }

    fn filter_system_calls(&mut self, landlock: LandlockScope) -> FilterScope {
        if self.context.launch.plan.means == SandboxChoice::None {
            self.means.push(not_in_force("seccomp", "not asked for"));
            return FilterScope::default();
        }
        let kind = ProgramKind::of(&self.context.launch.plan, self.context.namespaces);
        let confined = landlock.signals || self.context.namespaces.processes;
        system_calls::filter(kind, confined, &mut self.means)
    }

    fn report_signals(&mut self, landlock: LandlockScope, filter: FilterScope) {
        let by: Vec<&str> = [
            (self.context.namespaces.processes, "pid namespace"),
            (landlock.signals, "Landlock"),
            (filter.signals, "seccomp"),
        ]
        .into_iter()
        .filter_map(|(holds, name)| holds.then_some(name))
        .collect();
        self.means.push(if by.is_empty() {
            not_in_force(
                "signals",
                "neither a pid namespace nor Landlock 6 keeps signals from other processes of the user",
            )
        } else {
            in_force("signals", &format!("to processes outside refused by {}", by.join(", ")))
        });
    }

    fn report_proc(&mut self, landlock: LandlockScope) {
        let shown = self.context.launch.plan.shows_kernel_files();
        self.means.push(match (self.context.namespaces.mount, shown) {
            (true, true) => in_force("proc", "own processes only; settings read-only, secrets masked; /sys read-only"),
            (true, false) => in_force("proc", "not mounted"),
            (false, false) if landlock.files => in_force("proc", "out of reach"),
            (false, true) if landlock.files => not_in_force(
                "proc",
                "other processes are visible without a private root; writing is refused by Landlock",
            ),
            (false, _) => not_in_force("proc", "neither a private root nor Landlock protects /proc"),
        });
    }

    fn report_device(&mut self) {
        if let Some(device) = &self.context.launch.plan.device {
            self.means.push(match &device.shared_nodes {
                None => in_force("own_device_only", &device.visible),
                Some(reason) => not_in_force("own_device_only", reason),
            });
        }
    }

    /// Becomes the program. Returns its exit status, unless another program replaced this process.
    fn become_program(self) -> i32 {
        let Init { control, launch, descriptors, namespaces, hosted: entry_points, .. } = self.context;
        let plan = launch.plan;
        let has_short_name = namespaces.mount && plan.shows_kernel_files() && plan.scratch.is_some();
        let is_on_device = plan.device.is_some();
        match plan.work {
            Work::Command { program, args, mut env } => {
                if !is_on_device {
                    // Compilers give way to programs that are timed. A failure costs precision only.
                    let _ = rustix::process::nice(BUILD_NICENESS);
                }
                let temporary = env.iter_mut().find(|(name, _)| name == "TMPDIR").filter(|_| has_short_name);
                if let Some((_, folder)) = temporary {
                    SHORT_SCRATCH.clone_into(folder);
                }
                #[expect(clippy::disallowed_methods, reason = "replaces this process and starts no other")]
                let error = std::process::Command::new(&program).args(args).env_clear().envs(env).exec();
                refuse(&control, &format!("executing {}: {error}", program.display()))
            }
            Work::Hosted(hosted) => match hosted.kind {
                HostedKind::Python => refuse(&control, &(entry_points.python)(&hosted.payload, &descriptors)),
                HostedKind::Native => {
                    // Candidate code, which is loaded now, finds no control socket.
                    drop(control);
                    (entry_points.native)(&hosted.payload, descriptors)
                }
            },
            Work::Probe(probe) => match try_to_break_out(&probe) {
                Ok(()) => 0,
                Err(message) => refuse(&control, &message),
            },
        }
    }
}

/// By how much compilers give way.
const BUILD_NICENESS: i32 = 10;

/// Gives signals their default effect again which the start-up code of this binary handles or ignores. A crash of the
/// program has to be reported as such.
fn restore_default_signals() {
    for signal in [libc::SIGSEGV, libc::SIGBUS, libc::SIGPIPE] {
        // SAFETY: the default disposition runs no code of ours; the process has one thread.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}
