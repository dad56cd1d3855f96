"""The options of torch.autograd.gradcheck by the names that people know, in the words of `exactref gradcheck`."""

from __future__ import annotations

from collections.abc import Sequence

from kernels_core.errors import UsageError

_REFUSED = {
    "--eps": "no finite differences are taken: the derivative is PyTorch's own, its rounding bounded for each element",
    "--atol": "no tolerance is given: each element has its own interval, from the roundings that the dtypes grant",
    "--rtol": "no tolerance is given: each element has its own interval, from the roundings that the dtypes grant",
    "--masked": "sparse tensors are not supported",
}
# What is always looked at, and the battery's item that stands for it ("" where nothing turns it off).
_ITEMS = {
    "check-undefined-grad": "undefined_grad_output",
    "check-batched-grad": "vmap",
    "check-batched-forward-grad": "vmap",
    "check-forward-ad": "forward_mode",
    "check-grad-dtypes": "raw_backward",
    "check-undefined-backward-grad": "undefined_grad_output",
    "check-sparse-nnz": "",
    "check-backward-ad": "",
    "gen-non-contig-grad-outputs": "grad_output_layout",
    "raise-exception": "",
}


def translated(words: Sequence[str]) -> list[str]:
    """Return the words of a command line with gradcheck's options replaced by ours.

    Raises:
        UsageError: an option that has no meaning here.
    """
    if "gradcheck" not in words:
        return list(words)
    return [new for word in words for new in _one(word)]


def _one(word: str) -> list[str]:
    option, equals, _ = word.partition("=")
    option = option.replace("_", "-") if option.startswith("--") else option
    if option in _REFUSED:
        raise UsageError(f"{option}: {_REFUSED[option]}")
    if option in ("--fast", "--fast-mode"):
        return ["--battery", "none"]
    name = option.removeprefix("--no-").removeprefix("--")
    if not option.startswith("--") or name not in _ITEMS:
        return [word if not option.startswith("--") else option + word[len(option) :]] if not equals else [word]
    if not option.startswith("--no-") or not _ITEMS[name]:
        return []
    return ["--without", _ITEMS[name]]
