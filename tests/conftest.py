"""What every test wants of the machine. Knows nothing of any test."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

# Because the tests themselves run side by side.
torch.set_num_threads(1)
# Some virtual machines announce matrix instructions (AMX) that they cannot run; half precision on the CPU
# would crash there. oneDNN reads this at its first operation.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

_TESTS = Path(__file__).parent
# Few tests that wait for much: begun last, one of them would be waited for by a machine with nothing to do.
_LONGEST = tuple(_TESTS / name for name in ("cluster", "faults", "containers", "browser", "integration"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first, for `pytest --dist loadfile --no-loadscope-reorder`."""
    items.sort(key=lambda item: not any(item.path.is_relative_to(folder) for folder in _LONGEST))


@pytest.fixture(scope="session", autouse=True)
def _ctrl_c() -> None:
    """Programs started in the background of a script are told to ignore it, and so would our tests be."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Hashes of files are remembered in a cache; not in the developer's."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("CALOTYPE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
