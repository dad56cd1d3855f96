"""Arguments that hold several tensors: lists, tuples and dicts, nested as the kernel wants them.

A structure is a tree of lists, tuples and dicts whose leaves are words: "tensor", or "list", "tuple", "dict" where the
annotation says which but not how many. Items are called as everywhere: "xs[0]", "state['c'][1]".
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch.utils import _pytree as pytree

from exactref_cli.inputs import GroupInput, Input
from exactref_cli.signature import TENSOR, Parameter

COUNTS = (3, 2, 1)  # of tensors in a list of unknown length, in the order in which they are tried
_PART = re.compile(r"\[['\"]?([^\]'\"]+)['\"]?\]|\.([A-Za-z_]\w*)")


def normal_name(text: str, parameters: Sequence[str]) -> str | None:
    """Return "state['c'][1]" for what people type, state[c][1] or state.c[1]; None where no parameter starts it."""
    base = re.split(r"[\[.]", text, maxsplit=1)[0]
    if base not in parameters:
        return None
    parts = list(_PART.finditer(text[len(base) :]))
    if "".join(m.group(0) for m in parts) != text[len(base) :]:
        return None
    keys = [m.group(1) or m.group(2) for m in parts]
    return base + "".join(f"[{key}]" if key.isdecimal() else f"[{key!r}]" for key in keys)


def filled(parameters: Sequence[Parameter], names: Sequence[str], count: int, keys: Sequence[str]) -> dict[str, Any]:
    """Return the structures by parameter, with every number of items known.

    Args:
        parameters: of the kernel.
        names: that the user gave shapes or values for, items among them.
        count: of tensors in a list whose length nobody says.
        keys: of a dict whose keys nobody says.
    """
    found = {}
    for p in parameters:
        paths = [_keys_of(name[len(p.name) :]) for name in names if name.startswith(p.name + "[")]
        if paths:
            found[p.name] = _of_paths(paths, tuple if p.structure == "tuple" else list)
        elif p.structure != TENSOR:
            found[p.name] = pytree.tree_map(lambda word: _opened(word, count, keys), p.structure)
    return found


def _opened(word: str, count: int, keys: Sequence[str]) -> Any:
    if word == "dict":
        return dict.fromkeys(keys, TENSOR)
    return [TENSOR] * count if word == "list" else (TENSOR,) * count if word == "tuple" else word


def is_open(parameters: Sequence[Parameter], names: Sequence[str], word: str) -> bool:
    """Return True where a parameter holds a list, tuple or dict of unknown size that the user says nothing about."""
    return any(
        word in pytree.tree_leaves(p.structure)
        for p in parameters
        if not any(n.startswith(p.name + "[") for n in names)
    )


def _keys_of(text: str) -> tuple[str | int, ...]:
    keys = [m.group(1) for m in re.finditer(r"\[['\"]?([^\]'\"]+)['\"]?\]", text)]
    return tuple(int(key) if key.isdecimal() else key for key in keys)


def _of_paths(paths: Sequence[tuple[str | int, ...]], sequence: type = list) -> Any:
    """Return the tree that has these leaves: numbers make a list (items left out are tensors too), words a dict."""
    if not any(paths):
        return TENSOR
    below: dict[str | int, list[tuple[str | int, ...]]] = {}
    for path in paths:
        below.setdefault(path[0], []).append(path[1:])
    trees = {key: _of_paths(rest) for key, rest in below.items()}
    if all(isinstance(key, int) for key in trees):
        return sequence(trees.get(i, TENSOR) for i in range(max(int(key) for key in trees) + 1))
    return trees


def leaves(parameters: Sequence[Parameter], structures: Mapping[str, Any]) -> tuple[Parameter, ...]:
    """Return the parameters with each that has a structure replaced by its items."""
    return tuple(one for p in parameters for one in _items(p, structures))


def _items(p: Parameter, structures: Mapping[str, Any]) -> Iterator[Parameter]:
    if p.name not in structures:
        yield p
        return
    for path, _ in pytree.tree_flatten_with_path(structures[p.name])[0]:
        name = p.name + pytree.keystr(path)
        yield dataclasses.replace(p, name=name, has_default=False, default=None, guess=None, structure=TENSOR,
                                  alike=p.structure in ("list", "tuple"))  # fmt: skip


def grouped(
    parameters: Sequence[Parameter], structures: Mapping[str, Any], inputs: Sequence[Input]
) -> tuple[Input, ...]:
    """Return the inputs of a kernel from those of its leaves (the inverse of `leaves`)."""
    by_name = {given.name: given for given in inputs}
    return tuple(
        GroupInput(p.name, _with_inputs(p.name, structures[p.name], by_name))
        if p.name in structures
        else by_name[p.name]
        for p in parameters
    )


def _with_inputs(name: str, tree: Any, by_name: Mapping[str, Input]) -> Any:
    return pytree.tree_map_with_path(lambda path, _: by_name[name + pytree.keystr(path)], tree)
