use std::cell::RefCell;
use std::os::unix::fs::PermissionsExt as _;

use nightshift_protocol::machine::SandboxReport;

use super::*;
use nightshift_sandbox::process::ProcessResult;

const VERSION: &str = "nvcc: NVIDIA (R) Cuda compiler driver\nCuda compilation tools, release 13.0, V13.0.88\n";

/// A machine whose programs are files without content.
struct Machine {
    root: tempfile::TempDir,
    /// What a compilation says and how it ends.
    build: (ProcessEnd, &'static str),
    /// How many of the first commands take too long.
    slow: usize,
    /// Commands that were run.
    commands: RefCell<Vec<JailedCommand>>,
}

impl Machine {
    fn new(programs: &[&str]) -> Self {
        let root = tempfile::tempdir().unwrap();
        for program in programs {
            let path = root.path().join(program);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, "").unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        Self { root, build: (ProcessEnd::Finished, ""), slow: 0, commands: RefCell::default() }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.path().canonicalize().unwrap().join(path)
    }

    fn search(&self, configured: Option<&str>) -> Result<Nvcc, NvccError> {
        self.search_with(configured, Some(&self.path("usr/bin/g++")), &[self.path("usr/bin")])
    }

    fn search_with(
        &self,
        configured: Option<&str>,
        host_compiler: Option<&Path>,
        search_path: &[PathBuf],
    ) -> Result<Nvcc, NvccError> {
        let scratch = tempfile::tempdir().unwrap();
        let search = Search {
            configured,
            search_path,
            system_root: self.root.path(),
            install_folder: Some(&self.path("data/nvcc")),
            arch: DEFAULT_ARCH,
            host_compiler,
            os: "Debian",
            proofs: Some(&self.path("cache/compilers")),
        };
        Nvcc::find(&search, scratch.path(), &|command| Ok(self.run(command)))
    }

