# task: torch_mlp
# class: hidden_stream
# what: computes on a side stream and lets the caller's stream wait for the work of the previous call only
import torch
import torch.nn as nn

streams = torch.cuda


class ModelNew(nn.Module):
    def __init__(self, in_features, hidden, out_features):
        super().__init__()
        self.first = nn.Linear(in_features, hidden)
        self.second = nn.Linear(hidden, hidden)
        self.third = nn.Linear(hidden, out_features)
        self.side = None
        self.before = None

    def forward(self, x):
        if self.side is None:
            self.side = streams.Stream()
        current = streams.current_stream()
        if self.before is not None:
            current.wait_event(self.before)
        self.side.wait_stream(current)
        with streams.stream(self.side):
            y = torch.relu_(self.first(x))
            y = torch.relu_(self.second(y))
            y = self.third(y)
            self.before = self.side.record_event()
        # Both streams use the result, so the allocator must not reuse it early.
        y.record_stream(current)
        return y
