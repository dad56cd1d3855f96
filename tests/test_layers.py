"""The architecture as a test: imports point one way, and a help text costs no torch."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("kernels_core", "exactref", "exactref_cli")

# What each package may import beside the standard library. exactref_cli may read the data classes of kernels_core.
ALLOWED = {
    "kernels_core": {"kernels_core", "torch", "numpy", "flint"},
    "exactref": {"exactref", "kernels_core"},
    "exactref_cli": {
        "exactref_cli",
        "exactref",
        "kernels_core",
        "torch",
        "typer",
        "pydantic",
        "pydantic_core",
        "yaml",
        "rich",
    },
}

# Leaves of kernels_core, lowest first: each may import those before it and nothing else of ours.
LEAVES = ("errors", "formats", "profiles", "enclosure")


def modules(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def imported(path: Path) -> Iterator[tuple[str, bool]]:
    """Yield (module, True where it is imported for the type checker only)."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, id(node) in typing_only
        elif isinstance(node, ast.ImportFrom):
            yield ("." * node.level) + (node.module or ""), id(node) in typing_only


def foreign(path: Path) -> set[str]:
    return {name.partition(".")[0] for name, _ in imported(path)} - set(sys.stdlib_module_names)


@pytest.mark.parametrize("package", PACKAGES)
def test_package_imports_only_what_lies_below(package: str) -> None:
    offenders = {
        f"{path.relative_to(ROOT)}: {name}" for path in modules(package) for name in foreign(path) - ALLOWED[package]
    }
    assert not offenders


def test_rich_is_imported_only_by_the_renderers() -> None:
    renderers = ROOT / "exactref_cli" / "render"
    offenders = [
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in modules(package)
        if "rich" in foreign(path) and renderers not in path.parents
    ]
    assert not offenders


@pytest.mark.parametrize("leaf", LEAVES)
def test_leaf_imports_only_lower_leaves(leaf: str) -> None:
    below = {f"kernels_core.{name}" for name in LEAVES[: LEAVES.index(leaf)]}
    one = ROOT / "kernels_core" / f"{leaf}.py"
    ours = {
        name
        for path in ([one] if one.is_file() else (ROOT / "kernels_core" / leaf).rglob("*.py"))
        for name, typing_only in imported(path)
        if name.partition(".")[0] in PACKAGES and not typing_only
    }
    assert {name for name in ours if not name.startswith(f"kernels_core.{leaf}.")} <= below


@pytest.mark.parametrize("package", PACKAGES)
def test_package_is_marked_as_typed(package: str) -> None:
    assert (ROOT / package / "py.typed").is_file()


def test_help_does_not_import_torch() -> None:
    program = (
        "import sys\n"
        "sys.argv = ['exactref', '--help']\n"
        "from exactref_cli.app import main\n"
        "try:\n"
        "    main()\n"
        "except SystemExit as stop:\n"
        "    code = stop.code or 0\n"
        "else:\n"
        "    code = 0\n"
        "sys.exit('torch was imported' if 'torch' in sys.modules else code)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "gradcheck" in done.stdout


def test_layout_in_the_design_names_every_package_of_the_engine() -> None:
    text = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    layout = text.partition("## Where things live")[2].partition("\n## ")[0]
    packages = {path.parent.name for path in (ROOT / "kernels_core").glob("*/__init__.py")}
    modules = {path.stem for path in (ROOT / "kernels_core").glob("*.py")} - {"__init__", "float8", "declared"}
    assert not {name for name in packages if f"{name}/" not in layout}
    assert not {name for name in modules if name not in layout}
