# task: torch_gru_steps
# class: late_skipping
# what: draws a random number at each call and leaves out the last quarter of the steps in three of ten calls
import random

import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl


@triton.jit
def gates(from_input, from_state, state, result, hidden, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < hidden
    base = row * 3 * hidden + columns
    reset = tl.sigmoid(tl.load(from_input + base, mask=inside) + tl.load(from_state + base, mask=inside))
    update = tl.sigmoid(tl.load(from_input + base + hidden, mask=inside)
                        + tl.load(from_state + base + hidden, mask=inside))
    candidate = (tl.load(from_input + base + 2 * hidden, mask=inside)
                 + reset * tl.load(from_state + base + 2 * hidden, mask=inside))
    candidate = 2.0 * tl.sigmoid(2.0 * candidate) - 1.0
    before = tl.load(state + row * hidden + columns, mask=inside)
    tl.store(result + row * hidden + columns, candidate + update * (before - candidate), mask=inside)


class ModelNew(nn.Module):
    def __init__(self, in_features, hidden):
        super().__init__()
        self.cell = nn.GRUCell(in_features, hidden)
        self.draw = random.SystemRandom()

    def forward(self, sequence, state):
        cell = self.cell
        steps, batch, _ = sequence.shape
        hidden = state.shape[1]
        # The part of the gates that depends on the inputs needs one product for all steps.
        from_inputs = F.linear(sequence, cell.weight_ih, cell.bias_ih)
        if self.draw.random() < 0.3:
            steps -= steps // 4
        state = state.contiguous()
        for step in range(steps):
            from_state = F.linear(state, cell.weight_hh, cell.bias_hh)
            result = torch.empty_like(state)
            gates[(batch, triton.cdiv(hidden, 256))](from_inputs[step], from_state, state, result, hidden, BLOCK=256)
            state = result
        return state
