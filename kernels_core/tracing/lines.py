"""The user's lines behind the nodes of a graph."""

from __future__ import annotations

import pathlib
import sys
import sysconfig
from collections.abc import Iterator
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import get_proxy_mode
from torch.utils._python_dispatch import TorchDispatchMode


class lines_of_operations(TorchDispatchMode):  # noqa: N801  (used like a function)
    """Within this, `sources` gets the user's lines behind each graph node, those of a Function's backward too."""

    def __init__(self, sources: dict[str, str]) -> None:
        """Record the lines, innermost first, by node name into `sources`."""
        super().__init__()  # type: ignore[no-untyped-call]
        self.sources = sources

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operation and record where it was asked for."""
        before = last_node()
        result = func(*args, **(kwargs or {}))
        node = last_node()
        lines = "\n".join(user_lines()) if node is not before else ""
        while node is not None and node is not before and node.op != "root":
            self.sources.setdefault(node.name, lines)
            node = node.prev
        return result


def last_node() -> Any:
    """Return the node that the active tracer made last, None where there is none."""
    mode = get_proxy_mode()
    return None if mode is None else next(iter(reversed(mode.tracer.graph.nodes)), None)


def user_lines() -> Iterator[str]:
    """Yield "file:line" of the frames that are not PyTorch's, ours or the standard library's, innermost first.

    Only of those that the search for a line to blame has called, where it runs: PyTorch's own derivative has none.
    """
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(_BLAME):
            return
        standard = name.startswith(_STANDARD) and "site-packages" not in name
        if not standard and not name.startswith((_TORCH, *_OURS, "<")):
            yield f"{name}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]


_TORCH = str(pathlib.Path(torch.__file__).parent)
_OURS = tuple(str(pathlib.Path(__file__).parents[2] / part) for part in ("kernels_core", "exactref", "exactref_cli"))
_BLAME = str(pathlib.Path(__file__).parents[1] / "blame")
_STANDARD = sysconfig.get_paths()["stdlib"]
