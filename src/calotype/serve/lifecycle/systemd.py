"""Generates a systemd unit that starts, supervises and restarts a deployment."""

from __future__ import annotations

import os
import sys

from calotype.serve.lifecycle.config import DeploymentConfig
from calotype.serve.lifecycle.registry import DeploymentDir

_UNIT = """\
# As ~/.config/systemd/user/calotype-{name}.service: systemctl --user enable --now calotype-{name}
[Unit]
Description=Calotype deployment {name}: {models}
After=network.target

[Service]
Type=notify
NotifyAccess=main
{environment}ExecStart={python} -m calotype.serve.lifecycle {folder}
Restart=on-failure
RestartSec=2
TimeoutStartSec=infinity
# It drains for {drain:g} s, and workers have some more to end.
TimeoutStopSec={stop:g}
KillMode=mixed
NoNewPrivileges=true
PrivateTmp=true

[Install]
WantedBy=default.target
"""


_ENVIRONMENT = ("CALOTYPE_MODELS", "CALOTYPE_CACHE")
"""Environment variables of the caller to copy into the unit, because systemd does not know them."""


def unit(plan: DeploymentConfig, directory: DeploymentDir) -> str:
    """The unit file's text; the plan must be stored in the directory."""
    return _UNIT.format(
        name=plan.name,
        models=", ".join(plan.models).replace("%", "%%"),
        environment="".join(
            f"Environment={_quoted(f'{name}={os.environ[name]}')}\n"
            for name in _ENVIRONMENT
            if name in os.environ
        ),
        python=_quoted(sys.executable),
        folder=_quoted(str(directory.folder)).replace("$", "$$"),
        drain=plan.drain_s,
        stop=plan.drain_s + 30,
    )


def _quoted(word: str) -> str:
    """Quote a word for systemd; percent signs are escaped too, dollars only by the caller."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'
