"""The image for serving, really built and run: it answers, as no root, and stops when it is told to."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.containers.podman import LIMITS, REPOSITORY, base_and_wheels, build, inside, network, podman

BUILT = "src/calotype/resources/assets/built-by-others.txt"
_ASK = """
import sys
from calotype.serve.client import Client
with Client("127.0.0.1:8189", api_key=sys.argv[1]) as client:
    answer = client.query("a red apple", steps=2, seed=7)
print(*answer.images[0].size, answer.images[0].format)
"""
_LOOK = """
import httpx
print(httpx.get("http://127.0.0.1:8188/readyz").status_code)
print(httpx.get("http://127.0.0.1:8188/v1/deployment").status_code)
"""


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Built from what a checkout has, and a file that only a build step has put there, as the page's are."""
    folder = tmp_path_factory.mktemp("image")
    context = folder / "context"
    tracked = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    ).stdout.splitlines()
    for name in tracked:
        if (REPOSITORY / name).is_file() and name.split("/")[0] not in ("tests", "benchmarks"):
            (context / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPOSITORY / name, context / name)
    (context / BUILT).write_text("made by a build step")
    (context / "secret.txt").write_text("of nobody's concern")
    base, wheels = base_and_wheels(folder, "serve")
    name = build("containers/serve.Dockerfile", context, base, wheels)
    # 300 MB that nobody needs any more.
    shutil.rmtree(wheels)
    try:
        yield name
    finally:
        podman("rmi", "--force", name)


@dataclass
class Server:
    """A container that serves, and who may ask it."""

    container: str
    namespace: str
    key: str


@pytest.fixture(scope="module")
def server(image: str) -> Iterator[Server]:
    """As the compose file starts it, once a key was made in its volume."""
    volume = f"calotype-tests-{uuid.uuid4().hex[:8]}"
    mounted = f"--volume={volume}:/var/lib/calotype"
    guarded = ["--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges"]
    with network() as namespace:
        try:
            key = podman(
                "run", "--rm", *LIMITS, "--network=none", *guarded, mounted, image, "keys", "create", "me"
            )
            joined = f"--network=ns:/run/netns/{namespace}"
            container = podman("run", "--detach", *LIMITS, joined, *guarded, mounted, image)
            try:
                yield Server(container, namespace, key)
            finally:
                podman("rm", "--force", "--time=0", container)
        finally:
            podman("volume", "rm", "--force", volume)


def test_the_server_is_healthy_answers_and_stops(server: Server) -> None:
    _wait_until_healthy(server.container)
    python = [server.namespace, "env", f"PYTHONPATH={REPOSITORY / 'src'}", sys.executable, "-c"]
    # Ready for anybody to see, and nothing else without a key.
    assert inside(*python, _LOOK).split() == ["200", "401"]
    assert inside(*python, _ASK, server.key) == "128 128 PNG"
    processes = podman("top", server.container, "user", "args").splitlines()[1:]
    assert len(processes) > 1
    assert all(line.split()[0] in ("calotype", "10001") for line in processes), processes
    podman("stop", "--time=60", server.container)
    assert podman("inspect", "--format={{.State.ExitCode}}", server.container) == "0"
    logged = subprocess.run(
        ["podman", "logs", server.container], capture_output=True, text=True, check=True, timeout=300
    )
    assert "draining" in logged.stderr


def _wait_until_healthy(container: str) -> None:
    """Without systemd nobody asks a health check regularly: it is asked here."""
    limit = time.monotonic() + 300
    while subprocess.run(
        ["podman", "healthcheck", "run", container], capture_output=True, check=False, timeout=300
    ).returncode:
        state = podman("inspect", "--format={{.State.Status}}", container)
        assert (state, time.monotonic() < limit) == ("running", True), podman("logs", container)
        # To ask takes half a second of a processor that the server needs to start.
        time.sleep(2)


def test_the_image_holds_what_serving_needs_and_nothing_else(image: str) -> None:
    root = Path(podman("image", "mount", image))
    try:
        (package,) = root.glob("opt/calotype/lib/python3*/site-packages/calotype")
        assert (package / Path(BUILT).relative_to("src/calotype")).is_file()
        assert not list(root.glob("**/secret.txt"))
        for left in (
            "src",
            "wheels",
            "dist",
            "opt/build",
            "root/.cache",
            "tmp/first",
            "tmp/requirements.txt",
        ):
            assert not (root / left).exists() or not any((root / left).iterdir()), left
        # Python's compiled files are there for what is used, because nobody may write them later.
        assert list((package.parent / "torch" / "nn" / "__pycache__").glob("*.pyc"))
    finally:
        podman("image", "unmount", image)


def test_an_image_that_nobody_gave_a_key_to_says_what_to_do(image: str) -> None:
    done = subprocess.run(
        ["podman", "--runtime=runc", "run", "--rm", *LIMITS, "--network=none", image],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 2
    assert "calotype keys create NAME" in done.stderr
