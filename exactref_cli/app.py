"""The commands. Each loads, calls, renders and exits; torch is imported inside them, so that --help is quick."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from exactref_cli import exits, familiar
from kernels_core.errors import AssumptionError, ExactRefError, TargetError, UsageError, described

app = typer.Typer(
    help="Certify the outputs and gradients of custom autograd Functions and kernels, element by element.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Format = Annotated[str, typer.Option("--format", help="table or json.")]
Required = Annotated[
    str | None, typer.Option(help="A format whose rounding these inputs must be able to show, as float16.")
]
Reproduce = Annotated[
    Path | None, typer.Option("--reproduce", help="Folder for a small script and spec of each violated case.")
]
Output = Annotated[Path | None, typer.Option("--output", help="Write the report there instead of standard output.")]


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import PackageNotFoundError, version

        try:
            sys.stdout.write(f"exactref {version('exactref-cli')}\n")
        except PackageNotFoundError:
            sys.stdout.write("exactref, not installed\n")
        raise typer.Exit


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an internal error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Certify the outputs and gradients of custom autograd Functions and kernels, element by element."""


@app.command()
def gradcheck(
    ctx: typer.Context,
    target: Annotated[str, typer.Argument(help="The kernel: module:attr or path.py:attr.")],
    shape: Annotated[list[str] | None, typer.Option(help="NAME=AxB; found by trial where left out.")] = None,
    values: Annotated[
        list[str] | None, typer.Option(help="NAME=[0.5,1], NAME=1e-5, or a family: NAME=positive.")
    ] = None,
    dtype: Annotated[list[str] | None, typer.Option(help="Of floating inputs, one case each; float32.")] = None,
    device: Annotated[str, typer.Option(help="Where the kernel runs.")] = "cpu",
    reference: Annotated[
        str | None, typer.Option(help="exactref:NAME, module:attr or path.py:attr; the Function's own forward if none.")
    ] = None,
    reference_backward: Annotated[str | None, typer.Option(help="A declared backward.")] = None,
    seed: Annotated[int, typer.Option(help="Of inputs and upstream gradients.")] = 0,
    profile: Annotated[
        str | None, typer.Option(help="NAME or NAME,KNOB=VALUE,...; PyTorch's own arithmetic on the device if none.")
    ] = None,
    bound: Annotated[str | None, typer.Option(help="worst-case or probabilistic.")] = None,
    kinks: Annotated[str, typer.Option(help="accept or convention.")] = "accept",
    wrt: Annotated[list[str] | None, typer.Option(help="Differentiate these inputs only: A,B.")] = None,
    mode: Annotated[str | None, typer.Option(help="train or eval, of a module; the one that it is in if none.")] = None,
    battery: Annotated[list[str] | None, typer.Option(help="all, none or the name of a contract item.")] = None,
    without: Annotated[list[str] | None, typer.Option(help="A contract item to leave out.")] = None,
    nondet_tol: Annotated[float | None, typer.Option(help="Largest difference between calls; any, if none.")] = None,
    surrogate: Annotated[
        bool, typer.Option("--surrogate", help="The declared backward is meant to differ from the derivative.")
    ] = False,
    vary_sizes: Annotated[bool, typer.Option("--vary-sizes", help="Let the battery vary given shapes too.")] = False,
    exhaustive: Annotated[
        bool, typer.Option("--exhaustive", help="All values of a 16-bit or 8-bit dtype, of an elementwise function.")
    ] = False,
    require_sensitivity: Required = None,
    form: Format = "table",
    output: Output = None,
    reproduce: Reproduce = None,
) -> None:
    """Check one kernel, forward and gradients, without a spec."""
    from exactref_cli import deliver
    from exactref_cli import gradcheck as quick
    from exactref_cli.options import Options

    asked = Options(
        target, shape or (), values or (), dtype or ("float32",), device, reference, reference_backward, seed, profile,
        kinks, wrt or (), battery or ("all",), require_sensitivity, vary_sizes, mode, without or (), nondet_tol,
        surrogate, bound, exhaustive,
    )  # fmt: skip
    raise typer.Exit(deliver.deliver(quick.cases(asked), form, output, _debug(ctx), reproduce))


@app.command()
def check(
    ctx: typer.Context,
    paths: Annotated[list[Path], typer.Argument(help="Spec files, and folders of them.")],
    case: Annotated[list[str] | None, typer.Option(help="Run only the case of this name.")] = None,
    require_sensitivity: Required = None,
    form: Format = "table",
    output: Output = None,
    reproduce: Reproduce = None,
) -> None:
    """Check every case of spec files."""
    from exactref_cli import deliver, plan

    cases = plan.select(plan.from_specs(plan.spec_files(paths)), case or ())
    cases = plan.requiring(cases, require_sensitivity)
    raise typer.Exit(deliver.deliver(cases, form, output, _debug(ctx), reproduce))


