"""Entry point of the `calotype` command and of `python -m calotype`."""

import sys


def main() -> None:
    from calotype.cli.main import run  # noqa: PLC0415 - the command line loads only when it is used

    sys.exit(run())


if __name__ == "__main__":
    main()
