"""Records of measured peak rates of devices."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict

What = Literal["matmul", "convolution", "attention", "copy"]
Unit = Literal["TFLOP/s", "TOP/s", "GB/s"]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Rate(_Frozen):
    """Rate of one kind of work, on random numbers."""

    what: What
    dtype: str
    """fp32, tf32, fp16, bf16, fp8 or int8."""
    shape: str
    unit: Unit
    best: float
    """Rate of the fastest sample, the basis of shares of the ceiling."""
    median: float
    calls: int
    """Calls per sample."""
    seconds: list[float]
    """Mean seconds per call of each sample, in order."""


class NoRate(_Frozen):
    """Work that the device or the torch build does not support."""

    what: What
    dtype: str
    reason: str


class CeilingRecord(_Frozen):
    """One device with one driver and one torch."""

    format: Literal["calotype.ceiling.1"] = "calotype.ceiling.1"
    device: str
    """Name in torch, for a MIG slice of a GPU with its profile; 'CPU' and its model for the processor."""
    torch: str
    driver: str | None
    measured: AwareDatetime
    rates: list[Rate]
    missing: list[NoRate]
    command: str
    fingerprint: dict[str, Any]

    @property
    def key(self) -> tuple[str, str, str | None]:
        """Key of the rates."""
        return self.device, self.torch, self.driver

    def best(self, what: What, dtype: str) -> float | None:
        """The best rate of one kind of work, in its unit; None if not measured."""
        return next((rate.best for rate in self.rates if (rate.what, rate.dtype) == (what, dtype)), None)


class CeilingFile(_Frozen):
    """All devices measured on this machine."""

    format: Literal["calotype.ceilings.1"] = "calotype.ceilings.1"
    devices: list[CeilingRecord] = []
