"""YAML as plain data together with the line of every value, so that a mistake can be shown where it stands."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import yaml

Path = tuple[str | int, ...]
DEEPEST = 40
_CONTAINERS = ("tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")


class _Loader(yaml.SafeLoader):
    """Plain YAML types, with 1e-5 a number as in YAML 1.2 (to YAML 1.1 it is text)."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"), list("-+.0123456789")
)


@dataclasses.dataclass(frozen=True)
class Located:
    """Plain data of a YAML text.

    Attributes:
        data: dicts, lists and scalars.
        lines: line (from 1) of the value at each path, such as ("checks", 0, "dims"); for a key, of the key.
        duplicates: paths that are written twice, with the line of the second.
    """

    data: Any
    lines: dict[Path, int]
    duplicates: tuple[tuple[Path, int], ...]

    def line(self, path: Path) -> int:
        """Return the line of `path`, or of the nearest enclosing value that is written down."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


class _Builder:
    def __init__(self, loader: yaml.SafeLoader) -> None:
        self.loader = loader
        self.lines: dict[Path, int] = {}
        self.duplicates: list[tuple[Path, int]] = []

    def build(self, node: yaml.Node, path: Path) -> Any:
        if len(path) > DEEPEST:
            raise yaml.YAMLError(f"nested more than {DEEPEST} deep (an anchor inside itself?)")
        self.lines.setdefault(path, node.start_mark.line + 1)
        if not isinstance(node, yaml.ScalarNode) and node.tag not in _CONTAINERS:
            raise yaml.MarkedYAMLError(problem=f"the tag {node.tag} is not known", problem_mark=node.start_mark)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.build(child, (*path, place)) for place, child in enumerate(node.value)]
        return self.loader.construct_object(node)

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        self.loader.flatten_mapping(node)
        found: dict[str, Any] = {}
        for key_node, child in node.value:
            key = str(self.loader.construct_object(key_node))
            line = key_node.start_mark.line + 1
            here: Path = (*path, key)
            if key in found:
                self.duplicates.append((here, line))
            self.lines[here] = line
            found[key] = self.build(child, here)
        return found


def parse(text: str) -> Located:
    """Return the data of a YAML text with its lines; only plain YAML types are made.

    Raises:
        yaml.YAMLError: the text is not YAML, or asks for a Python object.
    """
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        builder = _Builder(loader)
        data = None if node is None else builder.build(node, ())
    finally:
        loader.dispose()
    return Located(data, builder.lines, tuple(builder.duplicates))
