"""Load what a target names: `module:attr` or `path.py:attr`, and `exactref:name` for a reference of the catalogue."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from kernels_core.errors import TargetError, UsageError, nearest

CATALOGUE = "exactref"
_OURS = ("importlib", "exactref_cli", "kernels_core")


def load(text: str, folder: Path) -> Any:
    """Return the object that a target names.

    Args:
        text: "module:attr", or "path.py:attr" with the path relative to `folder`; attr may be dotted.
        folder: where the spec file lies, or the working directory. Modules are looked for there too.

    Raises:
        TargetError: malformed, not found, or the module raised while it was imported (with the user's own frames).
    """
    where, colon, attribute = text.rpartition(":")
    if not (colon and where and attribute):
        raise TargetError(f"wanted module:attr or path.py:attr, found {text!r}")
    if where == CATALOGUE:
        return _from_catalogue(attribute)
    module = (
        _load_file((folder / where).resolve(), text) if where.endswith(".py") else _load_module(where, folder, text)
    )
    return _walk(module, attribute, where)


def load_kernel(text: str, folder: Path, mode: str | None = None) -> Callable[..., Any]:
    """Return the kernel that a target names: a Function subclass, a callable or an nn.Module.

    The `apply` of a Function stands for the Function, an entry of the catalogue for its plain PyTorch function. A
    module class without arguments is constructed, and so is what a function without arguments returns.

    Args:
        text: see `load`.
        folder: see `load`.
        mode: "train" or "eval" of a module, None for the one that it is in.

    Raises:
        TargetError: as `load`, or the object is none of these.
    """
    import torch

    from kernels_core.kernel.callee import function_class
    from kernels_core.kernel.modules import as_kernel
    from kernels_core.reference import Reference

    found = _made(load(text, folder), text)
    found = found.function if isinstance(found, Reference) else function_class(found) or found
    if isinstance(found, type) and not issubclass(found, (torch.autograd.Function, torch.nn.Module)):
        wanted = f"{text} is a class: wanted an autograd.Function, a callable or an nn.Module"
        raise TargetError(f"{wanted}\nname an instance, as in `kernel = {found.__name__}(...)` in the module")
    try:
        return _callable(as_kernel(found, mode), text)
    except UsageError as error:
        raise TargetError(f"{text}: {error}") from error


def _made(found: Any, text: str) -> Any:
    """Return what a factory makes: a function without parameters, which no kernel is."""
    if not inspect.isfunction(found) or inspect.signature(found).parameters:
        return found
    try:
        with contextlib.redirect_stdout(sys.stderr):
            return found()
    except (Exception, SystemExit) as error:
        raise TargetError(
            f"{text} takes nothing, so it was called for a kernel, and raised", user_frames(error)
        ) from error


def load_callable(text: str, folder: Path) -> Callable[..., Any]:
    """Return the function that a target names.

    Raises:
        TargetError: as `load`, or the object cannot be called.
    """
    return _callable(load(text, folder), text)


def user_frames(error: BaseException, ours: Iterable[str] = _OURS) -> str:
    """Return the traceback of `error` without the frames of this program and of the import system, error line last."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not any(part in f.filename for part in ours)]
    lines = [*traceback.format_list(frames), *traceback.format_exception_only(error)]
    return "".join(lines).rstrip()


def _callable(found: Any, text: str) -> Callable[..., Any]:
    if not callable(found):
        raise TargetError(f"{text} is of type {type(found).__name__}: wanted something that can be called")
    return found  # type: ignore[no-any-return]


def _from_catalogue(name: str) -> Any:
    from kernels_core.references import catalogue

    entry, _, algorithm = name.partition(".")
    known = catalogue()
    if entry not in known:
        names = ", ".join(known)
        raise TargetError(f"the catalogue has no reference {entry!r}{nearest(entry, known)}\nknown: {names}")
    algorithms = getattr(known[entry], "algorithms", {})
    if algorithm and algorithm not in algorithms:
        names = ", ".join(algorithms) or "none"
        raise TargetError(f"{entry} has no algorithm {algorithm!r}{nearest(algorithm, algorithms)}\nknown: {names}")
    return algorithms[algorithm] if algorithm else known[entry]


def _load_module(name: str, folder: Path, text: str) -> ModuleType:
    for path in (str(folder.resolve()), str(Path.cwd())):
        if path not in sys.path:
            sys.path.insert(0, path)
    return _guarded(lambda: importlib.import_module(name), name, text)


def _load_file(path: Path, text: str) -> ModuleType:
    if not path.is_file():
        names = [other.name for other in path.parent.glob("*.py")] if path.parent.is_dir() else []
        raise TargetError(f"there is no file {path.name} in {path.parent}{nearest(path.name, names)}")
    name = f"exactref_target_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    if name in sys.modules:
        return sys.modules[name]
    return _guarded(lambda: _execute(name, path), path.name, text)


def _execute(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be loaded as a module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # before it runs: dataclasses and pickling look themselves up there
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))  # last, so that a sibling never hides an installed package
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _guarded(importer: Callable[[], ModuleType], name: str, text: str) -> ModuleType:
    try:
        with contextlib.redirect_stdout(sys.stderr):  # what a module prints is no part of the report
            return importer()
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.partition(".")[0] == name.partition(".")[0]:
            hint = "modules are looked for in the working directory, beside the spec file and in the environment"
            raise TargetError(f"there is no module {error.name} (from {text})\n{hint}") from error
        raise TargetError(f"{name} could not be imported (from {text})", user_frames(error)) from error
    except (Exception, SystemExit) as error:
        raise TargetError(f"{name} could not be imported (from {text})", user_frames(error)) from error


def _walk(module: ModuleType, attribute: str, where: str) -> Any:
    found: Any = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            known = [name for name in vars(found) if not name.startswith("_")] if hasattr(found, "__dict__") else []
            raise TargetError(f"{where} has no attribute {attribute}{nearest(part, known)}")
        found = getattr(found, part)
    return found