@app.command()
def init(
    target: Annotated[str, typer.Argument(help="The kernel: module:attr or path.py:attr.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="The spec file; called after the kernel if none.")
    ] = None,
    shape: Annotated[list[str] | None, typer.Option(help="NAME=AxB; found by trial where left out.")] = None,
    values: Annotated[list[str] | None, typer.Option(help="NAME=[0.5,1], NAME=1e-5, or a family.")] = None,
    reference: Annotated[str | None, typer.Option(help="As in gradcheck; looked for in the catalogue if none.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
) -> None:
    """Write a first spec of a kernel. It has shapes found by trial, a reference that computes the same, the dtypes."""
    from exactref_cli import starter
    from exactref_cli.options import Options

    found = starter.starter(Options(target, shape or (), values or (), reference=reference), output, force)
    starter.write(found)
    lines = (f"wrote {found.path}", *found.told, starter.checked(found))
    sys.stdout.write("\n".join(lines) + "\n")


@app.command()
def explain(
    paths: Annotated[list[Path], typer.Argument(help="Spec files, and folders of them.")],
    case: Annotated[list[str] | None, typer.Option(help="Explain only the case of this name.")] = None,
    form: Format = "table",
) -> None:
    """Say what a spec will check, and its cost. No kernel is called: the reference is traced without values."""
    from exactref_cli import explain as reader
    from exactref_cli import plan
    from exactref_cli.render import explain as screen
    from exactref_cli.render.console import on

    _require_form(form)
    found = reader.explained(plan.select(plan.from_specs(plan.spec_files(paths)), case or ()))
    if form == "json":
        sys.stdout.write(screen.as_json(found) + "\n")
    else:
        screen.show(on(), found)


@app.command()
def doctor(
    points: Annotated[int, typer.Option(help="Random arguments per function, beside the hard ones.")] = 2000,
    seed: Annotated[int, typer.Option(help="Of the random arguments.")] = 0,
    form: Format = "table",
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
) -> None:
    """Measure what the bounds rest on. Rounding, subnormals, float64 sums, products and functions, on this machine."""
    from exactref_cli.render import doctor as screen
    from exactref_cli.render.console import on
    from kernels_core.doctor import examine

    _require_form(form)
    found = examine(points, seed)
    if as_json or form == "json":
        sys.stdout.write(screen.as_json(found) + "\n")
    else:
        screen.show(on(), found)
    raise typer.Exit(exits.COVERED if all(one.holds for one in found) else exits.NOT_DECIDED)


@app.command()
def schema() -> None:
    """Print the JSON Schema of the spec, for editors."""
    import json

    from exactref_cli.schema import Spec

    sys.stdout.write(json.dumps(Spec.model_json_schema(), indent=2) + "\n")


@app.command()
def power(
    target: Annotated[str, typer.Argument(help="A spec file, or a kernel: module:attr or path.py:attr.")],
    shape: Annotated[list[str] | None, typer.Option(help="NAME=AxB; found by trial where left out.")] = None,
    dtype: Annotated[list[str] | None, typer.Option(help="Of floating inputs, one case each; float32.")] = None,
    reference: Annotated[str | None, typer.Option(help="As in gradcheck.")] = None,
    seed: Annotated[int, typer.Option(help="Of inputs and upstream gradients.")] = 0,
    case: Annotated[list[str] | None, typer.Option(help="Only the case of this name.")] = None,
    limit: Annotated[int, typer.Option(help="Most mutants of single operations per case.")] = 400,
    form: Format = "table",
) -> None:
    """Plant faults and report which are caught. Shows what a pass of this kernel on these inputs means."""
    from exactref_cli import power as score
    from exactref_cli.options import Options

    options = Options(target, shape or (), dtype=dtype or ("float32",), reference=reference, seed=seed)
    raise typer.Exit(score.deliver(score.scores(score.cases(options, case or ()), limit), form))


@app.command("list")
def list_(form: Format = "table") -> None:
    """List references, operations and profiles."""
    from exactref_cli.listing import listing
    from exactref_cli.render import listing as screen
    from exactref_cli.render.console import on

    if form == "json":
        sys.stdout.write(screen.as_json(listing()) + "\n")
    else:
        screen.show(on(), listing())


def _require_form(form: str) -> None:
    if form not in ("table", "json"):
        raise UsageError(f"--format: wanted table or json, found {form!r}")


def _debug(ctx: typer.Context) -> bool:
    return bool(ctx.find_root().params.get("debug"))


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit: a mistake of the user is one message and code 2, a bug of ours code 3."""
    words = sys.argv[1:] if arguments is None else arguments
    try:
        app(familiar.translated(words), prog_name="exactref")
    except SystemExit as stop:
        if stop.code == exits.INTERRUPTED:
            sys.stderr.write("interrupted: the cases that were not finished are not decided\n")
        raise
    except AssumptionError as error:
        _complain(str(error), exits.NOT_DECIDED)
    except ExactRefError as error:
        frames = error.frames if isinstance(error, TargetError) else ""
        _complain("\n".join(filter(None, (str(error), frames))), exits.USAGE)
    except Exception as error:
        if "--debug" in words:
            traceback.print_exc()
        remedy = "a bug of exactref, please report it; `exactref --debug ...` shows the traceback"
        _complain(f"internal error: {described(error)}\n{remedy}", exits.INTERNAL)


def _complain(message: str, code: int) -> NoReturn:
    sys.stderr.write(message.rstrip() + "\n")
    raise SystemExit(code) from None


if __name__ == "__main__":
    main()
