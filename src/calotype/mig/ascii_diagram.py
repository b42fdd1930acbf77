"""Draws a GPU as two rows of cells in the terminal: memory slices above, compute slices below."""

from string import ascii_uppercase

from calotype.mig.layout import Layout
from calotype.mig.profiles import GpuModel

_FREE, _UNUSABLE = "·", "×"


def letters(layout: Layout) -> dict[int, str]:
    """Start of each slice → its letter in the drawing."""
    return {part.start: ascii_uppercase[i] for i, part in enumerate(layout.slices)}


def draw(gpu: GpuModel, layout: Layout) -> list[str]:
    """Three lines; a cell shows its slice's letter, `·` if it is free, `×` if no slice can use it."""
    memory = [_FREE] * gpu.memory_slices
    compute = [_FREE] * gpu.compute_slices
    for start, letter in letters(layout).items():
        profile = gpu.by_id(next(part.profile_id for part in layout.slices if part.start == start))
        for place in profile.taken(start):
            memory[place] = letter
            if place < gpu.compute_slices:
                compute[place] = letter if place < start + profile.compute_slices else _UNUSABLE
    numbers = "".join(f"{i:>3}" for i in range(gpu.memory_slices))
    return [f"        {numbers}", f"memory  {_row(memory)}", f"compute {_row(compute)}"]


def _row(cells: list[str]) -> str:
    """A bar separates adjacent slices."""
    text = ""
    for i, cell in enumerate(cells):
        joined = i > 0 and cells[i - 1] == cell and cell not in (_FREE, _UNUSABLE)
        text += f"{' ' if joined else '│'}{cell} "
    return f" {text}│"
