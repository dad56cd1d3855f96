"""What a kernel remembers between calls: a trial on tensors without elements must leave nothing of it behind.

Kernels keep masks and tables by shape in dicts, lists and attributes of their class or module, or in functools caches.
A tensor without elements in there would be taken for a real one by the first real call.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

_NOT_THE_USERS = sys.stdlib_module_names - {"__main__"} | {"torch", "numpy", "kernels_core", "exactref", "exactref_cli"}
_Cached = type(functools.lru_cache(len))


@contextlib.contextmanager
def forgotten(kernel: Callable[..., Any]) -> Iterator[None]:
    """Within this, what the kernel's class and module come to hold is taken away again at the end."""
    before = [(owner, dict(vars(owner)), _contents(owner)) for owner in _owners(kernel)]
    try:
        yield
    finally:
        for owner, names, contents in before:
            _restore(owner, names, contents)


def _owners(kernel: Callable[..., Any]) -> list[Any]:
    module = sys.modules.get(getattr(kernel, "__module__", None) or "")
    root = module.__name__.partition(".")[0] if module is not None else ""
    found = [kernel] if isinstance(kernel, type) else []
    return found if module is None or root in _NOT_THE_USERS else [*found, module]


def _contents(owner: Any) -> dict[str, Any]:
    """Return shallow copies of the containers that an owner holds."""
    held = {name: value for name, value in vars(owner).items() if not name.startswith("__")}
    return {name: value.copy() for name, value in held.items() if isinstance(value, (dict, list, set))}


def _restore(owner: Any, names: dict[str, Any], contents: dict[str, Any]) -> None:
    for name in [name for name in vars(owner) if not name.startswith("__")]:
        value = vars(owner)[name]
        if name not in names:
            delattr(owner, name)
        elif value is not names[name]:
            setattr(owner, name, names[name])
        if isinstance(value, _Cached):
            value.cache_clear()
    for name, kept in contents.items():
        container = names[name]
        container.clear()
        container.extend(kept) if isinstance(container, list) else container.update(kept)
