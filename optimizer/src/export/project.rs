//! A stand-alone `CMake` project, which also builds with the compiler alone.

use std::fmt::Write as _;

use nightshift_protocol::task::{CudaLibrary, Target};
use serde_json::{Value, json};

use super::template::fill;
use super::{ExportError, Program, ProjectFile, contract, flags, quote};
use crate::prompt::CONTRACT;

/// The program that checks and times, the same for every task.
const MAIN: &str = include_str!("main.cpp");

/// What asks a reference that is a model of `PyTorch`, with places to be filled.
const ANSWERS: &str = include_str!("answers.py");

/// What a library of the project is.
struct Part {
    /// Its name.
    name: &'static str,
    /// Its source: the candidate's, or the reference's.
    of_candidate: bool,
    /// What is defined for it.
    defines: &'static [&'static str],
}

/// The libraries that are compared. A model of `PyTorch` is none.
fn parts(program: &Program<'_>) -> Vec<Part> {
    let candidate = Part { name: "candidate", of_candidate: true, defines: &[] };
    if program.task.spec.has_python_reference() {
        return vec![candidate];
    }
    let wide: &[&str] = match program.target() {
        Target::Cpu => &["NS_REAL=double"],
        // The second one makes doubles of the 16-bit floats, too.
        Target::Cuda => &["NS_REAL=double", "NS_TRUTH"],
    };
    vec![
        candidate,
        Part { name: "reference", of_candidate: false, defines: &[] },
        Part { name: "truth", of_candidate: false, defines: wide },
    ]
}

fn source_of(part: &Part, target: Target) -> &'static str {
    match (part.of_candidate, target) {
        (true, Target::Cpu) => "candidate.cpp",
        (true, Target::Cuda) => "candidate.cu",
        (false, Target::Cpu) => "reference.cpp",
        (false, Target::Cuda) => "reference.cu",
    }
}

pub(super) fn files(program: &Program<'_>) -> Result<Vec<ProjectFile>, ExportError> {
    let target = program.target();
    let (candidate, reference) = match target {
        Target::Cpu => ("candidate.cpp", "reference.cpp"),
        Target::Cuda => ("candidate.cu", "reference.cu"),
    };
    let file = |name, text: String| ProjectFile { name, text };
    let shapes = program.shapes()?;
    let mut files = vec![
        file("README.md", readme(program)),
        file("CMakeLists.txt", cmake(program)),
        file("nightshift.h", CONTRACT.to_owned()),
        file("contract.h", contract::header(&program.task.spec, &shapes)),
        file(candidate, program.source.to_owned()),
        file("main.cpp", MAIN.to_owned()),
    ];
    let source = program.task.reference_source.clone();
    if program.task.spec.has_python_reference() {
        let filled: [(&str, String); 3] = [
            ("@@CONTRACT@@", contract::python(&shapes)),
            ("@@MODEL@@", quote::python(&model(program).to_string())),
            ("@@DEVICE@@", quote::python(target.as_str())),
        ];
        files.extend([file("answers.py", fill(ANSWERS, &filled)), file("pytorch_model.py", source)]);
    } else {
        files.push(file(reference, source));
    }
    Ok(files)
}

/// How the model is built and called.
fn model(program: &Program<'_>) -> Value {
    let torch = program.task.spec.torch.clone().unwrap_or_default();
    let parsed = |text: &str| serde_json::from_str::<Value>(text).unwrap_or(Value::Null);
    json!({
        "init": parsed(&torch.init), "call": torch.call.as_deref().map(parsed), "state": torch.state, "types": torch.types,
        "training": torch.training,
    })
}

