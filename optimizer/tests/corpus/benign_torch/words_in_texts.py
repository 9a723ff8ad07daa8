"""Do not exec(), eval(), import os, open() or torch.compile() here: a text does nothing."""
import torch
from torch import nn

# Model, get_inputs, try: except: pass, threading, setattr(torch, "x", 1), time.time()
NOTE = "two pass softmax; import subprocess; class ModelNew(Model): pass"


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor):
        shifted = x - x.amax(dim=-1, keepdim=True)
        exponent = shifted.exp()
        return exponent / exponent.sum(dim=-1, keepdim=True)
