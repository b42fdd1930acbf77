"""Matrix products on a CPU by the library that uses all of its vector units.

torch leaves them to MKL, which takes AVX-512 on Intel's processors alone. Since Zen 5 AMD's do 512 bits at
once as well: there MKL reaches 110 GFLOP/s a core and oneDNN 240. Convolutions are oneDNN's anyhow, so fast
there that Winograd's method gains nothing where it is not compiled, and presets have this in its place.
"""

from dataclasses import replace

from calotype.engine.modules import onednn, ops
from calotype.engine.passes import NetworkBuilder, Pass
from calotype.engine.passes.native_unet import NATIVE_UNET
from calotype.models.model import Model


def _missing(model: Model) -> str | None:
    if model.device.type != "cpu":
        return "it is for a CPU"
    return None if onednn.available() else "this torch is built without oneDNN"


def _apply(assembly: NetworkBuilder) -> None:
    chosen = assembly.operations
    # What another pass has put in the place of transformers' products is left there.
    inner = onednn.linear if chosen.linear is ops.linear else chosen.linear
    assembly.operations = replace(chosen, linear=inner, outer_linear=onednn.linear)


ONEDNN_LINEAR = Pass("wide_products", "rounding", _missing, _apply, after=(NATIVE_UNET.name,))
