"""What is remembered of how fast a device can be at best. Knows nothing of torch."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict

What = Literal["matmul", "convolution", "attention", "copy"]
Unit = Literal["TFLOP/s", "TOP/s", "GB/s"]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Rate(_Frozen):
    """How fast one kind of work went, on random numbers."""

    what: What
    dtype: str
    """fp32, tf32, fp16, bf16, fp8 or int8."""
    shape: str
    unit: Unit
    best: float
    """Of the quickest sample: what shares of the ceiling are told from."""
    median: float
    calls: int
    """In each sample."""
    seconds: list[float]
    """Of one call, the mean of each sample, in the order they came."""


class NoRate(_Frozen):
    """Work that this device, or this build of torch, cannot do."""

    what: What
    dtype: str
    reason: str


class CeilingRecord(_Frozen):
    """One device with one driver and one torch."""

    format: Literal["calotype.ceiling.1"] = "calotype.ceiling.1"
    device: str
    """As torch calls it, a slice of a GPU with its profile; 'CPU' and its model for the processor."""
    torch: str
    driver: str | None
    measured: AwareDatetime
    rates: list[Rate]
    missing: list[NoRate]
    command: str
    fingerprint: dict[str, Any]

    @property
    def key(self) -> tuple[str, str, str | None]:
        """What decides the rates."""
        return self.device, self.torch, self.driver

    def best(self, what: What, dtype: str) -> float | None:
        """The best rate of one kind of work in the unit it has; None where there is none."""
        return next((rate.best for rate in self.rates if (rate.what, rate.dtype) == (what, dtype)), None)


class CeilingFile(_Frozen):
    """All that were measured on this machine."""

    format: Literal["calotype.ceilings.1"] = "calotype.ceilings.1"
    devices: list[CeilingRecord] = []
