"""A systemd unit for a deployment: systemd starts it, keeps it and restarts it. Writes nothing."""

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


_KEPT = ("CALOTYPE_MODELS", "CALOTYPE_CACHE")
"""What the one who asks for the unit has set, and systemd would not know of."""


def unit(plan: DeploymentConfig, place: DeploymentDir) -> str:
    """The unit file's text; the plan has to be kept in the place."""
    return _UNIT.format(
        name=plan.name,
        models=", ".join(plan.models).replace("%", "%%"),
        environment="".join(
            f"Environment={_quoted(f'{name}={os.environ[name]}')}\n" for name in _KEPT if name in os.environ
        ),
        python=_quoted(sys.executable),
        folder=_quoted(str(place.folder)).replace("$", "$$"),
        drain=plan.drain_s,
        stop=plan.drain_s + 30,
    )


def _quoted(word: str) -> str:
    """As systemd splits words; percent signs mean something to it, dollars in a command's arguments alone."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'
