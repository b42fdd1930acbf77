"""Renders a report as one self-contained HTML page.

The template or the XML writer escapes all text. The page's content security policy allows its one script
and no network access.
"""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files
from xml.etree.ElementTree import Element, tostring

from calotype.bench.report.document import Report
from calotype.version import VERSION

_MIN_ROWS_TO_FILTER = 6


def page(report: Report) -> str:
    from jinja2 import Environment, StrictUndefined  # noqa: PLC0415 - only pages need it
    from markupsafe import Markup  # noqa: PLC0415 - comes with it

    style, script = _resource("plots/style.css") + _resource("page.css"), _resource("page.js")
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    template = environment.from_string(_resource("page.html"))
    return template.render(
        report=report,
        style=Markup(style),  # noqa: S704 - ours
        script=Markup(script),  # noqa: S704 - ours
        style_hash=_hash(style),
        script_hash=_hash(script),
        version=VERSION,
        svg=lambda plot: Markup(svg(plot)),  # noqa: S704 - the XML writer escapes
        least_rows=_MIN_ROWS_TO_FILTER,
    )


def svg(plot: Element) -> str:
    return tostring(plot, encoding="unicode")


def standalone_svg(plot: Element) -> str:
    """Return the plot as an SVG file with its own style, for Markdown."""
    text = svg(plot).replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" width="660" ', 1)
    head, end, rest = text.partition("</desc>")
    style = _resource("plots/style.css").replace("&", "&amp;").replace("<", "&lt;")
    return f"{head}{end}<style>{style}</style>{rest}\n"


def _resource(name: str) -> str:
    return (files("calotype.bench.report") / name).read_text("utf-8")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode('ascii')}"
