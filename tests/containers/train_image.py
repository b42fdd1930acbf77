"""Builds the image for training and trains in it: two ranks, no root, read-only, without network.

PYTHONPATH=src python -m tests.containers.train_image

No test, since it takes minutes: run it when containers/train.Dockerfile or what it installs has changed.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from tests.containers.podman import LIMITS, REPOSITORY, base_and_wheels, build, podman

_RECIPE = (
    *("model.precision=fp32", "model.compile=false", "model.channels_last=false", "model.cuda_graphs=false"),
    *("model.micro_batch_size=1", "model.global_batch_size=2", "model.resolution=64"),
    *(
        "data.kind=synthetic",
        "data.num_workers=0",
        "validation.data=null",
        "logging.sample_every_steps=0",
        "trainer.max_steps=2",
    ),
    *("trainer.devices=2", "checkpoint.folder=/tmp/run"),
)


def _context(folder: Path) -> Path:
    """What a checkout has, without what only tests need."""
    tracked = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    for name in tracked:
        if (REPOSITORY / name).is_file() and name.split("/")[0] not in ("tests", "benchmarks"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPOSITORY / name, folder / name)
    return folder


def _inside(image: str, *words: str) -> str:
    """What a program prints that has the image to itself, as a cluster would run it."""
    entry, *rest = words
    closed = ["--rm", "--network=none", "--read-only", "--tmpfs=/tmp", "--cap-drop=all", *LIMITS]
    return podman("run", *closed, "--env=OMP_NUM_THREADS=1", f"--entrypoint={entry}", image, *rest)


def main() -> None:
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        base, wheels = base_and_wheels(folder, "train")
        base_and_wheels(folder, "data")
        ready = time.monotonic()
        image = build("containers/train.Dockerfile", _context(folder / "context"), base, wheels)
    built = time.monotonic()
    try:
        assert _inside(image, "id", "-u") == "10001"
        print(_inside(image, "calotype", "doctor"))
        ranks = ("--standalone", "--nproc-per-node=2", "-m", "calotype", "train", "emoji")
        said = _inside(image, "torchrun", *ranks, *_RECIPE, "--device=cpu")
        print(said)
        assert "done at step 2" in said
        size = int(podman("image", "inspect", "--format={{.Size}}", image)) / 2**20
    finally:
        podman("rmi", "--force", image)
    trained = time.monotonic()
    print(f"{size:.0f} MiB; base and wheels {ready - began:.0f} s, ", end="")
    print(f"build {built - ready:.0f} s, runs {trained - built:.0f} s")


if __name__ == "__main__":
    main()
