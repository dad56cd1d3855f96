"""What there is: the catalogue's references, the operations with rules, the profiles."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

_PYTORCH = ("aten.", "prims.")  # other steps are the filter's own


def listing() -> dict[str, list[dict[str, str]]]:
    """Return the three lists; every entry is a dict of texts with the same keys."""
    from kernels_core.profiles import PROFILES
    from kernels_core.references import catalogue
    from kernels_core.rules import registry

    return {
        "references": [row for name, entry in catalogue().items() for row in _references(name, entry)],
        "profiles": [
            {"profile": name, "grants": profile.grants, "source": profile.source} for name, profile in PROFILES.items()
        ],
        "operations": [{"operation": name} for name in sorted(registry()) if name.startswith(_PYTORCH)],
    }


def _references(name: str, entry: Any) -> Iterator[dict[str, str]]:
    """Yield a reference and its algorithms, each under the name that specs use."""
    parameters = inspect.signature(entry.function).parameters.values()
    arguments = ", ".join(p.name if p.default is p.empty else f"{p.name}={p.default!r}" for p in parameters)
    yield {"reference": f"exactref:{name}", "arguments": arguments}
    for variant, algorithm in entry.algorithms.items():
        yield from _references(f"{name}.{variant}", algorithm)
