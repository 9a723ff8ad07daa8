//! Device nodes of a process on a GPU.

use nightshift_sandbox::DeviceAccess;
use nightshift_sandbox::process::SandboxChoice;

use crate::jails::{Kind, device, plan, run};
use crate::machine::{choices, detail, in_force, isolated_files, nothing};
use crate::{Test, tests};

pub(crate) fn tests() -> Vec<Test> {
    tests![
        isolated_files => a_process_opens_the_nodes_of_its_device_only,
        nothing => nodes_of_other_devices_are_reported,
    ]
}

/// A terminal's node stands for that of a GPU: a process without a terminal opens it as far as the driver.
fn a_process_opens_the_nodes_of_its_device_only() {
    for means in choices() {
        let reaches_driver = |nodes: &[&str]| {
            let scratch = tempfile::tempdir().unwrap();
            let mut plan =
                plan(Kind::Tool, means, "(: < /dev/tty) 2>&1; : < /dev/null && echo done", Some(scratch.path()));
            plan.device = Some(DeviceAccess { nodes: nodes.iter().map(Into::into).collect(), ..device() });
            let ended = run(&plan);
            assert!(in_force(&ended.report, "own_device_only"), "{means:?}");
            assert_eq!(ended.lines.last().map(String::as_str), Some("done"), "{means:?}: {}", ended.stderr);
            ended.lines[0].contains("No such device or address")
        };
        assert!(reaches_driver(&["/dev/tty"]), "{means:?}: its own node is out of reach");
        assert!(!reaches_driver(&[]), "{means:?}: it opened the node of another device");
    }
}

fn nodes_of_other_devices_are_reported() {
    let mut plan = plan(Kind::NativeOnDevice, SandboxChoice::Best, "identity", None);
    if let Some(device) = &mut plan.device {
        device.shared_nodes = Some("the reason".to_owned());
    }
    let ended = run(&plan);
    assert!(!in_force(&ended.report, "own_device_only"));
    assert_eq!(detail(&ended.report, "own_device_only"), "the reason");
    plan.device = None;
    assert_eq!(detail(&run(&plan).report, "own_device_only"), "", "a process without a GPU has no such entry");
}