/// What `main.cpp` is compiled with.
fn defines(program: &Program<'_>) -> Vec<&'static str> {
    let cuda = (program.target() == Target::Cuda).then_some("NIGHTSHIFT_CUDA");
    let model = program.task.spec.has_python_reference().then_some("NIGHTSHIFT_MODEL");
    cuda.into_iter().chain(model).collect()
}

/// The commands that build the project without `CMake`, in its folder. `README.md` shows them.
fn commands(program: &Program<'_>) -> Vec<String> {
    let target = program.target();
    let (compiler, arch) = match target {
        Target::Cpu => ("c++".to_owned(), None),
        Target::Cuda => ("nvcc".to_owned(), Some(architecture(program))),
    };
    let mut commands: Vec<String> = parts(program)
        .iter()
        .map(|part| {
            let mut words = vec![compiler.clone()];
            words.extend(arch.as_ref().map(|arch| match arch.as_str() {
                "native" => "-arch=native".to_owned(),
                arch => format!("-gencode=arch=compute_{arch},code=sm_{arch}"),
            }));
            words.extend(flags(target).iter().map(|flag| (*flag).to_owned()));
            words.extend(part.defines.iter().map(|define| format!("-D{define}")));
            words.extend([source_of(part, target).to_owned(), "-o".to_owned(), format!("{}.so", part.name)]);
            words.extend(program.linked().iter().map(|flag| (*flag).to_owned()));
            words.join(" ")
        })
        .collect();
    let mut words = vec![compiler, "-std=c++20".to_owned(), "-O2".to_owned()];
    words.extend(defines(program).iter().map(|define| format!("-D{define}")));
    words.extend(["main.cpp", "-o", "compare", "-ldl"].map(str::to_owned));
    commands.push(words.join(" "));
    commands
}

/// What the machine code is made for: the architecture that it was verified on, else that of the machine.
fn architecture(program: &Program<'_>) -> String {
    program.arch().and_then(|arch| arch.strip_prefix("sm_")).unwrap_or("native").to_owned()
}

fn readme(program: &Program<'_>) -> String {
    let mut text = format!("# {}\n\n", program.task.spec.name);
    if let Some(doubt) = program.doubt() {
        let _ = writeln!(text, "**WARNING: {doubt}**\n");
    }
    text.push_str(
        "A program that Nightshift found for a task, with the task's reference. `compare` draws inputs for every shape of the \
         contract, compares the candidate's results with the reference in double precision, and times both in turn.\n\n```text\n",
    );
    for fact in program.facts() {
        let _ = writeln!(text, "{}", fact.replace('`', "'"));
    }
    text.push_str(
        "```\n\n## Build and run\n\n```sh\ncmake -S . -B build && cmake --build build\nbuild/compare\n```\n\n",
    );
    text.push_str("Without CMake:\n\n```sh\n");
    for command in commands(program) {
        let _ = writeln!(text, "{command}");
    }
    text.push_str("./compare\n```\n\n");
    text.push_str(
        "`compare` ends with 0 when every result is right, with 1 when one is wrong, and with 2 when the programs cannot be run. \
         `--seed N` draws other inputs, `--samples 0` times nothing, `--candidate FILE` takes another library.\n\n",
    );
    if program.task.spec.has_python_reference() {
        text.push_str(
            "The reference is a model of PyTorch, `pytorch_model.py`: `compare` has `answers.py` ask it, with `python3` or the Python that \
             the variable `PYTHON` names, which needs PyTorch. The candidate itself needs neither.\n\n",
        );
    }
    text.push_str(
        "Times are taken in one process, on whatever \
         else the machine does, with inputs that stay in the caches: they show the order of things. Nightshift measures in \
         separate processes, on a device that no other program uses, with fresh inputs and a confidence interval.\n",
    );
    if program.task.spec.libraries.contains(&CudaLibrary::Cutlass) {
        text.push_str("\nThe task allows CUTLASS: give its folder with `-DCUTLASS_INCLUDE=FOLDER` when the compiler does not find it.\n");
    }
    text
}

fn cmake(program: &Program<'_>) -> String {
    let target = program.target();
    let mut text = String::new();
    for fact in program.facts() {
        let _ = writeln!(text, "# {fact}");
    }
    text.push_str("cmake_minimum_required(VERSION 3.20)\n");
    if target == Target::Cuda {
        let arch = architecture(program);
        let real = if arch == "native" { "native".to_owned() } else { format!("{arch}-real") };
        let _ = writeln!(
            text,
            "# The architecture that the program was verified on.\nif(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)\n  \
             set(CMAKE_CUDA_ARCHITECTURES {real})\nendif()"
        );
    }
    let languages = if target == Target::Cuda { "CXX CUDA" } else { "CXX" };
    let _ = writeln!(text, "project(nightshift_{} LANGUAGES {languages})", identifier(&program.task.spec.name));
    if let Some(doubt) = program.doubt() {
        let _ = writeln!(text, "message(WARNING {})", quote::cpp(&doubt));
    }
    text.push_str(
        "\n# The flags below are those that the program was verified with: a build type would add others.\n\
         if(NOT CMAKE_BUILD_TYPE)\n  set(CMAKE_BUILD_TYPE None)\nendif()\nset(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})\n\
         set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})\n\n",
    );
    if target == Target::Cuda {
        text.push_str("find_package(CUDAToolkit REQUIRED)\n");
    }
    let options = options(target);
    let _ = writeln!(text, "set(FLAGS {})", quoted(&options.compile));
    let _ = writeln!(text, "set(LINK_FLAGS {})\n", quoted(&options.link));
    text.push_str(
        "function(program NAME SOURCE)\n  add_library(${NAME} MODULE ${SOURCE})\n  set_target_properties(${NAME} PROPERTIES \
         PREFIX \"\" SUFFIX .so CUDA_RUNTIME_LIBRARY Static CXX_STANDARD 20 CXX_STANDARD_REQUIRED ON CXX_EXTENSIONS OFF \
         CUDA_STANDARD 20 CUDA_STANDARD_REQUIRED ON CUDA_EXTENSIONS OFF)\n  target_include_directories(${NAME} PRIVATE \
         ${CMAKE_CURRENT_SOURCE_DIR} ${CUTLASS_INCLUDE})\n  target_compile_options(${NAME} PRIVATE ${FLAGS})\n  \
         target_link_options(${NAME} PRIVATE ${LINK_FLAGS})\n  target_compile_definitions(${NAME} PRIVATE ${ARGN})\n",
    );
    for library in &program.task.spec.libraries {
        let linked = match library {
            CudaLibrary::Cublas => "CUDA::cublas",
            CudaLibrary::CublasLt => "CUDA::cublasLt",
            CudaLibrary::Cudnn => "cudnn",
            CudaLibrary::Cccl | CudaLibrary::Cutlass => continue,
        };
        let _ = writeln!(text, "  target_link_libraries(${{NAME}} PRIVATE {linked})");
    }
    text.push_str("endfunction()\n\n");
    for part in parts(program) {
        let mut words = vec![part.name, source_of(&part, target)];
        words.extend(part.defines);
        let _ = writeln!(text, "program({})", words.join(" "));
    }
    text.push_str("\nadd_executable(compare main.cpp)\ntarget_compile_options(compare PRIVATE -O2)\n");
    text.push_str("set_target_properties(compare PROPERTIES CXX_STANDARD 20 CXX_STANDARD_REQUIRED ON)\n");
    let libraries = if target == Target::Cuda { "CUDA::cudart ${CMAKE_DL_LIBS}" } else { "${CMAKE_DL_LIBS}" };
    let _ = writeln!(text, "target_link_libraries(compare PRIVATE {libraries})");
    let defines = defines(program);
    if !defines.is_empty() {
        let _ = writeln!(text, "target_compile_definitions(compare PRIVATE {})", defines.join(" "));
    }
    if program.task.spec.has_python_reference() {
        text.push_str("# Beside the program, which asks them.\nforeach(FILE answers.py pytorch_model.py)\n  configure_file(${FILE} ${CMAKE_BINARY_DIR}/${FILE} COPYONLY)\nendforeach()\n");
    }
    let names: Vec<&str> = parts(program).iter().map(|part| part.name).collect();
    let _ = writeln!(
        text,
        "add_dependencies(compare {})\n\nenable_testing()\nadd_test(NAME right COMMAND compare --samples 0)",
        names.join(" ")
    );
    text
}

/// Flags of the compiler and of the linker.
struct Options {
    compile: Vec<&'static str>,
    link: Vec<&'static str>,
}

/// What `CMake` adds by itself for a library is left out.
fn options(target: Target) -> Options {
    let by_cmake = ["-std=c++20", "-shared", "-fPIC", "-cudart=static"];
    let (link, compile): (Vec<&str>, Vec<&str>) = flags(target)
        .iter()
        .copied()
        .filter(|flag| !by_cmake.contains(flag))
        .partition(|flag| flag.starts_with("-Wl,") || flag.starts_with("-Xlinker="));
    // The host's compiler links, which is told in its own words.
    let link = link.into_iter().map(|flag| if flag.starts_with("-Xlinker=") { "-Wl,-z,now" } else { flag }).collect();
    Options { compile, link }
}

fn quoted(flags: &[&str]) -> String {
    flags.iter().map(|flag| format!("\"{flag}\"")).collect::<Vec<_>>().join(" ")
}

/// A name for `project()`.
fn identifier(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}
