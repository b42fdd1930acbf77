"""Persists a layout across reboots: a layout file and a systemd unit that restores it before containers
start.

The unit runs `calotype mig restore`, which changes only what differs, so it may run any number of times; it
never reboots.
"""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from calotype.core.errors import CalotypeError, ExitCode
from calotype.core.paths import atomic_write

UNIT = "calotype-mig.service"
UNIT_PLACE = Path("etc/systemd/system") / UNIT
LAYOUT_PLACE = Path("etc/calotype/mig-layout.json")
CDI_SPEC = "/etc/cdi/nvidia.yaml"

# Services that expose slices must start after them.
_AFTER = ("systemd-modules-load.service", "nvidia-persistenced.service")
_BEFORE = (
    "docker.service",
    "containerd.service",
    "crio.service",
    "podman.service",
    "kubelet.service",
    "nvidia-dcgm.service",
    "nvidia-cdi-refresh.service",
)


class PersistError(CalotypeError):
    """The unit could not be installed or removed."""

    exit_code = ExitCode.GPU_REFUSED


@dataclass(frozen=True)
class Installed:
    """Written or removed files, and executed systemctl commands."""

    paths: tuple[Path, ...]
    commands: tuple[str, ...]


def this_program() -> list[str]:
    """The command that runs this installation from a unit: absolute, independent of PATH."""
    return [sys.executable, "-m", "calotype"]


def cdi_command() -> list[str] | None:
    """The command that updates the list of slices of container engines; None without NVIDIA's toolkit."""
    tool = shutil.which("nvidia-ctk")
    return [tool, "cdi", "generate", f"--output={CDI_SPEC}"] if tool else None


def unit_text(program: Sequence[str], layout: str, driver: str | None = None) -> str:
    """Render the unit. `program` is absolute; `driver` is None for the automatic one."""
    restore = [*program, "mig", "restore", layout, "--yes", *(["--driver", driver] if driver else [])]
    lines = [
        "[Unit]",
        "Description=GPU slices (MIG) as kept by calotype",
        f"After={' '.join(_AFTER)}",
        "Wants=nvidia-persistenced.service",
        f"Before={' '.join(_BEFORE)}",
        f"ConditionPathExists={layout}",
        "",
        "[Service]",
        "Type=oneshot",
        "RemainAfterExit=yes",
        "StateDirectory=calotype",
        "Environment=CALOTYPE_STATE=%S/calotype",
        f"ExecStart={_quoted(restore)}",
        "TimeoutStartSec=300",
        "",
        "[Install]",
        "WantedBy=multi-user.target",
        "",
    ]
    refresh = cdi_command()
    if refresh:
        # Missing slices are worse than an outdated CDI specification, so its failure is ignored.
        lines.insert(lines.index("TimeoutStartSec=300"), f"ExecStartPost=-{_quoted(refresh)}")
    return "\n".join(lines)


def install(root: Path, unit: str, layout: str) -> Installed:
    """Write both files under `root` and enable the unit; idempotent."""
    paths = (root / LAYOUT_PLACE, root / UNIT_PLACE)
    for path, text in zip(paths, (layout, unit), strict=True):
        if not path.is_file() or path.read_text("utf-8") != text:
            _write(path, text)
    return Installed(paths, (*_reload(root), _systemctl(root, "enable", UNIT)))


def remove(root: Path) -> Installed:
    """Remove both files; missing files are ignored."""
    paths = tuple(path for path in (root / UNIT_PLACE, root / LAYOUT_PLACE) if path.is_file())
    commands = (_systemctl(root, "disable", UNIT),) if root / UNIT_PLACE in paths else ()
    for path in paths:
        path.unlink()
    return Installed(paths, (*commands, *(_reload(root) if commands else ())))


def _write(path: Path, text: str) -> None:
    try:
        with atomic_write(path, "w") as file:
            file.write(text)
    except PermissionError as error:
        raise PersistError(f"{path}: {error.strerror}; run it as root (sudo), or give --root") from None


def _reload(root: Path) -> tuple[str, ...]:
    """Reload a running systemd; one in another root is not running."""
    return (_systemctl(root, "daemon-reload"),) if root == Path("/") else ()


def _systemctl(root: Path, *words: str) -> str:
    command = ["systemctl", *([] if root == Path("/") else [f"--root={root}"]), *words]
    program = shutil.which("systemctl")
    if program is None:
        raise PersistError(f"systemctl is not installed; it is needed to run: {shlex.join(command)}")
    completed = subprocess.run(  # noqa: S603 - fixed words
        [program, *command[1:]], capture_output=True, text=True, env=os.environ | {"LC_ALL": "C"}, check=False
    )
    if completed.returncode != 0:
        raise PersistError(f"{shlex.join(command)}: {' '.join(completed.stderr.split())}")
    return shlex.join(command)


def _quoted(words: Sequence[str]) -> str:
    """Quote a command line for systemd, which expands `%` and `$`."""
    return " ".join(
        '"' + word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$") + '"'
        if any(letter in word for letter in " \t\"'\\%$;")
        else word
        for word in words
    )
