"""config/README.md and the config models name the same keys, with the same types, defaults and bounds."""

import json
import re
import types
import typing
from collections.abc import Iterator
from pathlib import Path

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from popu.config import Config

README = Path(__file__).parents[1] / "config" / "README.md"
SIGNS = {Ge: ">=", Gt: ">", Le: "<=", Lt: "<"}
TYPES = {int: "integer", float: "number", str: "text", bool: "boolean", types.NoneType: "null"}


def fields(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Every leaf key in dotted form with its field."""
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from fields(field.annotation, f"{prefix}{name}.")
        else:
            yield prefix + name, field


def type_text(annotation: object) -> str:
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Literal:
        return " or ".join(f"`{value}`" for value in args)
    if origin is tuple:
        return f"list of {type_text(args[0])}"
    if origin is dict:
        return "mapping"
    if origin in (typing.Union, types.UnionType):
        return " or ".join(type_text(arg) for arg in args)
    return TYPES[annotation]


def default_text(field: FieldInfo) -> str:
    default = field.get_default()
    if isinstance(default, str):
        return default
    return json.dumps(list(default) if isinstance(default, tuple) else default).replace('"', "")


def bounds_text(field: FieldInfo) -> str:
    parts = []
    for item in field.metadata:
        for kind, sign in SIGNS.items():
            if isinstance(item, kind):
                parts.append(f"{sign} {getattr(item, kind.__name__.lower()):g}")
        if pattern := getattr(item, "pattern", None):
            parts.append(f"`{pattern}`")
    return ", ".join(parts)


def row_start(key: str, field: FieldInfo) -> str:
    """What the row of a key must begin with; the meaning follows."""
    bounds = bounds_text(field)
    return f"| `{key}` | {type_text(field.annotation)} | `{default_text(field)}` | {bounds}{' ' * bool(bounds)}|"


def test_every_key_has_its_row():
    lines = README.read_text().splitlines()
    wanted = [row_start(key, field) for key, field in fields(Config)]
    lacking = [start for start in wanted if not any(line.startswith(start) for line in lines)]
    assert not lacking, "config/README.md lacks rows that begin with:\n" + "\n".join(lacking)


def test_no_row_is_of_a_key_that_is_gone():
    documented = re.findall(r"^\| `([a-z0-9_.]+)` \|", README.read_text(), re.MULTILINE)
    assert sorted(documented) == sorted(key for key, _ in fields(Config))


def test_every_row_says_what_the_key_means():
    for line in README.read_text().splitlines():
        if line.startswith("| `"):
            assert len(line.rstrip("| ").rsplit("|", 1)[1].strip()) > 10, line
