"""Read a spec file; every mistake in it is reported at once, each with file and line."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import yaml

from exactref_cli import mistakes, yaml_lines
from exactref_cli.schema import Check
from kernels_core.errors import SpecError


@dataclasses.dataclass(frozen=True)
class SpecFile:
    """A valid spec with the place it came from."""

    path: Path
    checks: tuple[Check, ...]
    located: yaml_lines.Located

    def where(self, *path: str | int) -> str:
        """Return "file:line" of a value."""
        return f"{self.path}:{self.located.line(path)}"


def read(path: Path) -> SpecFile:
    """Return the spec of a file.

    Raises:
        SpecError: with every mistake of the file, each as `file:line: what was wanted, what was found`.
    """
    located = _parse(path)
    found = [(located.line(place), _name(place), text) for place, text in mistakes.find(located.data)]
    found += [(line, _name(place), "this key is written twice") for place, line in located.duplicates]
    if found:
        raise SpecError(f"{path}:{line}: {name}: {text}" for line, name, text in sorted(found))
    checks = tuple(Check.model_validate(check) for check in located.data["checks"])
    return SpecFile(path, checks, located)


def _parse(path: Path) -> yaml_lines.Located:
    try:
        return yaml_lines.parse(path.read_text(encoding="utf-8"))
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise SpecError([f"{path}:{line}: not YAML: {error.problem}"]) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SpecError([f"{path}:1: not YAML: {error}"]) from error
    except OSError as error:
        raise SpecError([f"{path}: cannot be read: {error.strerror}"]) from error


def _name(place: yaml_lines.Path) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
    return text.lstrip(".") or "the file"
