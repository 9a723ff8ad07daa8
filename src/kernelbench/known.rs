//! Tasks of `KernelBench` that are known to be broken. Each entry was found in the file that it names; what an examination
//! of a task can find by itself is found again when it is prepared.

use nightshift_protocol::task::TaskProblem;

use super::files::ModelFile;

/// Level, number, how the file's name goes on, code, message.
const KNOWN: [(u32, u32, &str, &str, &str); 5] = [
    (
        1,
        73,
        "conv_transposed_3D",
        "argument_misplaced",
        "the sixth argument of the constructor, meant as `groups`, is taken as `output_padding`: the convolution has one group",
    ),
    (
        2,
        80,
        "Gemm_Max_Subtract_GELU",
        "constant_output",
        "the maximum leaves one column, which minus its own mean is zero: the output is zero whatever the inputs are",
    ),
    (
        2,
        83,
        "Conv3d_GroupNorm_Min_Clamp_Dropout",
        "constant_output",
        "no more than zero, then no less than zero: the output is zero whatever the inputs are",
    ),
    (
        2,
        23,
        "Conv3d_GroupNorm_Mean",
        "constant_output",
        "the mean over a freshly initialised group normalization is zero up to rounding",
    ),
    (
        3,
        28,
        "VisionTransformer",
        "axes_mixed_up",
        "the encoder layers take the batch for the sequence: attention goes over the images of a batch",
    ),
];

/// What is known to be wrong with a file.
pub(super) fn problems(file: &ModelFile) -> impl Iterator<Item = TaskProblem> {
    let (level, id, stem) = (file.level, file.id, file.stem.clone());
    KNOWN
        .into_iter()
        .filter(move |(its_level, its_id, name, ..)| {
            level == Some(*its_level) && id == Some(*its_id) && stem.contains(name)
        })
        .map(|(.., code, message)| TaskProblem { code: code.to_owned(), message: message.to_owned() })
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn a_file_is_known_by_level_number_and_name() {
        let file = |level, id, stem: &str| ModelFile {
            level: Some(level),
            id: Some(id),
            stem: stem.to_owned(),
            path: PathBuf::new(),
        };
        let codes = |file: &ModelFile| problems(file).map(|problem| problem.code).collect::<Vec<_>>();
        assert_eq!(codes(&file(2, 80, "80_Gemm_Max_Subtract_GELU")), ["constant_output"]);
        assert!(codes(&file(2, 80, "80_something_else")).is_empty());
        assert!(codes(&file(1, 80, "80_Gemm_Max_Subtract_GELU")).is_empty());
    }
}
