"""The part that needs a GPU, run by hand on one: `python -m tests.unit.train.checkpoint.gpu_check`.

Shows that a state is copied before the next step changes it although `save` does not wait for the copy, and
what saving costs training. Not collected by pytest: the machines that run the tests have no GPU.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import torch

from calotype.train.checkpoint import BackgroundSaver, CheckpointManager

NUM_TENSORS, ITEMS = 64, 2**24


def main() -> None:
    weights = [torch.full((ITEMS,), float(index), device="cuda") for index in range(NUM_TENSORS)]
    strided = torch.randn(64, 32, 3, 3, device="cuda").to(memory_format=torch.channels_last)
    expected = strided.cpu()
    state = {"weights": weights, "strided": strided}
    with (
        tempfile.TemporaryDirectory() as folder,
        CheckpointManager(Path(folder), keep_last=1) as store,
        BackgroundSaver(store) as saver,
    ):
        for step in range(3):
            torch.cuda.synchronize()
            started = time.perf_counter()
            saver.save(step, state, {"rng": torch.cuda.get_rng_state()})
            returned = time.perf_counter()
            torch._foreach_add_(weights, 1.0)
            strided.zero_()
            torch.cuda.synchronize()
            copied = time.perf_counter()
            saver.wait()
            written = time.perf_counter()
            print(
                f"save {step}: returned after {returned - started:.3f} s, "
                f"copied after {copied - started:.3f} s, written after {written - started:.3f} s"
            )
            shared, _ = store.load(Path(folder) / f"step-{step:08d}")
            for index, tensor in enumerate(shared["weights"]):
                assert bool((tensor == index + step).all()), (step, index)
            assert shared["strided"].stride() == expected.stride()
            assert torch.equal(shared["strided"], expected if step == 0 else torch.zeros_like(expected))
        assert all(buffer.is_pinned() for buffer in saver._shared_buffers._buffers.values())
    print(f"right; {NUM_TENSORS * ITEMS * 4 / 2**30:.1f} GiB of weights")


if __name__ == "__main__":
    main()
