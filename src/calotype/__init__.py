"""Calotype: Stable Diffusion on data-centre GPUs, from slicing the card to serving the picture.

Importing this package costs nothing: torch and diffusers load when a model does.

    import calotype
    picture = calotype.load("emoji").generate("a red apple").images[0]

    calotype.deploy("emoji", name="sd_deploy")
    picture = calotype.client("sd_deploy").query("a red apple").images[0]
"""

from calotype.version import VERSION

# Type checkers take it as true. `typing` is not imported: the command line imports this module before it can
# handle Ctrl-C, so this module imports next to nothing.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from calotype.engine.load import load as load
    from calotype.serve.client import client as client
    from calotype.serve.lifecycle.api import deploy as deploy
    from calotype.serve.lifecycle.api import undeploy as undeploy
    from calotype.serve.lifecycle.api import update as update

__version__ = VERSION
__all__ = ["__version__", "client", "deploy", "load", "undeploy", "update"]

_HOMES = {
    "client": "calotype.serve.client",
    "deploy": "calotype.serve.lifecycle.api",
    "load": "calotype.engine.load",
    "undeploy": "calotype.serve.lifecycle.api",
    "update": "calotype.serve.lifecycle.api",
}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        # Both late, so that `import calotype` is quick.
        from importlib import import_module  # noqa: PLC0415

        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'calotype' has no attribute {name!r}")
