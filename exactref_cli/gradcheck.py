"""From the options of `exactref gradcheck` to cases: one per dtype."""

from __future__ import annotations

import dataclasses
import functools
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from exactref_cli import inputs, shapes, signature, sizes, target, templates
from exactref_cli.options import Options, given_by, require_known
from exactref_cli.run import Case, missing_device
from kernels_core.battery import Size, select
from kernels_core.errors import UsageError, nearest
from kernels_core.inputs.exhaustive import count
from kernels_core.kernel.modules import ModuleKernel
from kernels_core.tracing.complex_parts import differentiable

SIZES = "sizes"  # the item of the battery that varies sizes


def cases(options: Options) -> list[Case]:
    """Return one case per dtype, with shapes found by trial where they are not given.

    Raises:
        TargetError: a target cannot be loaded.
        UsageError: an option does not fit the kernel, or no shapes were found.
    """
    require_known(options)
    here = Path.cwd()
    kernel = target.load_kernel(options.target, here, options.mode)
    loaded = {
        key: target.load_callable(text, here)
        for key in ("reference", "reference_backward")
        if (text := getattr(options, key)) is not None
    }
    found = signature.parameters(kernel, options.target)
    given = given_by(options, found)
    return [case for dtype in options.dtype for case in _cases(options, kernel, loaded, found, given, dtype)]


def repeat(options: Options, chosen: Sequence[inputs.Input], dtype: str, *, vary_sizes: bool) -> str:
    """Return the command that runs one case again, every choice spelled out."""
    words = ["exactref", "gradcheck", options.target]
    for given in (one for group in chosen for one in inputs.flat(group)):
        if isinstance(given, inputs.TensorInput) and given.values == inputs.EXHAUSTIVE:
            words += ["--exhaustive"]
        elif isinstance(given, inputs.TensorInput) and isinstance(given.values, str):
            words += ["--shape", f"{given.name}={_sizes(given.shape)}"]
    for text in options.values:
        words += ["--values", text]
    words += ["--dtype", dtype, "--seed", str(options.seed)]
    for key in ("reference", "reference_backward", "profile", "bound", "require_sensitivity"):
        if getattr(options, key) is not None:
            words += [f"--{key.replace('_', '-')}", getattr(options, key)]
    words += ["--device", options.device] * (options.device != "cpu")
    words += [word for name in options.without for word in ("--without", name)]
    words += ["--surrogate"] * options.surrogate
    words += ["--nondet-tol", str(options.nondet_tol)] if options.nondet_tol is not None else []
    words += ["--mode", options.mode] if options.mode is not None else []
    words += ["--kinks", options.kinks] * (options.kinks != "accept")
    for name in options.wrt:
        words += ["--wrt", name]
    for name in options.battery:
        words += ["--battery", name] * (name != "all")
    words += ["--vary-sizes"] * vary_sizes
    return shlex.join(words)


def _cases(
    options: Options,
    kernel: Callable[..., Any],
    loaded: Mapping[str, Any],
    found: Sequence[signature.Parameter],
    given: templates.Given,
    dtype: str,
) -> Iterator[Case]:
    """Yield the case of one dtype, and one more where tensors may be left out: with them and without."""
    place = "cpu" if missing_device(options.device) else options.device
    kind = inputs.dtype_named(dtype)
    chosen = shapes.find(kernel, options.target, found, given, kind, place)
    if options.exhaustive:
        yield _case(options, kernel, loaded, _all_values(options, chosen), given, dtype)
        return
    fuller = shapes.find_with_optional(kernel, found, given, kind, place)
    if fuller is not None:
        given_now = [one.name for one, before in zip(fuller, chosen, strict=True) if type(one) is not type(before)]
        yield _case(options, kernel, loaded, fuller, given, dtype, f"with {', '.join(given_now)}")
        options = dataclasses.replace(options, values=(*options.values, *(f"{name}=null" for name in given_now)))
        yield _case(options, kernel, loaded, chosen, given, dtype, f"without {', '.join(given_now)}")
        return
    yield _case(options, kernel, loaded, chosen, given, dtype)


def _all_values(options: Options, chosen: Sequence[inputs.Input]) -> tuple[inputs.Input, ...]:
    """Return the inputs with all values in the place of the one tensor.

    Raises:
        UsageError: there are several, or the dtype has too many values.
    """
    tensors = [one.name for group in chosen for one in inputs.flat(group) if isinstance(one, inputs.TensorInput)]
    if len(tensors) != 1:
        raise UsageError(f"--exhaustive: {options.target} takes {len(tensors)} tensors ({', '.join(tensors)})\n"
                         "it is for functions of one tensor")  # fmt: skip
    if options.shape or tensors[0] in [text.partition("=")[0] for text in options.values]:
        raise UsageError("--exhaustive: --shape or --values is given too\nall values have the shape of their number")

    def fill(one: inputs.TensorInput | inputs.PlainInput) -> inputs.TensorInput | inputs.PlainInput:
        if not isinstance(one, inputs.TensorInput):
            return one
        return dataclasses.replace(one, shape=(count(one.dtype),), values=inputs.EXHAUSTIVE)

    return tuple(
        inputs.GroupInput(given.name, inputs.each(given, fill)) if isinstance(given, inputs.GroupInput) else fill(given)
        for given in chosen
    )


