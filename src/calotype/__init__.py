"""Calotype: Stable Diffusion on data-centre GPUs, from slicing the card to serving the picture.

Importing this package costs nothing: torch and diffusers load when a model does.

    import calotype
    picture = calotype.load("emoji").generate("a red apple").images[0]
"""

from typing import TYPE_CHECKING

from calotype.version import VERSION

if TYPE_CHECKING:
    from calotype.engine.load import load as load

__version__ = VERSION
__all__ = ["__version__", "load"]


def __getattr__(name: str) -> object:
    if name == "load":
        from calotype.engine.load import load  # noqa: PLC0415 - late, so that `import calotype` is quick

        return load
    raise AttributeError(f"module 'calotype' has no attribute {name!r}")
