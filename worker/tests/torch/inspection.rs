//! What the inspection of a file finds out.

use nightshift_toolchain::inspect::FoundTensor;

use crate::draws;
use crate::passed;
use crate::programs::{self, LINEAR, MODEL_NEW, task};
use crate::torch::Bench;

pub(crate) fn a_file_says_what_it_needs(bench: &Bench) {
    let found = bench.inspect(LINEAR).unwrap();
    let listed = |tensors: &[FoundTensor]| -> Vec<(String, Vec<u64>)> {
        tensors.iter().map(|tensor| (tensor.name.clone(), tensor.shape.clone())).collect()
    };
    let named = |name: &str, shape: &[u64]| (name.to_owned(), shape.to_vec());
    assert_eq!(listed(&found.inputs), [named("x", &[8, 32])]);
    assert_eq!(listed(&found.params), [named("linear_weight", &[16, 32]), named("linear_bias", &[16])]);
    assert_eq!(found.params[0].state.as_deref(), Some("linear.weight"));
    assert_eq!(listed(&found.outputs), [named("output", &[8, 16])]);
    assert_eq!(found.init.to_string(), "[32,16,{\"tuple\":[2,3]}]");
    assert_eq!(found.inputs[0].origin, "torch.rand * 2.0 - 1.0");
    assert!(
        found.operators.iter().any(|operator| operator.class == "matmul" && operator.flops == Some(8192.0)),
        "{found:?}"
    );

    let found = bench.inspect(programs::LABELS).unwrap();
    assert_eq!(found.types.get("labels").map(String::as_str), Some("int64"), "{found:?}");
    assert_eq!(found.call.to_string(), r#"[{"input":"scores"},{"input":"labels"},{"value":2.5}]"#);
    let found = bench.inspect(programs::RANDOM).unwrap();
    assert_eq!(found.problems.first().map(|problem| problem.code.as_str()), Some("random_forward"));
}

pub(crate) fn inputs_are_drawn_as_the_file_draws_them(bench: &Bench) {
    let found = bench.inspect(&draws::drawn()).unwrap();
    assert_eq!(found.inputs.len(), draws::DRAWN.len());
    for ((input, draw), found) in draws::DRAWN.iter().zip(&found.inputs) {
        assert!(draw.is(&found.distribution), "{input}: {:?}, after {}", found.distribution, found.origin);
    }
    let looked_at =
        |name: &str| found.notes.iter().any(|note| note.contains(&format!("values of `{name}` are not drawn")));
    assert!(!looked_at("input0") && looked_at("input18"), "{:?}", found.notes);
}

pub(crate) fn what_is_too_large_to_be_made_is_drawn_as_a_smaller_one(bench: &Bench) {
    let large = |input: &str| {
        let source = LINEAR.replace("torch.rand(8, IN) * 2.0 - 1.0", input).replace("self.linear(x)", "x");
        assert!(source.contains("torch.relu(x)") && source.contains(input));
        let found = bench.inspect(&source).unwrap();
        (found.inputs[0].distribution.clone(), found.notes)
    };
    let (drawn, notes) = large("torch.softmax(torch.rand(32768, 16384) / 1e6, -1) * 16384");
    assert!(draws::Draw::AboutUniform(1.0, 1.0).is(&drawn), "{drawn:?}");
    assert!(notes.iter().any(|note| note.contains("from a range like theirs")), "{notes:?}");
    let (drawn, notes) = large("torch.rand(16384 * 32768).reshape(16384, 32768).abs()");
    assert!(draws::Draw::Normal(0.0, 1.0).is(&drawn), "{drawn:?}");
    assert!(notes.iter().any(|note| note.contains("nothing is known") && note.contains("task.toml")), "{notes:?}");

    // Of a model's weights it is known how they were to be drawn.
    let deep = LINEAR.replace("IN, OUT = 32, 16", "IN, OUT = 1 << 14, 1 << 15");
    let found = bench.inspect(&deep).unwrap();
    let weight = &found.params[0];
    assert_eq!((weight.origin.as_str(), weight.shape.len()), ("Tensor.uniform_", 2), "{weight:?}");
    assert!(draws::Draw::Uniform(-1.0 / 128.0, 1.0 / 128.0).is(&weight.distribution), "{weight:?}");
}

pub(crate) fn operators_say_from_which_others_they_read(bench: &Bench) {
    let found = bench.inspect(LINEAR).unwrap();
    let edges: Vec<_> = found.operators.iter().map(|op| (op.name.as_str(), op.after.join(" "))).collect();
    assert_eq!(edges, [("addmm", String::new()), ("relu", "addmm".to_owned()), ("mul", "relu".to_owned())]);
    assert_eq!(found.operators[0].outputs, [[8, 16]]);
    // What computes nothing still writes its results.
    let copy = LINEAR.replace("torch.relu(self.linear(x)) * self.scale", "x.t()");
    let found = bench.inspect(&copy).unwrap();
    let [only] = &found.operators[..] else { panic!("{:?}", found.operators) };
    assert_eq!((only.name.as_str(), only.class.as_str(), only.bytes), ("copy", "copy", Some(2048.0)));
}

pub(crate) fn what_has_to_be_moved_and_computed_is_counted(bench: &Bench) {
    let found = |forward: &str, inputs: &str| {
        let source = LINEAR
            .replace("torch.relu(self.linear(x)) * self.scale", forward)
            .replace("forward(self, x)", "forward(self, x, y)")
            .replace("torch.rand(8, IN) * 2.0 - 1.0", inputs);
        let found = bench.inspect(&source).unwrap();
        (found.moved_bytes.unwrap(), found.flops)
    };
    let (float, square) = ("torch.rand(32, 32), torch.rand(32, 32)", 4096.0);
    assert_eq!(found("x @ y", float), (3.0 * square, Some(65536.0)));
    assert_eq!(found("x.t().contiguous() @ y", float), (3.0 * square, Some(65536.0)));
    // A truth value has one byte.
    let masks = "torch.rand(32, 32), torch.rand(32, 32) > 0.5";
    assert_eq!(found("torch.cumsum(x * y, dim=1)", masks), (2.25 * square, None));
    // Of a table only the rows of the indices are read.
    let rows = "torch.rand(32, 32), torch.randint(0, 32, (4,))";
    assert_eq!(found("torch.nn.functional.embedding(y, x)", rows), (4.0 * 32.0 * 4.0, Some(0.0)));
    // Elements that are picked by masks, indices, labels or coordinates, also in place: results count, and no table.
    let picked = |forward: &str, inputs: &str, results: f64| {
        let (moved, flops) = found(forward, inputs);
        assert!((moved - 4.0 * results).abs() < 0.5, "{forward}: {moved}");
        assert!(flops.is_none_or(|flops| flops <= 4.0 * results), "{forward}: {flops:?}");
    };
    let indices = "torch.rand(32, 32), torch.randint(0, 32, (4, 1))";
    picked("torch.take(x, y)", indices, 4.0);
    picked("x.index_select(0, y[:, 0])", indices, 128.0);
    picked("torch.gather(x[:4], 1, y)", indices, 4.0);
    picked("torch.nn.functional.embedding_bag(y, x)", indices, 128.0);
    picked("x[y[:, 0]]", indices, 128.0);
    picked("x.index_add(0, y[:, 0], x[:4])", indices, 1024.0);
    picked("torch.zeros_like(x).index_copy_(0, y[:, 0], x[:4])", indices, 1024.0);
    picked("torch.narrow_copy(x, 0, 0, 4)", indices, 128.0);
    picked("torch.nn.functional.pad(x, (0, -31))", indices, 32.0);
    picked("torch.trace(x).reshape(1)", indices, 1.0);
    let labels = "torch.rand(32, 32), torch.randint(0, 32, (32,))";
    picked("torch.nn.functional.nll_loss(x, y).reshape(1)", labels, 1.0);
    let mask = "torch.rand(32, 32), torch.zeros(32, 32).bool()";
    picked("torch.where(y, 0.0, x)", mask, 1024.0);
    picked("torch.masked_fill(x, y, 0.0)", mask, 1024.0);
    let coordinates = "torch.rand(1, 1, 32, 32), torch.rand(1, 2, 2, 2)";
    picked("torch.nn.functional.grid_sample(x, y, align_corners=False)", coordinates, 4.0);
    picked("torch.nn.functional.interpolate(x, scale_factor=0.25)", coordinates, 64.0);
    // A product with a diagonal matrix scales rows; half of a triangular one need not be computed.
    assert_eq!(found("torch.diag(x[0]) @ y", float).1, None);
    assert_eq!(found("torch.triu(x @ y)", float), (3.0 * square, None));
    assert_eq!(found("torch.eye(32) @ y + 0 * x", float).1, None);
    // Half of an input is used.
    assert_eq!(found("x[:16] @ y", float), (2.0 * square, None));
}

pub(crate) fn objects_reach_the_model_and_what_was_fetched_before_is_there(bench: &Bench) {
    let error = bench.inspect(&programs::configured("Model")).unwrap_err();
    assert_eq!((error.code, error.line), ("task.model_fails", Some(13)), "{error}");
    assert!(error.message.contains("HF_HUB_CACHE"), "{error}");

    let cache = tempfile::tempdir().unwrap();
    std::fs::create_dir(cache.path().join("hub")).unwrap();
    std::fs::write(cache.path().join("hub/scale"), "3.0").unwrap();
    let bench = bench.with_models(cache.path());
    let found = bench.inspect(&programs::configured("Model")).unwrap();
    let object = &found.init[2]["object"];
    assert_eq!((&object["type"], &object["text"]), (&"argparse.Namespace".into(), &"Namespace(file='scale')".into()));

    let mut spec = task();
    spec.torch.as_mut().unwrap().init = found.init.to_string();
    let reference = bench.file("configured.py", &programs::configured("Model"));
    let right = programs::configured("ModelNew");
    let wrong = right.replace("extents.file)).read())", "extents.file)).read()) + 1.0");
    for (program, passes) in [(right.as_str(), true), (&wrong, false), (MODEL_NEW, true)] {
        let report = bench.check(&bench.file("candidate.py", program), &reference, &spec);
        assert_eq!(passed(&report), passes, "{program}\n{report:?}");
    }
}

pub(crate) fn files_that_cannot_be_tasks_are_told_why(bench: &Bench) {
    for (source, code, line, part) in programs::unusable() {
        let error = bench.inspect(&source).unwrap_err();
        assert_eq!((error.code, error.line), (code, line), "{error}\n{source}");
        assert!(error.message.contains(part), "{error}");
    }
}

pub(crate) fn an_endless_file_and_a_giant_one_are_ended(bench: &Bench) {
    let endless = LINEAR.replace("def get_inputs():\n", "def get_inputs():\n    while True: pass\n");
    let error = bench.inspect_within(&endless, 15_000).unwrap_err();
    assert_eq!(error.code, "task.model_hangs", "{error}");
    assert!(error.message.contains("get_inputs()"), "{error}");
    let giant = LINEAR.replace("IN, OUT = 32, 16", "IN, OUT = 1 << 17, 1 << 17");
    let error = bench.inspect(&giant).unwrap_err();
    assert_eq!(error.code, "task.model_too_large", "{error}");
    assert!(error.message.contains("64.0 GiB"), "{error}");
    let greedy = LINEAR.replace("IN, OUT = 32, 16", "IN, OUT = 32, 16\nTABLE = torch.ones(1 << 34)");
    assert_eq!(bench.inspect(&greedy).unwrap_err().code, "task.model_too_large");
}
