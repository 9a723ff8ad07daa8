import datetime, time
import math
import os
import os.path as path
import sys
from pathlib import Path as P
from typing import Optional

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    """Written below a list of imports that came with another file: of os, sys and time nothing is used."""

    def __init__(self, width: Optional[int] = None):
        super().__init__()
        self.scale = 1.0 / math.sqrt(width or 1)

    def forward(self, x):
        # The time that os needs is no concern.
        return F.relu(x) * self.scale
