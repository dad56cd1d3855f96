"""What a kernel remembers between calls: a trial on tensors without elements must leave nothing of it behind.

Kernels keep masks and tables by shape in dicts, lists and attributes of their class or module, of the object or
`nn.Module` that they are or use, in what a closure holds, or in functools caches. A tensor without elements in there
would be taken for a real one by the first real call.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

_NOT_THE_USERS = sys.stdlib_module_names - {"__main__"} | {"torch", "numpy", "kernels_core", "exactref", "exactref_cli"}
_Cached = type(functools.lru_cache(len))


@contextlib.contextmanager
def forgotten(kernel: Callable[..., Any]) -> Iterator[None]:
    """Within this, what the kernel, its class, module and closure come to hold is taken away again at the end."""
    cells = _cells(kernel)
    owners = {id(owner): owner for owner in _owners(kernel, [value for _, value in cells])}
    before = [(owner, dict(vars(owner)), _contents(vars(owner))) for owner in owners.values()]
    enclosed = _contents({number: value for number, (_, value) in enumerate(cells)})
    try:
        yield
    finally:
        for cell, value in cells:
            if any(isinstance(now, torch.Tensor) for now in _held(cell)):
                cell.cell_contents = value
        for number, kept in enclosed.items():
            if _has_tensors(cells[number][1]):  # others count calls, or note what was asked
                _refill(cells[number][1], kept)
        for owner, names, contents in before:
            _restore(owner, names, contents)


def _cells(kernel: Callable[..., Any]) -> list[tuple[Any, Any]]:
    """Return the cells of the user's closure that hold something, each with what it holds."""
    if _is_ours(getattr(kernel, "__module__", None)):
        return []
    cells = getattr(kernel, "__closure__", None) or ()
    return [(cell, value) for cell in cells for value in _held(cell)]


def _held(cell: Any) -> list[Any]:
    try:
        return [cell.cell_contents]
    except ValueError:  # nothing so far
        return []


def _is_ours(name: str | None) -> bool:
    return (name or "").partition(".")[0] in _NOT_THE_USERS


def _owners(kernel: Callable[..., Any], enclosed: list[Any]) -> list[Any]:
    """Return what the kernel may keep something in: objects with attributes."""
    module = sys.modules.get(getattr(kernel, "__module__", None) or "")
    module = None if module is None or _is_ours(module.__name__) else module
    behind = getattr(getattr(kernel, "module_kernel", None), "module", None)
    own = [kernel, behind, getattr(kernel, "__self__", None)]
    nets = [*own, *enclosed, *([] if module is None else vars(module).values())]
    found = [one for net in nets if isinstance(net, torch.nn.Module) for one in net.modules()]
    objects = [one for one in own if hasattr(one, "__dict__") and not _is_ours(getattr(one, "__module__", None))]
    return [*found, *objects, *([] if module is None else [module])]


def _contents(held: dict[Any, Any]) -> dict[Any, Any]:
    """Return shallow copies of the containers among what is held."""
    named = {name: value for name, value in held.items() if not str(name).startswith("__")}
    return {name: value.copy() for name, value in named.items() if isinstance(value, (dict, list, set))}


def _restore(owner: Any, names: dict[str, Any], contents: dict[str, Any]) -> None:
    for name in [name for name in vars(owner) if not name.startswith("__")]:
        value = vars(owner)[name]
        if name not in names:
            _delete(owner, name)
        elif value is not names[name]:
            _put(owner, name, names[name])
        if isinstance(value, _Cached):
            value.cache_clear()
    for name, kept in contents.items():
        _refill(names[name], kept)


def _has_tensors(container: Any) -> bool:
    return any(
        isinstance(one, torch.Tensor) for one in (container.values() if isinstance(container, dict) else container)
    )


def _delete(owner: Any, name: str) -> None:
    delattr(owner, name) if isinstance(owner, type) else vars(owner).pop(name)


def _put(owner: Any, name: str, value: Any) -> None:
    """Put back what an attribute was, past what the object makes of being written to, if it is no class."""
    setattr(owner, name, value) if isinstance(owner, type) else vars(owner).update({name: value})


def _refill(container: Any, kept: Any) -> None:
    container.clear()
    container.extend(kept) if isinstance(container, list) else container.update(kept)