def _case(
    options: Options,
    kernel: Callable[..., Any],
    loaded: Mapping[str, Any],
    chosen: Sequence[inputs.Input],
    given: templates.Given,
    dtype: str,
    variant: str = "",
) -> Case:
    draw = functools.partial(_draw, kernel=kernel, wrt=_wrt(options, kernel, chosen), options=options, dtype=dtype)
    varied = _varied(options, chosen, given, draw)
    marks = [f"dtype={dtype}"] * (len(options.dtype) > 1) + [variant] * bool(variant)
    name = options.target + (f"[{', '.join(marks)}]" if marks else "")
    return Case(
        name=name,
        function=kernel,
        function_text=options.target,
        inputs=functools.partial(draw, chosen),
        given=tuple(chosen),
        reference=loaded.get("reference"),
        reference_text=options.reference or "",
        reference_backward=loaded.get("reference_backward"),
        reference_backward_text=options.reference_backward or "",
        seed=options.seed,
        device=options.device,
        profile=options.profile,
        bound=options.bound,
        kinks=options.kinks,
        battery=_items(options),
        nondet_tol=options.nondet_tol,
        surrogate=options.surrogate,
        require_sensitivity=options.require_sensitivity,
        sizes=varied,
        free=_unvalued(chosen, given),
        repeat=repeat(options, chosen, dtype, vary_sizes=bool(varied)),
        notes=_notes(chosen, given),
    )


def _items(options: Options) -> tuple[str, ...]:
    return (*options.battery, *(f"-{name}" for name in options.without))


def _draw(
    chosen: Sequence[inputs.Input], *, kernel: Any, wrt: tuple[str, ...] | None, options: Options, dtype: str
) -> inputs.Drawn:
    drawn = inputs.draw(chosen, options.seed, options.device)
    complete = inputs.with_parameters(drawn, kernel, options.device, inputs.dtype_named(dtype))
    return complete if wrt is None else dataclasses.replace(complete, wrt=wrt)


def _notes(chosen: Sequence[inputs.Input], given: templates.Given) -> tuple[str, ...]:
    names = _free(chosen, given)
    free = [one for group in chosen for one in inputs.flat(group) if one.name in names]
    return (f"chosen by trial: {shapes.describe(free)}",) if free else ()


def _varied(
    options: Options,
    chosen: Sequence[inputs.Input],
    given: templates.Given,
    draw: Callable[[Sequence[inputs.Input]], inputs.Drawn],
) -> tuple[Size, ...]:
    """Return the sizes for the battery: of shapes that nobody gave, and of given ones where the user says so."""
    if SIZES not in [item.name for item in select(options.battery)]:
        return ()
    names = [name for name in _names(chosen) if name not in given.values]
    return sizes.of_inputs(chosen, names if options.vary_sizes else _free(chosen, given), draw)


def _free(chosen: Sequence[inputs.Input], given: templates.Given) -> list[str]:
    taken = {*given.shapes, *given.values, *inputs.exhaustive(chosen)}
    return [name for name in _names(chosen) if name not in taken]


def _unvalued(chosen: Sequence[inputs.Input], given: templates.Given) -> tuple[str, ...]:
    """Return the names of the inputs that nobody gave values for; to be booleans is no value."""
    families = [name for name, family in given.families.items() if family != inputs.MASK]
    taken = {*given.values, *families, *inputs.exhaustive(chosen)}
    return tuple(name for name in _names(chosen) if name not in taken)


def _names(chosen: Sequence[inputs.Input]) -> list[str]:
    return [one.name for group in chosen for one in inputs.flat(group)]


def _wrt(options: Options, kernel: Callable[..., Any], chosen: Sequence[inputs.Input]) -> tuple[str, ...] | None:
    leaves = [one for given in chosen for one in inputs.flat(given)]
    floating = [one.name for one in leaves if isinstance(one, inputs.TensorInput) and differentiable(one.dtype)]
    floating += list(kernel.arguments) if isinstance(kernel, ModuleKernel) else []
    asked = tuple(name for text in options.wrt for name in text.split(","))
    for name in asked:
        if name not in floating:
            raise UsageError(f"--wrt: no floating tensor input is called {name!r}{nearest(name, floating)}\n"
                             f"known: {', '.join(floating)}")  # fmt: skip
    return asked or None


def _sizes(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "scalar"
