use nightshift_testbed::executable::write_executable;

use super::*;

/// Writes a fake Python interpreter that creates environments and installs packages without a network. `pip` is its script.
fn python(folder: &Path, pip: &str) -> PathBuf {
    let bin = folder.join("path");
    std::fs::create_dir_all(&bin).unwrap();
    let script = format!(
        "#!/bin/sh\ncase \"$2\" in\n\
         venv) [ -e {0}/no-venv ] && {{ echo 'ensurepip is not available' >&2; exit 1; }}\n\
               mkdir -p \"$4/bin\" && cp \"$0\" \"$4/bin/python3\" && : > \"$4/pyvenv.cfg\" ;;\n\
         pip) here=$(dirname \"$(dirname \"$0\")\"); echo \"$@\" >> {0}/calls\n{pip}\n;;\nesac\n",
        folder.display()
    );
    let program = bin.join("python3");
    write_executable(&program, &script);
    bin
}

const INSTALLS: &str = "root=\"$here/lib/python3.12/site-packages/nvidia/cu13\"; mkdir -p \"$root/bin\" \"$root/lib\"\n\
                        echo '#!/bin/sh' > \"$root/bin/nvcc\"; chmod 755 \"$root/bin/nvcc\"";

fn try_install(folder: &Path, search_path: &[PathBuf], with_cublas: bool) -> Result<Installed, InstallError> {
    let cancel = &CancelFlag::default();
    install(&Installation { folder: &folder.join("nvcc"), with_cublas, search_path, cancel }, &|_| {})
}

#[test]
fn the_compiler_is_installed_once_with_every_package_pinned() {
    let folder = tempfile::tempdir().unwrap();
    let path = [python(folder.path(), INSTALLS)];
    let first = try_install(folder.path(), &path, false).unwrap();
    let programs = folder.path().join("nvcc/lib/python3.12/site-packages/nvidia/cu13/bin");
    assert_eq!(first, Installed::Now(programs.clone()));
    // Where nvcc looks for libraries, and where the packages have them.
    assert!(programs.with_file_name("lib64").is_dir());
    assert_eq!(try_install(folder.path(), &path, false).unwrap(), Installed::Before(programs));
    let calls = std::fs::read_to_string(folder.path().join("calls")).unwrap();
    assert_eq!(calls.lines().count(), 1);
    assert!(COMPILER.iter().all(|pin| calls.contains(&pin.requirement())), "{calls}");
    assert!(calls.contains("--no-deps") && !calls.contains("cublas"), "{calls}");
}

#[test]
fn libraries_that_are_asked_for_later_are_added() {
    let folder = tempfile::tempdir().unwrap();
    let path = [python(folder.path(), INSTALLS)];
    assert!(matches!(try_install(folder.path(), &path, false).unwrap(), Installed::Now(_)));
    assert!(matches!(try_install(folder.path(), &path, true).unwrap(), Installed::Now(_)));
    assert!(matches!(try_install(folder.path(), &path, true).unwrap(), Installed::Before(_)));
    // Who needs less has it too.
    assert!(matches!(try_install(folder.path(), &path, false).unwrap(), Installed::Before(_)));
}

#[test]
fn what_an_interrupted_installation_left_is_installed_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = [python(folder.path(), "echo 'Connection broken' >&2; exit 1")];
    let error = try_install(folder.path(), &path, false).unwrap_err();
    assert_eq!(error.code(), "toolchain.install_failed");
    assert!(error.to_string().contains("Connection broken") && error.to_string().contains("PIP_INDEX_URL"), "{error}");
    let path = [python(folder.path(), INSTALLS)];
    assert!(matches!(try_install(folder.path(), &path, false).unwrap(), Installed::Now(_)));
}

#[test]
fn without_python_or_its_environments_the_error_names_the_package() {
    let folder = tempfile::tempdir().unwrap();
    let error = try_install(folder.path(), &[], false).unwrap_err();
    assert_eq!(error.code(), "toolchain.no_python");
    assert!(error.to_string().contains("apt-get install python3"), "{error}");

    let path = [python(folder.path(), INSTALLS)];
    std::fs::write(folder.path().join("no-venv"), "").unwrap();
    let error = try_install(folder.path(), &path, false).unwrap_err();
    assert_eq!(error.code(), "toolchain.no_python");
    assert!(error.to_string().contains("ensurepip") && error.to_string().contains("python3-venv"), "{error}");
}

#[test]
fn a_folder_with_other_things_in_it_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = [python(folder.path(), INSTALLS)];
    std::fs::create_dir(folder.path().join("nvcc")).unwrap();
    std::fs::write(folder.path().join("nvcc/thesis.tex"), "all of it").unwrap();
    let error = try_install(folder.path(), &path, false).unwrap_err();
    assert_eq!(error.code(), "usage.folder_in_use");
    assert_eq!(std::fs::read_to_string(folder.path().join("nvcc/thesis.tex")).unwrap(), "all of it");
}

#[test]
fn packages_without_a_compiler_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = [python(folder.path(), ":")];
    let error = try_install(folder.path(), &path, false).unwrap_err();
    assert_eq!(error.code(), "toolchain.install_failed");
    assert!(error.to_string().contains("no nvcc"), "{error}");
}
