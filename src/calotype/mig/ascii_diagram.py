"""A GPU as two rows of cells in the terminal: memory slices above, compute slices below. Knows no colours."""

from string import ascii_uppercase

from calotype.mig.layout import Layout
from calotype.mig.profiles import GpuModel

_FREE, _SHUT_IN = "·", "×"


def letters(layout: Layout) -> dict[int, str]:
    """The letter each slice has in the drawing, by its start."""
    return {part.start: ascii_uppercase[i] for i, part in enumerate(layout.slices)}


def draw(gpu: GpuModel, layout: Layout) -> list[str]:
    """Three lines; a cell shows its slice's letter, `·` where it is free, `×` where no slice can have it."""
    memory = [_FREE] * gpu.memory_slices
    compute = [_FREE] * gpu.compute_slices
    for start, letter in letters(layout).items():
        profile = gpu.by_id(next(part.profile_id for part in layout.slices if part.start == start))
        for place in profile.taken(start):
            memory[place] = letter
            if place < gpu.compute_slices:
                compute[place] = letter if place < start + profile.compute_slices else _SHUT_IN
    numbers = "".join(f"{i:>3}" for i in range(gpu.memory_slices))
    return [f"        {numbers}", f"memory  {_row(memory)}", f"compute {_row(compute)}"]


def _row(cells: list[str]) -> str:
    """A bar stands where one slice ends and another begins."""
    text = ""
    for i, cell in enumerate(cells):
        joined = i > 0 and cells[i - 1] == cell and cell not in (_FREE, _SHUT_IN)
        text += f"{' ' if joined else '│'}{cell} "
    return f" {text}│"
