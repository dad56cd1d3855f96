"""What a target may name, and what is said when it names nothing."""

from pathlib import Path

import pytest
import torch

from exactref_cli.target import load, load_callable, load_kernel
from kernels_core.errors import TargetError


def test_file_target_is_relative_to_the_given_folder(folder: Path) -> None:
    assert load("kernels.py:plain", folder)(torch.tensor(3.0)) == 9


def test_two_targets_of_one_file_share_one_module(folder: Path) -> None:
    assert load("kernels.py:Square", folder) is load(str(folder / "kernels.py") + ":Square", Path("/"))


def test_module_target_is_found_in_the_working_directory(folder: Path) -> None:
    assert load("kernels:Square", Path("/")).__name__ == "Square"


def test_dotted_attribute_is_followed(folder: Path) -> None:
    assert load("kernels.py:Square.forward", folder).__name__ == "forward"


@pytest.mark.parametrize("text", ["kernels.py:Square", "kernels.py:plain", "kernels.py:layer", "torch:sin"])
def test_kernel_is_a_function_class_a_callable_or_a_module(folder: Path, text: str) -> None:
    assert callable(load_kernel(text, folder))


def test_catalogue_reference_is_loaded_by_name(folder: Path) -> None:
    assert load("exactref:matmul", folder).name == "matmul"
    assert load("exactref:gelu.tanh", folder).name == "gelu.tanh"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kernels", "wanted module:attr or path.py:attr, found 'kernels'"),
        ("kernels.py:", "wanted module:attr or path.py:attr, found 'kernels.py:'"),
        ("kernel.py:Square", 'there is no file kernel.py in {folder}, did you mean "kernels.py"?'),
        ("kernels.py:Squar", 'kernels.py has no attribute Squar, did you mean "Square"?'),
        (
            "kernells:Square",
            "there is no module kernells (from kernells:Square)\n"
            "modules are looked for in the working directory, beside the spec file and in the environment",
        ),
        ("kernels.py:number", "kernels.py:number is of type int: wanted something that can be called"),
        (
            "torch.nn:Linear",
            "torch.nn:Linear: Linear is an nn.Module class that cannot be built without arguments: missing a required "
            "argument: 'in_features'\nname an instance, or a function without arguments that returns one",
        ),
        (
            "pathlib:Path",
            "pathlib:Path is a class: wanted an autograd.Function, a callable or an nn.Module\n"
            "name an instance, as in `kernel = Path(...)` in the module",
        ),
    ],
)
def test_target_that_cannot_be_used_is_explained(folder: Path, text: str, message: str) -> None:
    with pytest.raises(TargetError) as caught:
        load_kernel(text, folder)
    assert str(caught.value) == message.format(folder=folder)


def test_unknown_catalogue_reference_names_the_nearest(folder: Path) -> None:
    with pytest.raises(TargetError, match="no reference 'matmull', did you mean \"matmul\"") as caught:
        load_callable("exactref:matmull", folder)
    assert "known: matmul, linear" in str(caught.value)


def test_unknown_algorithm_names_the_nearest(folder: Path) -> None:
    with pytest.raises(TargetError, match="gelu has no algorithm 'tan', did you mean \"tanh\""):
        load_callable("exactref:gelu.tan", folder)


def test_import_failure_shows_the_frames_of_the_user_alone(folder: Path) -> None:
    (folder / "broken.py").write_text("def inner():\n    return [][0]\n\n\nx = inner()\n", encoding="utf-8")
    with pytest.raises(TargetError, match=r"broken.py could not be imported \(from broken.py:f\)") as caught:
        load("broken.py:f", folder)
    lines = [line for line in caught.value.frames.splitlines() if not set(line) <= set(" ^~")]
    path = folder / "broken.py"
    assert lines == [
        f'  File "{path}", line 5, in <module>',
        "    x = inner()",
        f'  File "{path}", line 2, in inner',
        "    return [][0]",
        "IndexError: list index out of range",
    ]


def test_missing_import_inside_a_module_is_an_import_failure(folder: Path) -> None:
    (folder / "needs.py").write_text("import kernels_that_nobody_has\n", encoding="utf-8")
    with pytest.raises(TargetError, match=r"needs could not be imported") as caught:
        load("needs:f", folder)
    assert caught.value.frames.endswith("ModuleNotFoundError: No module named 'kernels_that_nobody_has'")


def test_module_that_failed_is_imported_anew_when_mended(folder: Path) -> None:
    path = folder / "mended.py"
    path.write_text("1 / 0\n", encoding="utf-8")
    with pytest.raises(TargetError):
        load("mended.py:x", folder)
    path.write_text("x = 12345\n", encoding="utf-8")
    assert load("mended.py:x", folder) == 12345
