//! Inputs in every way in which files of models draw them.

use nightshift_protocol::task::Distribution;

/// Inputs, each made in a way of its own, and how they are drawn.
pub(crate) const DRAWN: [(&str, Draw); 29] = [
    ("torch.rand(256, 64)", Draw::Uniform(0.0, 1.0)),
    ("1 - torch.rand(256, 64) * 4", Draw::Uniform(-3.0, 1.0)),
    ("torch.randn(256, 64) / 2 + 3", Draw::Normal(3.0, 0.5)),
    ("torch.randn(256, 64).mul_(2).sub(1)", Draw::Normal(-1.0, 2.0)),
    ("torch.empty(256, 64).uniform_(5, 6)", Draw::Uniform(5.0, 6.0)),
    ("torch.randint(0, 10, (256, 64))", Draw::Uniform(0.0, 10.0)),
    ("torch.randint(0, 1234567, (256, 64))", Draw::Uniform(0.0, 1_234_567.0)),
    ("torch.randint(0, 2, (256, 64)).float()", Draw::Steps(0.0, 2.0, 1.0)),
    ("torch.randint(0, 2, (256, 64)).float() * 2 - 1", Draw::Steps(-1.0, 3.0, 2.0)),
    ("torch.randint(0, 4, (256, 64)) * 2", Draw::Steps(0.0, 8.0, 2.0)),
    ("1 - torch.randint(0, 4, (256, 64)) / 4", Draw::Steps(0.25, 1.25, 0.25)),
    ("(torch.rand(256, 64) * 3).long().float()", Draw::Steps(0.0, 3.0, 1.0)),
    ("(torch.rand(256, 64) > 0.5)", Draw::Uniform(0.0, 2.0)),
    ("(torch.rand(256, 64) > 0.5).float()", Draw::Steps(0.0, 2.0, 1.0)),
    ("torch.arange(64)", Draw::Uniform(0.0, 64.0)),
    ("torch.arange(0, 64, 4).float()", Draw::Steps(0.0, 64.0, 4.0)),
    ("torch.zeros(256, 64, dtype=torch.long)", Draw::Uniform(-0.5, 0.5)),
    ("torch.full((256, 64), 7.0)", Draw::Uniform(6.5, 7.5)),
    // What is written to is not what it was.
    ("written(torch.zeros(256, 64), lambda x: x[:, 32:].fill_(1))", Draw::Steps(0.0, 2.0, 1.0)),
    (
        "written(torch.ones(256, 64), lambda x: x.__setitem__((slice(None), slice(32, 64)), 0))",
        Draw::Steps(0.0, 2.0, 1.0),
    ),
    ("written(torch.zeros(256, 64), lambda x: x.copy_(torch.randn(256, 64) * 50 + 7))", Draw::AboutNormal(7.0, 50.0)),
    ("written(torch.zeros(256, 64), lambda x: x.data.normal_(7, 50))", Draw::AboutNormal(7.0, 50.0)),
    ("written(torch.zeros(256, 64), lambda x: x.view(-1).normal_(7, 50))", Draw::AboutNormal(7.0, 50.0)),
    ("written(torch.zeros(64, dtype=torch.long), lambda x: x.copy_(torch.arange(64)))", Draw::Uniform(0.0, 64.0)),
    // What has no negative values gets none.
    ("torch.randn(256, 64).abs_().clamp_(0.1, 2)", Draw::AboutUniform(0.1, 2.0)),
    ("torch.rand(256, 64).log_().neg().clamp(max=4)", Draw::AboutUniform(0.0, 4.0)),
    // A number by it is something else than it by a number.
    ("2 / (torch.rand(256, 64) + 1)", Draw::AboutUniform(1.0, 2.0)),
    ("torch.rand(256, 64).bernoulli()", Draw::Steps(0.0, 2.0, 1.0)),
    ("torch.softmax(torch.rand(256, 64) / 1e6, -1) * 64", Draw::AboutUniform(1.0, 1.0)),
];

/// How an input is drawn: as said, or about so, as its values were looked at.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Draw {
    Uniform(f64, f64),
    Normal(f64, f64),
    Steps(f64, f64, f64),
    AboutUniform(f64, f64),
    AboutNormal(f64, f64),
}

impl Draw {
    /// Returns whether it is that.
    pub(crate) fn is(self, found: &Distribution) -> bool {
        let about = |found: f64, said: f64, width: f64| (found - said).abs() <= 0.05 * width;
        match (self, found) {
            (Self::Uniform(low, high), Distribution::Uniform { low: l, high: h })
            | (Self::Normal(low, high), Distribution::Normal { mean: l, std: h }) => (*l, *h) == (low, high),
            (Self::Steps(low, high, step), Distribution::Steps { low: l, high: h, step: s }) => {
                (*l, *h, *s) == (low, high, step)
            }
            (Self::AboutUniform(low, high), Distribution::Uniform { low: l, high: h }) => {
                about(*l, low, 1.0) && about(*h, high, 1.0)
            }
            (Self::AboutNormal(mean, std), Distribution::Normal { mean: m, std: s }) => {
                about(*m, mean, std) && about(*s, std, std)
            }
            _ => false,
        }
    }
}

/// A file with these inputs.
pub(crate) fn drawn() -> String {
    let inputs: Vec<&str> = DRAWN.iter().map(|(input, _)| *input).collect();
    let inputs = inputs.join(",\n        ");
    format!(
        "\
import torch
import torch.nn as nn


def written(tensor, change):
    change(tensor)
    return tensor


class Model(nn.Module):
    def forward(self, *inputs):
        return inputs[0] + 1


def get_inputs():
    return [
        {inputs},
    ]


def get_init_inputs():
    return []
"
    )
}
