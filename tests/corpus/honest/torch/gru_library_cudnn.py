# task: torch_gru_steps
# style: library_only
# what: hands the cell's weights to the fused GRU of the library with TF32 switched off for this call
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, in_features, hidden):
        super().__init__()
        self.cell = nn.GRUCell(in_features, hidden)

    def forward(self, sequence, state):
        c = self.cell
        weights = [c.weight_ih, c.weight_hh, c.bias_ih, c.bias_hh]
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
            # has_biases, num_layers, dropout, train, bidirectional, batch_first
            _, last = torch.gru(sequence, state.unsqueeze(0), weights, True, 1, 0.0, False, False, False)
        return last.squeeze(0)
