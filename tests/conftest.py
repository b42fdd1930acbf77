"""What every test wants of the machine. Knows nothing of any test."""

import gc
import logging
import os
import signal
from collections.abc import Generator, Iterator

import pytest
import torch
from hypothesis import HealthCheck, settings

# Because the tests themselves run side by side.
torch.set_num_threads(1)
# And processes that they start should not spin where another could compute: docs/log.md has what that costs.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# Some virtual machines announce matrix instructions (AMX) that they cannot run; half precision on the CPU
# would crash there. oneDNN reads this at its first operation.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
# The same examples for everybody, and no judgement of how fast the machine is.
settings.register_profile(
    "calotype", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("calotype")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is imported stays: looking through it for garbage, again and again, took a third of collecting."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session", autouse=True)
def _ctrl_c() -> None:
    """Programs started in the background of a script are told to ignore it, and so would our tests be."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _root_log_handlers() -> Iterator[None]:
    """Remove handlers that a test or a library adds to the root logger: they write to a stream that ends."""
    before = list(logging.getLogger().handlers)
    yield
    for handler in set(logging.getLogger().handlers) - set(before):
        logging.getLogger().removeHandler(handler)


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Hashes of files are remembered in a cache; not in the developer's."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("CALOTYPE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
