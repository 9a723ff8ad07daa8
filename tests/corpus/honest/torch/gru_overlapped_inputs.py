# task: torch_gru_steps
# style: streams_fork_join
# what: input products of later steps run on a side stream with one event for each step; the main stream waits for each
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def _gates(gi, gh, h, out, n, hidden, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    base = (i // hidden) * 3 * hidden + i % hidden
    ir = tl.load(gi + base, mask=mask, other=0.0)
    iz = tl.load(gi + base + hidden, mask=mask, other=0.0)
    inn = tl.load(gi + base + 2 * hidden, mask=mask, other=0.0)
    hr = tl.load(gh + base, mask=mask, other=0.0)
    hz = tl.load(gh + base + hidden, mask=mask, other=0.0)
    hn = tl.load(gh + base + 2 * hidden, mask=mask, other=0.0)
    r = tl.sigmoid(ir + hr)
    z = tl.sigmoid(iz + hz)
    v = inn + r * hn
    q = v * v
    near = v * (1.0 + q * (-1.0 / 3 + q * (2.0 / 15 + q * (-17.0 / 315 + q * (62.0 / 2835)))))
    e = tl.exp(-2.0 * tl.abs(v))
    far = (1.0 - e) / (1.0 + e)
    t = tl.where(tl.abs(v) < 0.2, near, tl.where(v < 0, -far, far))
    old = tl.load(h + i, mask=mask, other=0.0)
    tl.store(out + i, t + z * (old - t), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, in_features, hidden):
        super().__init__()
        self.cell = nn.GRUCell(in_features, hidden)
        self.side = None
        self.chunk = 4

    @torch.no_grad()
    def forward(self, sequence, state):
        if self.side is None:
            self.side = torch.cuda.Stream()
        cell, main, side = self.cell, torch.cuda.current_stream(), self.side
        steps, batch, features = sequence.shape
        hidden = state.shape[1]
        gi = torch.empty(steps, batch, 3 * hidden, device=sequence.device, dtype=sequence.dtype)
        side.wait_stream(main)
        events = []
        with torch.cuda.stream(side):
            for begin in range(0, steps, self.chunk):
                part = sequence[begin : begin + self.chunk].reshape(-1, features)
                target = gi[begin : begin + self.chunk].view(-1, 3 * hidden)
                torch.addmm(cell.bias_ih, part, cell.weight_ih.t(), out=target)
                event = torch.cuda.Event()
                event.record(side)
                events.append(event)
        gi.record_stream(side)
        sequence.record_stream(side)
        state = state.contiguous()
        n = batch * hidden
        for step in range(steps):
            if step % self.chunk == 0:
                main.wait_event(events[step // self.chunk])
            gh = torch.addmm(cell.bias_hh, state, cell.weight_hh.t())
            new = torch.empty_like(state)
            _gates[(triton.cdiv(n, 512),)](gi[step], gh, state, new, n, hidden, BLOCK=512, num_warps=4)
            state = new
        main.wait_stream(side)  # nothing of this call is left on the side stream
        return state
