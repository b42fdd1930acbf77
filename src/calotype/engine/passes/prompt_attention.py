"""Attention of places to a prompt by a kernel of our own, which has a head's keys and values at hand.

They are few: what takes time is reading queries and writing results, which it does once, in the widest
pieces. Not measured yet. What does not suit it (masks, long prompts, other heads) is done as before.
"""

from calotype.engine.kernels import prompt_attention as own
from calotype.engine.passes import Assembly, Pass
from calotype.engine.passes.own_attention import needs_a_gpu, where_it_suits
from calotype.engine.passes.own_forward import OWN_FORWARD


def _apply(assembly: Assembly) -> None:
    where_it_suits(own)(assembly)


PROMPT_ATTENTION = Pass("prompt_attention", "rounding", needs_a_gpu, _apply, after=(OWN_FORWARD.name,))
