"""Writes `src/lingua_sdk/wire.py` from the description that the scheduler gives of itself.

`python tools/generate.py [--check]`. Start at `render`.

Invariant: the types name every field of every message, and nothing else; the tests compare the
file with what the program under test would give.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from scheduler import Scheduler

if TYPE_CHECKING:
    from collections.abc import Iterator

Schema = dict[str, Any]

FILE = Path(__file__).resolve().parents[1] / "src/lingua_sdk/wire.py"
COLUMNS = 100
PREFIX = "#/components/schemas/"

HEADER = '''"""The messages and bodies of the scheduler, as types.

Made by `tools/generate.py` from `/openapi.json`; do not change it by hand. All of them are plain
dicts. A union of messages is told apart by `type`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Literal, TypedDict

if TYPE_CHECKING:
    from typing_extensions import NotRequired
elif sys.version_info >= (3, 11):
    from typing import NotRequired
else:
    from typing import Optional as NotRequired
'''

SOCKETS = {
    ("/v1/node/ws", "node"): "NodeMessage",
    ("/v1/node/ws", "scheduler"): "SchedulerMessage",
    ("/v1/session/ws", "client"): "SessionRequest",
    ("/v1/session/ws", "scheduler"): "SessionUpdate",
}
"""The name of the union of the messages that one side of a socket sends."""

KEPT = {"SessionStart"}
"""Messages whose fields are needed without `type`, as arguments of functions."""


def render(document: Schema) -> str:
    """Give the text of the file."""
    schemas: Schema = {
        camel(name): schema for name, schema in document["components"]["schemas"].items()
    }
    referenced = KEPT.union(references(document))
    frames: dict[str, str] = {}
    unions: list[str] = []
    for (path, side), union_name in SOCKETS.items():
        members: list[str] = []
        for message in document["paths"][path]["get"]["x-messages"][side]:
            base = named(message["allOf"][0]["$ref"])
            members.append(base if base.endswith("Message") else f"{base}Message")
            own = schemas[base] if base in referenced else schemas.pop(base, {})
            if members[-1] not in frames:
                parent = base if base in referenced else "TypedDict"
                frames[members[-1]] = frame(members[-1], parent, own, message["allOf"][1])
        unions.append(alias(union_name, members, f"What the {side} sends on `{path}`."))
    objects = [name for name in sorted(schemas) if is_object(schemas[name])]
    others = [name for name in schemas if name not in objects]
    others.sort(key=lambda name: (depth(name, schemas), name))
    text = formatted(
        [
            HEADER,
            *(class_text(name, "TypedDict", schemas[name]) for name in objects),
            *(frames[name] for name in sorted(frames)),
            *(f"{name} = {annotation(schemas[name])}\n{doc(schemas[name])}\n" for name in others),
            *unions,
        ]
    )
    return text if re.search(r"\[Any|\bAny\]|: Any", text) else text.replace(" Any,", "", 1)


def formatted(parts: list[str]) -> str:
    """Put the parts together as ruff would."""
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(FILE), "-"]
    done = subprocess.run(
        command, input="\n\n".join(parts), text=True, check=True, stdout=subprocess.PIPE
    )
    return done.stdout


def references(value: object) -> Iterator[str]:
    """Give the names of all schemas that are referred to, but by the list of messages."""
    if isinstance(value, list):
        for item in cast("list[object]", value):
            yield from references(item)
    elif isinstance(value, dict):
        for name, item in cast("dict[str, object]", value).items():
            if name == "$ref":
                yield named(str(item))
            elif name != "x-messages":
                yield from references(item)


def depth(name: str, schemas: Schema) -> int:
    """Say how far an alias is from plain types: it has to come after those that it uses."""
    used = [other for other in references(schemas[name]) if not is_object(schemas[other])]
    return 1 + max((depth(other, schemas) for other in used), default=0)


def is_object(schema: Schema) -> bool:
    """Whether a schema becomes a class."""
    return "properties" in schema or schema.get("type") == "object"


def frame(name: str, parent: str, schema: Schema, kind: Schema) -> str:
    """Give the class of a message with its `type`."""
    kinds = {"type": kind["properties"]["type"]}
    if parent != "TypedDict":
        described = {"description": f"`{parent}` as a message."}
        return class_text(name, parent, {**described, "properties": kinds, "required": ["type"]})
    properties = {**kinds, **schema.get("properties", {})}
    required = ["type", *schema.get("required", [])]
    return class_text(name, parent, {**schema, "properties": properties, "required": required})


def class_text(name: str, parent: str, schema: Schema) -> str:
    """Give a class."""
    required = set(cast("list[str]", schema.get("required", [])))
    lines = [f"class {name}({parent}):", textwrap.indent(doc(schema), "    ")]
    for field, described in schema.get("properties", {}).items():
        kind = annotation(described)
        lines += ["", f"    {field}: {kind if field in required else f'NotRequired[{kind}]'}"]
        lines += [textwrap.indent(doc(described), "    ")] if doc(described) else []
    return "\n".join(lines)


def alias(name: str, members: list[str], text: str) -> str:
    """Give a union, one member a line."""
    listed = "".join(f"    | {member}\n" for member in members).replace("    | ", "    ", 1)
    return f'{name} = (\n{listed})\n"""{text}"""\n'


def annotation(schema: Schema | bool) -> str:
    """Give the type of a value."""
    if isinstance(schema, bool) or not schema:
        return "Any"
    if "$ref" in schema:
        return named(schema["$ref"])
    if "const" in schema:
        return f"Literal[{json.dumps(schema['const'])}]"
    if "enum" in schema:
        return f"Literal[{', '.join(map(json.dumps, schema['enum']))}]"
    for keyword in ("anyOf", "oneOf", "allOf"):
        if keyword in schema and "properties" not in schema:
            return union(annotation(member) for member in schema[keyword])
    kinds = schema.get("type")
    if isinstance(kinds, list):
        return union(plain(kind, schema) for kind in cast("list[str]", kinds))
    return plain(kinds, schema)


def plain(kind: str | None, schema: Schema) -> str:
    """Give the type of a value of one JSON type."""
    simple = {"string": "str", "integer": "int", "number": "float", "boolean": "bool"}
    if kind in simple:
        return simple[kind]
    if kind == "null":
        return "None"
    if kind == "array":
        if "prefixItems" in schema:
            return f"tuple[{', '.join(map(annotation, schema['prefixItems']))}]"
        return f"list[{annotation(schema.get('items', {}))}]"
    if kind == "object":
        return f"dict[str, {annotation(schema.get('additionalProperties', {}))}]"
    return "Any"


def union(members: Iterator[str]) -> str:
    """Give a union; a text includes all known texts."""
    distinct = list(dict.fromkeys(members))
    if "str" in distinct:
        distinct = [member for member in distinct if not member.startswith("Literal")]
    literals = [member[8:-1] for member in distinct if member.startswith("Literal")]
    rest = [member for member in distinct if not member.startswith("Literal")]
    return " | ".join([*([f"Literal[{', '.join(literals)}]"] if literals else []), *rest])


def named(reference: str) -> str:
    """Give the name at the end of a reference."""
    return camel(reference.removeprefix(PREFIX))


def camel(name: str) -> str:
    """Give the name of a class: some schemas are named like their message."""
    return name if name[:1].isupper() else "".join(map(str.capitalize, name.split("_")))


def doc(schema: Schema) -> str:
    """Give the description as a docstring."""
    text = " ".join(str(schema.get("description", "")).split()).replace("\\", "\\\\")
    if not text:
        return ""
    lines = textwrap.wrap(f'"""{text}', COLUMNS - 8)
    if len(lines) == 1:
        return f'{lines[0]}"""'
    return "\n".join([*lines, '"""'])


def described(scheduler: Scheduler) -> Schema:
    """Ask a scheduler for its description."""

    async def ask() -> Schema:
        async with scheduler.client() as client:
            return await client.openapi()

    return asyncio.run(ask())


def main() -> int:
    """Write the file, or compare it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only say whether it is up to date")
    is_check = parser.parse_args().check
    scheduler = Scheduler()
    try:
        text = render(described(scheduler))
    finally:
        scheduler.stop()
    if is_check and FILE.read_text() != text:
        print(f"{FILE} is not what the program says: run python sdk/python/tools/generate.py")
        return 1
    FILE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
