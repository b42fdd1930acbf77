"""The schema of an editor's file: validates the parts that execution needs and ignores the rest."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from calotype.core.errors import Problem, RequestError

MUTED, BYPASSED = 2, 4


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Widget(_Part):
    """The widget that a socket stands for."""

    name: str = ""


class Socket(_Part):
    """An input of a node, or one of its outputs."""

    name: str = ""
    type: Any = None
    link: int | None = None
    widget: Widget | None = None


class Properties(_Part):
    """The properties that an editor saves with a node."""

    shown: tuple[list[Any], ...] | None = Field(default=None, alias="proxyWidgets")
    """Widgets that a subgraph's node shows, as pairs of an inner node and a widget's name."""


class EditorNode(_Part):
    """A node without its position."""

    id: str = Field(coerce_numbers_to_str=True)
    type: str
    title: str | None = None
    mode: int = 0
    inputs: tuple[Socket, ...] = ()
    outputs: tuple[Socket, ...] = ()
    widgets_values: list[Any] | dict[str, Any] = []
    properties: Properties = Properties()

    @field_validator("inputs", "outputs", "widgets_values", mode="before")
    @classmethod
    def _none_to_empty(cls, value: object) -> object:
        return [] if value is None else value

    @field_validator("properties", mode="before")
    @classmethod
    def _properties_or_empty(cls, value: object) -> object:
        return value if isinstance(value, dict) else {}

    @property
    def listed_values(self) -> list[Any]:
        """Widget values in order, if the file saves them as a list."""
        return self.widgets_values if isinstance(self.widgets_values, list) else []


class EditorLink(_Part):
    """A link from an output to an input. Files have a list of six values or an object with these names."""

    id: int
    origin_id: str = Field(coerce_numbers_to_str=True)
    origin_slot: int
    target_id: str = Field(coerce_numbers_to_str=True)
    target_slot: int

    @model_validator(mode="before")
    @classmethod
    def _from_list(cls, value: object) -> object:
        names = ("id", "origin_id", "origin_slot", "target_id", "target_slot")
        return dict(zip(names, value, strict=False)) if isinstance(value, list) else value


class Level(_Part):
    """The nodes of one graph level and the links between them."""

    nodes: tuple[EditorNode, ...]
    links: tuple[EditorLink, ...] = ()

    @field_validator("links", mode="before")
    @classmethod
    def _without_gaps(cls, value: object) -> object:
        return [link for link in value if link is not None] if isinstance(value, list) else value or []


class Subgraph(Level):
    """A level that nodes reference by its id."""

    id: str


class Definitions(_Part):
    """The definitions in a file."""

    subgraphs: tuple[Subgraph, ...] = ()


class EditorFile(Level):
    """A whole file."""

    definitions: Definitions | None = None

    @classmethod
    def read(cls, value: object) -> EditorFile:
        """Parse the file, or raise RequestError with every invalid field."""
        try:
            return cls.model_validate(value)
        except ValidationError as error:
            errors = error.errors(include_url=False, include_input=False)
            problems = [Problem(".".join(str(part) for part in item["loc"]), item["msg"]) for item in errors]
            raise RequestError(problems) from None
