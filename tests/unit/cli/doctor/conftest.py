"""The pretended drivers of core's tests, beside the command that reports on them."""

from tests.unit.core.conftest import RunPython, driver_folders, run_python

__all__ = ["RunPython", "driver_folders", "run_python"]
