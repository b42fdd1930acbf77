"""One image is one seed: company, batch size and position do not change which picture it is."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from calotype.engine.engine import Engine
from calotype.sampling import NoiseStream
from calotype.spec.names import SAMPLERS
from tests.engines import begun, difference, latents_of, relative, small_engine, to_the_end

SIZE = {"width": 32, "height": 48}

def test_measure(engine):
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        e = engine if dtype==torch.float32 else small_engine("emoji", dtype=dtype)
        for s in SAMPLERS:
            alone=e.generate("a red apple", **SIZE, sampler=s, seed=12, steps=4).images[0]
            d=[]
            for n in (2,3,4,7):
                for pos in (0,n-1):
                    g=e.generate("a red apple", **SIZE, sampler=s, seed=12-pos, steps=4,count=n).images[pos]
                    d.append(difference(g,alone))
            la=latents_of(e,[12],**SIZE,sampler=s,steps=4)
            lb=latents_of(e,[11,12,13],**SIZE,sampler=s,steps=4)[1:2]
            print(dtype,s,d, relative(lb,la))
