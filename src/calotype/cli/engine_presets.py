"""`calotype engine presets`: the presets and what each of their passes is and does to the numbers."""

from calotype.cli.options import AsJson


def command(as_json: AsJson = False) -> None:
    """List the presets, and the passes each is made of."""
    from calotype.cli.output import print_json
    from calotype.engine.presets import PRESETS

    if as_json:
        print_json(
            {
                name: [{"pass": p.name, "effect": p.effect, "about": p.about} for p in passes]
                for name, passes in PRESETS.items()
            }
        )
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("preset", "pass", "numbers", "what it is", box=None, pad_edge=False)
    for name, passes in PRESETS.items():
        if not passes:
            table.add_row(name, "none", "exact", "diffusers' own forward pass")
        for place, one in enumerate(passes):
            table.add_row(name if place == 0 else "", one.name, one.effect, one.about)
        table.add_section()
    Console().print(table)
