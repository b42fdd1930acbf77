"""Entry point of the `calotype` command and of `python -m calotype`."""

import sys


def main() -> None:
    try:
        from calotype.cli.main import run  # noqa: PLC0415 - the command line loads only when it is used
    except KeyboardInterrupt:
        sys.exit(130)  # what says it is not loaded yet
    sys.exit(run())


if __name__ == "__main__":
    main()
