"""An `nn.Module` as a kernel whose parameters are inputs, so that their gradients are checked like any other.

A call puts the given parameters, and copies of the buffers, in place of the module's own (torch.func.functional_call):
the module is left as it was, and what its forward did to the buffers is known. Shared parameters are one input.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch

from kernels_core.errors import UsageError, nearest

Tensor = torch.Tensor
MODES = ("train", "eval")
_COMPILED = "_orig_mod."  # before every name of a module that torch.compile made


class ModuleKernel:
    """A module called as f(inputs, *, parameters); parameters that are left out are the module's own.

    Attributes:
        module: left as it is.
        parameters: by name, each shared one once.
        buffers_after: the buffers as the last call left them.
    """

    def __init__(self, module: torch.nn.Module, mode: str | None = None) -> None:
        """Take a module in the mode "train" or "eval", None for the mode that it is in.

        Raises:
            UsageError: no such mode.
        """
        if mode not in (None, *MODES):
            raise UsageError(f"mode: wanted one of {', '.join(MODES)}, found {mode!r}{nearest(str(mode), MODES)}")
        self.module = module
        self.training = module.training if mode is None else mode == "train"
        self.plain: torch.nn.Module = getattr(module, "_orig_mod", module)
        self.parameters = dict(self.plain.named_parameters())
        self.buffers = dict(self.plain.named_buffers())
        self.buffers_after, self._parameters_given = dict[str, Tensor](), self.parameters
        self.forward_signature = inspect.signature(self.plain.forward)
        taken = self.forward_signature.parameters
        self.arguments = {(f"self.{name}" if name in taken else name): name for name in self.parameters}
        self.__name__ = type(self.plain).__name__
        self.__signature__ = self._signature()

    def _signature(self) -> inspect.Signature:
        before = [p for p in self.forward_signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        rest = [p for p in self.forward_signature.parameters.values() if p.kind is p.VAR_KEYWORD]
        return inspect.Signature([*before, *(_keyword(name) for name in self.arguments), *rest])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the module's result for these inputs and parameters."""
        return self._called(self.module, _COMPILED if self.module is not self.plain else "", args, kwargs)

    def _called(self, module: torch.nn.Module, prefix: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        given = {name: kwargs.pop(argument, None) for argument, name in self.arguments.items()}
        state = {name: self.parameters[name] if value is None else value for name, value in given.items()}
        buffers = {name: value.detach().clone() for name, value in _like(self.buffers, state).items()}
        self._parameters_given, self.buffers_after = state, buffers
        before = module.training
        try:
            module.train(self.training)
            whole = {prefix + name: value for name, value in {**state, **buffers}.items()}
            return torch.func.functional_call(module, whole, args, kwargs)
        finally:
            module.train(before)

    def buffers_before(self) -> Mapping[str, Tensor]:
        """Return the buffers as the last call found them."""
        return _like(self.buffers, self._parameters_given)

    def in_mode(self, mode: str) -> ModuleKernel:
        """Return the same kernel in the mode "train" or "eval"."""
        found = copy.copy(self)
        found.training = mode == "train"
        return found

    def with_its_own_parameters(self) -> ModuleKernel:
        """Return the same kernel, in its mode, called with inputs alone."""
        found = copy.copy(self)
        found.arguments = {}
        found.__signature__ = found._signature()
        return found

    def plain_function(self) -> Callable[..., Any]:
        """Return the module as a plain function of inputs and parameters, to be traced."""

        def forward(*args: Any, **kwargs: Any) -> Any:
            return self._called(self.plain, "", args, kwargs)

        forward.__signature__ = self.__signature__  # type: ignore[attr-defined]
        forward.__name__ = self.__name__
        forward.module_kernel = self  # type: ignore[attr-defined]
        return forward

    def values(self, dtype: torch.dtype | None = None, device: str | None = None) -> dict[str, Tensor]:
        """Return the parameters as inputs, floating ones in `dtype`; those that are constant are spread.

        A weight of ones or a bias of zeros, as many modules begin, would let a kernel pass that ignores them.
        """
        generator = torch.Generator().manual_seed(0x9A7A)
        return {
            argument: _spread(self.parameters[name].detach(), generator).to(
                device=device, dtype=dtype if self.parameters[name].is_floating_point() else None
            )
            for argument, name in self.arguments.items()
        }

    def trainable(self) -> list[str]:
        """Return the names of the parameters that require a gradient."""
        return [argument for argument, name in self.arguments.items() if self.parameters[name].requires_grad]

    def frozen(self) -> list[str]:
        """Return the names of the parameters that do not."""
        return [argument for argument in self.arguments if argument not in self.trainable()]


def module_behind(function: Callable[..., Any]) -> ModuleKernel | None:
    """Return the module that a plain function was made of, None for any other function."""
    return getattr(function, "module_kernel", None)


def _like(buffers: Mapping[str, Tensor], parameters: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Return the buffers in the format and on the device of the parameters, as `module.to` would make them."""
    like = next((t for t in parameters.values() if t.is_floating_point()), None)
    if like is None:
        return buffers
    return {n: t.to(like.device, like.dtype if t.is_floating_point() else t.dtype) for n, t in buffers.items()}


def _keyword(name: str) -> inspect.Parameter:
    """Return a keyword-only parameter; its name may be "layers.0.weight", which only ** can pass."""
    parameter = inspect.Parameter("name", inspect.Parameter.KEYWORD_ONLY, default=None)
    parameter._name = name  # type: ignore[attr-defined]
    return parameter


def _spread(value: Tensor, generator: torch.Generator) -> Tensor:
    """Return a parameter whose elements are all equal spread around that value, by half of it; any other as it is."""
    first = float(value.reshape(-1)[0]) if value.numel() and value.is_floating_point() else None
    if first is None or bool((value != first).any()) or (value.numel() == 1 and first not in (0, 1)):
        return value.clone()
    noise = torch.rand(value.shape, generator=generator, dtype=torch.float64) - 0.5
    return (first + noise * (abs(first) or 1)).to(value)


def as_kernel(function: Any, mode: str | None = None) -> Any:
    """Return a module, or a module class that needs no arguments, as a kernel; anything else as it is.

    Raises:
        UsageError: the class needs arguments, or a mode is asked of what is no module.
    """
    if isinstance(function, type) and issubclass(function, torch.nn.Module):
        function = constructed(function)
    if isinstance(function, torch.nn.Module):
        return ModuleKernel(function, mode)
    if isinstance(function, ModuleKernel):
        return function if mode is None else ModuleKernel(function.module, mode)
    if mode is not None:
        raise UsageError(f'mode is for modules: {getattr(function, "__name__", "the kernel")} has no "{mode}" mode')
    return function


def constructed(cls: type[torch.nn.Module]) -> torch.nn.Module:
    """Return an instance with the same parameters every time.

    Raises:
        UsageError: the class needs arguments.
    """
    try:
        inspect.signature(cls).bind()
    except TypeError as error:
        raise UsageError(
            f"{cls.__name__} is an nn.Module class that cannot be built without arguments: {error}\n"
            f"name an instance, or a function without arguments that returns one"
        ) from error
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return cls()


def reference_for(kernel: Any, given: Any) -> Any:
    """Return what a module kernel is compared with, as a function of the kernel's inputs and parameters.

    Args:
        kernel: a ModuleKernel; for anything else `given` is returned as it is, a module made a function of parameters.
        given: another module (class) with the same parameter names, which gets the kernel's buffers, or a function that
            takes the parameters, and the buffers that it needs, by name ("layers_0_weight" for layers.0.weight).

    Raises:
        UsageError: a parameter has no counterpart.
    """
    other = as_kernel(given)
    if not isinstance(kernel, ModuleKernel):
        return other
    if isinstance(other, ModuleKernel):
        return _with_state_of(kernel, other)
    return _function_of_parameters(kernel, other) if inspect.isroutine(other) else other


def ignores_parameters(kernel: ModuleKernel, given: Any) -> bool:
    """Return True where the reference is a function that takes none of the parameters: then they are no inputs."""
    if not kernel.arguments or not inspect.isroutine(given):
        return False
    accepted = inspect.signature(given).parameters.values()
    names = {name.replace(".", "_") for name in kernel.parameters}
    return not any(p.name in names or p.kind is p.VAR_KEYWORD for p in accepted)


def _with_state_of(kernel: ModuleKernel, other: ModuleKernel) -> ModuleKernel:
    if list(kernel.parameters) != list(other.parameters) and set(kernel.parameters) != set(other.parameters):
        raise UsageError(
            f"{other.__name__} has the parameters {', '.join(other.parameters) or 'none'}, "
            f"{kernel.__name__} has {', '.join(kernel.parameters) or 'none'}\nlet both have the same names"
        )
    found = ModuleKernel(other.module, "train" if kernel.training else "eval")
    found.buffers = {name: kernel.buffers.get(name, value) for name, value in other.buffers.items()}
    return found


def _function_of_parameters(kernel: ModuleKernel, function: Callable[..., Any]) -> Callable[..., Any]:
    accepted = inspect.signature(function).parameters
    variadic = any(p.kind is p.VAR_KEYWORD for p in accepted.values())
    plain = {argument: argument.removeprefix("self.").replace(".", "_") for argument in kernel.arguments}
    missing = [name for name in plain.values() if name not in accepted and not variadic]
    if missing:
        raise UsageError(
            f"the reference {getattr(function, '__name__', '')} takes no {missing[0]}"
            f"{nearest(missing[0], accepted)}\n"
            f"let it take the parameters of {kernel.__name__}: {', '.join(plain.values())}"
        )
    buffers = {name.replace(".", "_"): value for name, value in kernel.buffers.items()}

    def reference(*args: Any, **kwargs: Any) -> Any:
        parameters = {plain[name]: kwargs.pop(name) for name in list(kwargs) if name in plain}
        further = {name: value for name, value in buffers.items() if name in accepted and name not in parameters}
        return function(*args, **kwargs, **parameters, **further)

    reference.__name__ = getattr(function, "__name__", "reference")
    reference.__signature__ = kernel.__signature__  # type: ignore[attr-defined]
    return reference
