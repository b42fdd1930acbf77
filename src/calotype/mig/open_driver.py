"""Opens a MIG driver by name: NVML, nvidia-smi, or a simulated machine in a file."""

import shutil
from pathlib import Path

from calotype.core.errors import Problem, RequestError
from calotype.mig.driver import DriverError, MigDriver, Refusal
from calotype.mig.nvml_driver import NvmlDriver
from calotype.mig.simulation.fake_driver import SimulatedDriver
from calotype.mig.smi_driver import PROGRAM, SmiDriver

AUTOMATIC = "auto"
SIMULATED = "simulated:"


def open_driver(name: str) -> MigDriver:
    """`auto`, `nvml`, `nvidia-smi` or `simulated:FILE`."""
    if name.startswith(SIMULATED):
        return SimulatedDriver(Path(name.removeprefix(SIMULATED)))
    if name == "nvml":
        return NvmlDriver()
    if name == PROGRAM:
        return SmiDriver()
    if name != AUTOMATIC:
        rule = f"{name!r} is not a driver; known: auto, nvml, {PROGRAM}, {SIMULATED}FILE"
        raise RequestError([Problem("--driver", rule, name)])
    try:
        NvmlDriver().read()
    except DriverError as error:
        # The library may be missing although the command exists, as in some containers; other errors are
        # final.
        if error.refusal is Refusal.NO_DRIVER and shutil.which(PROGRAM):
            return SmiDriver()
        raise
    return NvmlDriver()


def absolute(name: str) -> str | None:
    """The driver's name for a program with another working directory; None for the automatic one."""
    if name.startswith(SIMULATED):
        return f"{SIMULATED}{Path(name.removeprefix(SIMULATED)).absolute()}"
    return None if name == AUTOMATIC else name
