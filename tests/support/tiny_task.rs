//! A small task and the replies of a script that makes it faster.

#[path = "gaussian.rs"]
mod gaussian;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use self::gaussian::program;

/// Writes the task folder and gives its path.
pub(crate) fn write(parent: &Path, name: &str, attempt_passes: &[u32]) -> PathBuf {
    let folder = gaussian::write_task(parent, name, 4096, attempt_passes.len());
    let replies = folder.join("replies");
    std::fs::create_dir_all(&replies).expect("a folder for the replies");
    let plan = r#"```json
{"summary": "Evaluate the exponential fewer times.",
 "subtasks": [{"title": "gaussian", "scope": ["gaussian"], "fusion_boundary": "the whole program"}]}
```
"#;
    std::fs::write(replies.join("plan.md"), plan).expect("the plan");
    for (index, passes) in attempt_passes.iter().enumerate() {
        let mut reply = String::new();
        write!(reply, "The next program.\n\n```cpp\n{}```\n", program("", &passes.to_string(), "value")).expect("text");
        std::fs::write(replies.join(format!("subtask1.attempt{}.write_code.md", index + 1)), reply).expect("a reply");
    }
    folder
}
