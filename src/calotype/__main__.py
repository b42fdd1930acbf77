"""Entry point of the `calotype` command and of `python -m calotype`."""

import sys

_CANCELLED = 130
"""The value of ExitCode.CANCELLED, whose module is not imported yet."""


def main() -> None:
    try:
        run = _load_command_line()
    except KeyboardInterrupt:
        sys.exit(_CANCELLED)
    sys.exit(run())


def _load_command_line():  # type: ignore[no-untyped-def]  # `collections.abc` is not imported yet
    """Import the command line; Ctrl-C meanwhile ends the process without output.

    A KeyboardInterrupt inside an import prints a traceback, or Python drops it and the command continues.
    """
    import os  # noqa: PLC0415 - inside the caller's `try`
    import signal  # noqa: PLC0415

    def exit_at_once(*_: object) -> None:
        # Nothing needs to be flushed: nothing has been written yet.
        os._exit(_CANCELLED)

    # Not where the caller of this process has it ignore the signal, as `nohup` does.
    handles = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if handles:
        signal.signal(signal.SIGINT, exit_at_once)
    from calotype.cli.main import run  # noqa: PLC0415 - after the handler is in place

    if handles:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return run


if __name__ == "__main__":
    main()