    fn run(&self, command: &JailedCommand) -> ProcessResult {
        self.commands.borrow_mut().push(command.clone());
        let is_version = command.args.iter().any(|arg| arg == "--version");
        let is_host = command.program.ends_with("g++");
        let broken = command.program.starts_with(self.path("usr/local/cuda-99.0"));
        let is_slow = self.commands.borrow().len() <= self.slow;
        let (end, stdout, stderr) = match (is_version, is_host, broken) {
            _ if is_slow => (ProcessEnd::TimedOut { limit_ms: command.limits.wall_ms }, "", ""),
            (_, _, true) => (ProcessEnd::Exited { status: 1 }, "", ""),
            (true, true, _) => (ProcessEnd::Finished, "g++ (Debian 12.2.0) 12.2.0\n", ""),
            (true, false, _) => (ProcessEnd::Finished, VERSION, ""),
            _ => (self.build.0.clone(), "", self.build.1),
        };
        ProcessResult {
            end,
            stdout: stdout.into(),
            stderr: stderr.into(),
            wall_ms: 1,
            peak_bytes: 1,
            sandbox: SandboxReport::default(),
        }
    }
}

#[test]
fn without_a_compiler_the_error_says_how_to_get_one() {
    let error = Machine::new(&["usr/bin/g++"]).search(None).unwrap_err();
    assert_eq!(error.code(), "toolchain.no_nvcc");
    let text = error.to_string();
    assert!(text.contains("doctor --install-nvcc") && text.contains("worker.nvcc"), "{text}");
    assert!(text.contains("/usr/local/cuda"), "{text}");
}

#[test]
fn a_compiler_whose_first_start_is_slow_is_asked_once_more() {
    let machine = |slow| Machine { slow, ..Machine::new(&["usr/bin/g++", "usr/bin/nvcc"]) };
    assert!(machine(1).search(None).is_ok());
    assert_eq!(machine(2).search(None).unwrap_err().code(), "toolchain.broken");
}

#[test]
fn a_configured_compiler_that_is_missing_is_not_replaced_by_another() {
    let machine = Machine::new(&["usr/bin/g++", "usr/bin/nvcc"]);
    for name in ["nvcc-12", "/no/such/nvcc"] {
        let error = machine.search(Some(name)).unwrap_err();
        assert_eq!(error.code(), "toolchain.no_nvcc");
        assert!(error.to_string().contains(name) && error.to_string().contains("worker.nvcc"), "{error}");
    }
}

#[test]
fn a_toolkit_may_be_named_by_its_folder_or_its_compiler() {
    let machine = Machine::new(&["usr/bin/g++", "toolkits/12.9/bin/nvcc", "usr/bin/nvcc"]);
    for name in ["toolkits/12.9", "toolkits/12.9/bin", "toolkits/12.9/bin/nvcc"] {
        let nvcc = machine.search(Some(&machine.path(name).display().to_string())).unwrap();
        assert_eq!(nvcc.toolchain().path, machine.path("toolkits/12.9/bin/nvcc").display().to_string());
    }
}

#[test]
fn the_search_path_comes_before_the_system_and_the_system_before_what_was_installed() {
    let installed = "data/nvcc/lib/python3.12/site-packages/nvidia/cu13/bin/nvcc";
    let all = ["usr/bin/g++", "usr/bin/nvcc", "usr/local/cuda/bin/nvcc", "usr/local/cuda-13.0/bin/nvcc", installed];
    for skipped in 1..all.len() {
        let mut programs = all.to_vec();
        programs.drain(1..skipped);
        let machine = Machine::new(&programs);
        let found = machine.search(None).unwrap();
        assert_eq!(found.toolchain().path, machine.path(all.get(skipped).unwrap()).display().to_string());
    }
}

#[test]
fn the_newest_of_several_versions_that_works_is_taken() {
    let machine = Machine::new(&[
        "usr/bin/g++",
        "usr/local/cuda-9.2/bin/nvcc",
        "usr/local/cuda-13.0/bin/nvcc",
        "usr/local/cuda-99.0/bin/nvcc",
    ]);
    let nvcc = machine.search(None).unwrap();
    assert_eq!(nvcc.toolchain().path, machine.path("usr/local/cuda-13.0/bin/nvcc").display().to_string());
}

#[test]
fn a_compiler_is_proven_once_and_again_when_it_changed() {
    let machine = Machine::new(&["usr/bin/g++", "usr/bin/nvcc"]);
    let builds = || {
        let is_build = |command: &&JailedCommand| command.args.iter().all(|arg| arg != "--version");
        machine.commands.borrow().iter().filter(is_build).count()
    };
    let first = machine.search(None).unwrap();
    assert_eq!((machine.search(None).unwrap().toolchain(), builds()), (first.toolchain(), 1));
    std::fs::write(machine.path("usr/bin/nvcc"), "another one").unwrap();
    machine.search(None).unwrap();
    assert_eq!(builds(), 2);

    let broken = Machine { build: (ProcessEnd::Exited { status: 1 }, "fatal: no"), ..machine };
    std::fs::write(broken.path("usr/bin/nvcc"), "a third one").unwrap();
    assert!(broken.search(None).is_err() && broken.search(None).is_err(), "what fails is not kept");
}

#[test]
fn compiler_version_flags_and_host_compiler_are_recorded() {
    let machine = Machine::new(&["usr/bin/g++", "usr/bin/nvcc"]);
    let nvcc = machine.search(None).unwrap();
    assert_eq!(nvcc.toolchain().version, "nvcc release 13.0, V13.0.88, with g++ (Debian 12.2.0) 12.2.0");
    assert_eq!((nvcc.release(), nvcc.arch()), ((13, 0), DEFAULT_ARCH));
    assert!(nvcc.toolchain().flags.iter().any(|flag| flag == "-gencode=arch=compute_90a,code=sm_90a"));
    assert!(nvcc.toolchain().flags.iter().all(|flag| !flag.contains("fast_math")));
    let commands = machine.commands.borrow();
    let built = commands.last().unwrap();
    assert!(built.args.iter().any(|arg| arg == format!("-ccbin={}", machine.path("usr/bin/g++").display()).as_str()));
}

#[test]
fn equal_compilers_in_different_places_have_one_fingerprint() {
    let (one, other) =
        (Machine::new(&["usr/bin/g++", "usr/bin/nvcc"]), Machine::new(&["usr/bin/g++", "opt/cuda/bin/nvcc"]));
    let (one, other) = (one.search(None).unwrap(), other.search(None).unwrap());
    assert_ne!(one.toolchain().path, other.toolchain().path);
    assert_eq!(one.toolchain().fingerprint, other.toolchain().fingerprint);
}

#[test]
fn a_machine_without_a_host_compiler_is_told_to_install_one() {
    let machine = Machine::new(&["usr/bin/nvcc"]);
    let host = machine.path("usr/bin/g++");
    // The search for a host compiler looks at the real system: one that is named decides.
    let error =
        NvccError::NoHostCompiler { looked_for: host.display().to_string(), install: "apt-get install g++".to_owned() };
    assert_eq!(error.code(), "toolchain.host_compiler");
    assert!(error.to_string().contains("apt-get install g++"));
}

#[test]
fn what_is_wrong_with_a_toolkit_is_told_apart() {
    let cases = [
        (
            "host_config.h(137): error: -- unsupported GNU version! gcc versions later than 15 are not supported!\n",
            "toolchain.host_compiler",
        ),
        ("nvcc fatal   : Unsupported gpu architecture 'compute_90a'\n", "toolchain.cuda_arch"),
        ("cuda_fp16.h:1:10: fatal error: nv/target: No such file or directory\n", "toolchain.incomplete"),
        ("/usr/bin/ld: cannot find -lcudart_static\n", "toolchain.incomplete"),
        (
            "ptxas probe.ptx, line 9; fatal   : Unsupported .version 9.5; current version is '9.0'\n",
            "toolchain.incomplete",
        ),
        ("Segmentation fault\n", "toolchain.broken"),
    ];
    for (said, code) in cases {
        let mut machine = Machine::new(&["usr/bin/g++", "usr/bin/nvcc"]);
        machine.build = (ProcessEnd::Exited { status: 2 }, said);
        let error = machine.search(None).unwrap_err();
        assert_eq!(error.code(), code, "{said}: {error}");
    }
}

#[test]
fn a_compiler_that_does_not_start_is_said_to_be_broken() {
    let error = Machine::new(&["usr/bin/g++", "usr/local/cuda-99.0/bin/nvcc"]).search(None).unwrap_err();
    assert_eq!(error.code(), "toolchain.broken");
}

#[test]
fn the_configured_architecture_comes_before_the_devices_and_that_before_the_default() {
    let choice = |arch: Option<&str>| NvccChoice { arch: arch.map(str::to_owned), ..NvccChoice::default() };
    let ampere = Some(ComputeCapability { major: 8, minor: 6 });
    assert_eq!(choice(Some("sm_100a")).arch(ampere).unwrap().to_string(), "sm_100a");
    assert_eq!(choice(None).arch(ampere).unwrap().to_string(), "sm_86");
    assert_eq!(choice(None).arch(None).unwrap(), DEFAULT_ARCH);
    assert_eq!(choice(Some("hopper")).arch(ampere).unwrap_err().code(), "toolchain.cuda_arch");
}
