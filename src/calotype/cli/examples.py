"""Example command lines at the end of a command's `--help`: `app.command(epilog=examples(...))`."""

PROMPT = "$ "


def examples(*lines: str) -> str:
    """The epilog that lists command lines, such as `calotype generate "a red apple"`."""
    # Typer joins single line breaks and keeps empty lines as line breaks.
    return "\n\n".join(["Examples:", *(f"{PROMPT}{line}" for line in lines)])
