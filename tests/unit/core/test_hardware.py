"""Processor, memory and disk, on pretended and on real files."""

from pathlib import Path

import pytest

from calotype.core.hardware import read_cpu, read_disk, read_memory

GIB = 1024**3


def write(folder: Path, **files: str) -> Path:
    """Files under `folder`; `__` in a name stands for a slash and DOT for a dot."""
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("DOT", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_this_machine_has_a_processor_and_memory() -> None:
    cpu, memory = read_cpu(), read_memory()
    assert 1 <= cpu.num_usable_cores <= cpu.num_cores
    assert cpu.model
    assert memory.total_bytes is not None
    assert memory.available_bytes is not None
    assert 0 < memory.available_bytes <= memory.total_bytes


def test_the_first_model_name_is_taken(tmp_path: Path) -> None:
    proc = write(
        tmp_path, cpuinfo="processor : 0\nmodel name\t: Fast CPU @ 3 GHz\n\nprocessor : 1\nmodel name: Slow\n"
    )
    assert read_cpu(proc, tmp_path).model == "Fast CPU @ 3 GHz"


@pytest.mark.parametrize(
    "files",
    [
        {"cpuDOTmax": "100000 100000\n"},
        {"cpuDOTmax": "50000 100000\n"},
        {"cpu__cpuDOTcfs_quota_us": "100000\n", "cpu__cpuDOTcfs_period_us": "100000\n"},
    ],
)
def test_a_containers_quota_limits_the_cores(tmp_path: Path, files: dict[str, str]) -> None:
    assert read_cpu(cgroup=write(tmp_path, **files)).num_usable_cores == 1


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"cpuDOTmax": "max 100000\n"},
        {"cpu__cpuDOTcfs_quota_us": "-1\n", "cpu__cpuDOTcfs_period_us": "100000\n"},
    ],
)
def test_no_quota_leaves_the_cores_alone(tmp_path: Path, files: dict[str, str]) -> None:
    without = read_cpu(cgroup=tmp_path / "absent")
    assert read_cpu(cgroup=write(tmp_path, **files)) == without


_MEMINFO = f"MemTotal: {32 * GIB // 1024} kB\nMemFree: 1 kB\nMemAvailable: {20 * GIB // 1024} kB\n"


def test_memory_without_a_limit(tmp_path: Path) -> None:
    memory = read_memory(write(tmp_path, meminfo=_MEMINFO, memoryDOTmax="max\n"), tmp_path)
    assert (memory.total_bytes, memory.available_bytes, memory.limit_bytes) == (32 * GIB, 20 * GIB, None)


@pytest.mark.parametrize(
    "files",
    [
        {"memoryDOTmax": str(8 * GIB), "memoryDOTcurrent": str(3 * GIB)},
        {"memory__memoryDOTlimit_in_bytes": str(8 * GIB), "memory__memoryDOTusage_in_bytes": str(3 * GIB)},
    ],
)
def test_a_containers_limit_lowers_what_is_available(tmp_path: Path, files: dict[str, str]) -> None:
    memory = read_memory(write(tmp_path, meminfo=_MEMINFO, **files), tmp_path)
    assert (memory.total_bytes, memory.available_bytes, memory.limit_bytes) == (32 * GIB, 5 * GIB, 8 * GIB)


def test_a_limit_above_the_total_is_none(tmp_path: Path) -> None:
    memory = read_memory(
        write(tmp_path, meminfo=_MEMINFO, memory__memoryDOTlimit_in_bytes=str(2**63 - 4096)), tmp_path
    )
    assert memory.limit_bytes is None


def test_unknown_memory_is_none(tmp_path: Path) -> None:
    memory = read_memory(tmp_path, tmp_path)
    assert (memory.total_bytes, memory.available_bytes) == (None, None)


def test_a_folder_still_to_be_made_has_the_room_of_its_parent(tmp_path: Path) -> None:
    disk = read_disk("models", tmp_path / "not" / "yet")
    assert disk.path == tmp_path / "not" / "yet"
    assert disk.total_bytes == read_disk("models", tmp_path).total_bytes
    assert disk.writable
    assert not (tmp_path / "not").exists()


def test_a_folder_below_a_file_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert not read_disk("models", tmp_path / "file" / "sub").writable
