"""The commands from end to end with a fake engine: whole output, exit codes, and where each part of it goes."""

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from exactref_cli.app import main
from kernels_core.errors import UnsupportedOperation
from kernels_core.report import BatteryRow, Outcome, Raised, Verdict

Call = Callable[..., tuple[int, str, str]]
Engine = Callable[..., list[dict[str, Any]]]

SPEC = """\
version: 1
checks:
  - name: first
    function: kernels.py:Square
    inputs: {x: {shape: [2, 3]}}
  - name: second
    function: kernels.py:Square
    reference: kernels.py:plain
    inputs: {x: {shape: [2, 3]}}
    expect: violated
"""

PASSING = """\
kernels:Square: covered
  kernels:Square against Square.forward
  inputs: x float32[2, 3]
  seed 7, profile ieee, device cpu, 0.25 s

                                                                                 max error  bound
  tensor  shape  dtype    elements  covered  violated  undecided  unconstrained      (ulp)  (ulp)  used  verdict
  output  2x3    float32         6        6         0          0              0      0.498  0.709  0.96  covered
  grad_x  2x3    float32         6        6         0          0              0      0.498  0.709  0.96  covered

  grad_x: 2 elements at kinks, inside the subdifferential

1 case: 1 covered; 12 of 12 elements covered; 0.2 s
"""

FAILING = """\
kernels:Square: violated
  kernels:Square against Square.forward
  inputs: x float32[2, 3]
  chosen by trial: x=16x32
  seed 0, profile ieee, device cpu, 0.25 s

                                                                                 max error  bound
  tensor  shape  dtype    elements  covered  violated  undecided  unconstrained      (ulp)  (ulp)      used  verdict
  output  2x3    float32         6        6         0          0              0      0.498  0.709      0.96  covered
  grad_x  2x3    float32         6        0         6          0              0   8.39e+06  0.709  4.19e+06  violated

  grad_x is violated: all elements
  all 6 failing elements are 1.5 times the exact value

  index   actual         admissible interval  exact value  ulps outside  actual/exact
  [1, 2]   0.375  [0.249999985, 0.250000015]         0.25      8.39e+06           1.5
  [0, 1]     nan                    [-1, -1]           -1           inf             -

  and 4 more elements
  shape [2, 3], strides [3, 1], float32, seed 0
  repeat: exactref gradcheck kernels:Square --shape x=16x32 --dtype float32 --seed 0 --vary-sizes

1 case: 1 violated; 6 of 12 elements covered; 0.2 s
"""

RAISED = """\
kernels:Square: raised
  kernels:Square against Square.forward
  inputs: x float32[2, 3]
  seed 0, profile ieee, device cpu, 0.25 s
  backward raised RuntimeError: boom
      File "kernels.py", line 20, in backward
        boom()
  repeat: exactref gradcheck kernels:Square --shape x=4 --dtype float32 --seed 0

1 case: 1 raised; 0 of 0 elements covered; 0.2 s
"""


def test_help_answers_in_half_a_second() -> None:
    command = [sys.executable, "-m", "exactref_cli.app", "--help"]
    root = Path(__file__).parents[2]
    seconds = []
    for _ in range(3):  # of the processor: the machine may be busy with other tests
        before = os.times()
        subprocess.run(command, cwd=root, check=True, capture_output=True, env={**os.environ, "PYTHONPATH": str(root)})
        after = os.times()
        seconds.append(after.children_user - before.children_user + after.children_system - before.children_system)
    assert min(seconds) < 0.5


def test_gradcheck_prints_the_table_of_a_covered_kernel(
    folder: Path, engine: Engine, exactref: Call, reports: Any
) -> None:
    calls = engine(reports.report(reports.row(), reports.row("grad_x", kinks=2)))
    code, out, err = exactref("gradcheck", "kernels:Square", "--shape", "x=2x3", "--seed", "7")
    assert (code, out, err) == (0, PASSING, "")
    assert calls[0]["inputs"]["x"].shape == (2, 3)


def test_gradcheck_prints_the_failure_screen_of_a_violated_kernel(
    folder: Path, engine: Engine, exactref: Call, reports: Any
) -> None:
    engine(reports.report(reports.row(), reports.violated_row()))
    assert exactref("gradcheck", "kernels:Square") == (1, FAILING, "")


def test_gradcheck_prints_the_frames_of_a_kernel_that_raises(
    folder: Path, engine: Engine, exactref: Call, reports: Any
) -> None:
    frames = '  File "kernels.py", line 20, in backward\n    boom()'
    engine(reports.report(raised=Raised("backward", "RuntimeError: boom", frames)))
    assert exactref("gradcheck", "kernels:Square", "--shape", "x=4") == (1, RAISED, "")


def test_repeat_command_runs_the_same_case(folder: Path, engine: Engine, exactref: Call, reports: Any) -> None:
    calls = engine(reports.report(reports.violated_row()))
    _, out, _ = exactref("gradcheck", "kernels:Matmul", "--dtype", "float16", "--seed", "3", "--wrt", "A")
    command = next(line for line in out.splitlines() if "repeat:" in line).split()
    exactref(*command[2:])
    first, second = calls
    assert all(torch.equal(first["inputs"][name], second["inputs"][name]) for name in "AB")
    assert {**first, "inputs": 0, "settings": 0} == {**second, "inputs": 0, "settings": 0}


def test_explicit_values_reach_the_engine(folder: Path, engine: Engine, exactref: Call, reports: Any) -> None:
    calls = engine(reports.report(reports.row()))
    code, _, _ = exactref("gradcheck", "kernels:Square", "--values", "x=[-0.5,0.3,0.7,1.5]", "--dtype", "bfloat16")
    assert code == 0
    assert torch.equal(calls[0]["inputs"]["x"], torch.tensor([-0.5, 0.3, 0.7, 1.5], dtype=torch.bfloat16))


def test_a_family_of_values_is_named_beside_the_shape(
    folder: Path, engine: Engine, exactref: Call, reports: Any
) -> None:
    calls = engine(reports.report(reports.violated_row()))
    _, out, _ = exactref("gradcheck", "kernels:Square", "--values", "x=positive", "--shape", "x=50")
    assert calls[0]["inputs"]["x"].min() >= 0.25
    assert calls[0]["inputs"]["x"].shape == (50,)
    assert "--shape x=50 --values x=positive" in " ".join(out.split())


def test_a_kernel_is_run_with_and_without_the_tensors_that_may_be_left_out(
    folder: Path, engine: Engine, exactref: Call, reports: Any
) -> None:
    (folder / "optional.py").write_text("def add(x, bias=None):\n    return x if bias is None else x + bias\n", "utf-8")
    calls = engine(reports.report(reports.row()))
    _, out, _ = exactref("gradcheck", "optional.py:add")
    assert [call["inputs"]["bias"] is None for call in calls] == [False, True]
    assert "optional.py:add[with bias]: covered" in out
    assert "optional.py:add[without bias]: covered" in out


def test_an_entry_of_the_catalogue_can_be_the_kernel(exactref: Call) -> None:
    code, out, _ = exactref("gradcheck", "exactref:matmul")
    assert code == 0
    assert "exactref:matmul against matmul\n" in out


def test_items_of_a_list_are_named_on_the_command_line(
    folder: Path, engine: Engine, exactref: Call, reports: Any
) -> None:
    (folder / "lists.py").write_text("def dot(xs, p):\n    return xs[0] * xs[1] * p['w']\n", "utf-8")
    calls = engine(reports.report(reports.row()))
    exactref("gradcheck", "lists.py:dot", "--shape", "xs[1]=3", "--shape", "p.w=3", "--values", "xs[0]=ones")
    assert calls[0]["inputs"]["xs"][0].unique().tolist() == [1]
    assert calls[0]["inputs"]["xs"][1].shape == (3,)
    assert calls[0]["inputs"]["p"]["w"].shape == (3,)


def test_interrupt_is_said_in_one_line(folder: Path, engine: Engine, exactref: Call) -> None:
    engine(KeyboardInterrupt())
    code, _, err = exactref("gradcheck", "kernels:Square")
    assert (code, err.splitlines()[-1]) == (130, "interrupted: the cases that were not finished are not decided")


def test_a_compiler_that_is_not_here_decides_nothing(
    folder: Path, engine: Engine, exactref: Call, reports: Any
) -> None:
    message = "InductorError: InvalidCxxCompiler: No working C++ compiler found in (None, 'g++')"
    engine(reports.report(raised=Raised("forward", message, "")))
    code, out, _ = exactref("gradcheck", "kernels:Square")
    assert code == 4
    assert "torch.compile finds no C++ compiler on this machine\n  install one" in out


def test_every_dtype_is_a_case(folder: Path, engine: Engine, exactref: Call, reports: Any) -> None:
    calls = engine(reports.report(reports.row()))
    _, out, _ = exactref("gradcheck", "kernels:Square", "--dtype", "float32", "--dtype", "bfloat16")
    assert [call["inputs"]["x"].dtype for call in calls] == [torch.float32, torch.bfloat16]
    assert out.endswith("\n2 cases: 2 covered; 12 of 12 elements covered; 0.5 s\n")


def test_options_reach_the_engine(folder: Path, engine: Engine, exactref: Call, reports: Any) -> None:
    calls = engine(reports.report(reports.row()))
    options = ["--reference", "kernels.py:plain", "--reference-backward", "kernels.py:make", "--profile", "cuda"]
    exactref("gradcheck", "kernels.py:Square", *options, "--kinks", "convention", "--seed", "5", "--wrt", "x")
    (call,) = calls
    names = call["reference"].__name__, call["reference_backward"].__name__
    assert names == ("plain", "make")
    assert (call["profile"], call["kinks"], call["seed"], call["wrt"]) == ("cuda", "convention", 5, ("x",))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["kernels:Square", "--shape", "y=3"], "--shape: no argument is called 'y'\nknown: x"),
        (["kernels:Square", "--shape", "x=3by4"], "--shape: wanted NAME=AxB, as in A=16x32, found 'x=3by4'"),
        (["kernels:Square", "--shape", "16x32"], "--shape: wanted NAME=AxB, as in A=16x32, found '16x32'"),
        (
            ["kernels:Square", "--values", "x=[1,[2]]"],
            "--values: wanted NAME=VALUES, as in x=[-0.5,0.3] or eps=1e-5, found 'x=[1,[2]]'",
        ),
        (
            ["kernels:Square", "--shape", "x=2", "--values", "x=[1,2]"],
            "x has both --shape and --values\nthe values already say its shape",
        ),
        (
            ["kernels:Square", "--dtype", "bfloat"],
            "--dtype: wanted one of float64, float32, bfloat16, float16, float8_e4m3fn, float8_e5m2, float8_e4m3fnuz, "
            "float8_e5m2fnuz, complex64, complex128, found 'bfloat', "
            'did you mean "bfloat16"?',
        ),
        (
            ["kernels:Square", "--device", "cud"],
            "--device: wanted one of cpu, cuda, mps, xpu, found 'cud', did you mean \"cuda\"?",
        ),
        (["kernels:Square", "--kinks", "acept"], "wanted one of accept, convention, found 'acept', did you mean \"a"),
        (["kernels:Square", "--profile", "eeee"], "--profile: wanted one of ieee, cuda"),
        (["kernels:Square", "--wrt", "X"], "--wrt: no floating tensor input is called 'X'"),
        (["kernels:Square", "--format", "html"], "--format: wanted table or json, found 'html'"),
        (["kernels:Square", "--output", "no/where.json"], "--output: no/where.json cannot be written: No such file"),
        (
            ["kernels:Square", "--values", "x=postive"],
            "--values: no family of values is called 'postive', did you mean \"positive\"?\nknown: normal, uniform",
        ),
        (["kernels:Squar"], 'kernels has no attribute Squar, did you mean "Square"?'),
        (["kernels:plain", "--shap", "x=2"], "No such option: --shap"),
    ],
)
def test_mistake_in_the_options_is_one_message_and_exit_2(
    folder: Path, engine: Engine, exactref: Call, arguments: list[str], message: str, reports: Any
) -> None:
    engine(reports.report(reports.row()))
    code, out, err = exactref("gradcheck", *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert "Traceback" not in err


def test_import_failure_shows_the_frames_and_exits_2(folder: Path, exactref: Call) -> None:
    (folder / "broken.py").write_text("x = 1\ny = x.rows\n", encoding="utf-8")
    code, out, err = exactref("gradcheck", "broken.py:f")
    lines = [line for line in err.splitlines() if not set(line) <= set(" ^~")]
    assert (code, out) == (2, "")
    assert lines == [
        "broken.py could not be imported (from broken.py:f)",
        f'  File "{folder}/broken.py", line 2, in <module>',
        "    y = x.rows",
        "AttributeError: 'int' object has no attribute 'rows'",
    ]


def test_check_runs_every_case_and_honours_what_is_expected(
    folder: Path, engine: Engine, exactref: Call, reports: Any
) -> None:
    (folder / "spec.yaml").write_text(SPEC, encoding="utf-8")
    engine(reports.report(reports.row()), reports.report(reports.violated_row()))
    code, out, _ = exactref("check", "spec.yaml")
    assert code == 0
    assert "second: violated as expected\n" in out
    assert out.endswith("\n2 cases: 1 covered, 1 violated as expected; 6 of 12 elements covered; 0.5 s\n")


def test_known_fault_that_is_no_longer_caught_fails(folder: Path, engine: Engine, exactref: Call, reports: Any) -> None:
    (folder / "spec.yaml").write_text(SPEC, encoding="utf-8")
    engine(reports.report(reports.row()))
    code, out, _ = exactref("check", ".")
    assert code == 1
    assert "second: covered but expected violated\n" in out


def test_case_option_runs_one_case(folder: Path, engine: Engine, exactref: Call, reports: Any) -> None:
    (folder / "spec.yaml").write_text(SPEC, encoding="utf-8")
    calls = engine(reports.report(reports.row()))
    assert exactref("check", "spec.yaml", "--case", "first")[0] == 0
    assert len(calls) == 1
    code, _, err = exactref("check", "spec.yaml", "--case", "frist")
    assert (code, err) == (2, "no case is called 'frist', did you mean \"first\"?\n")


def test_check_shows_all_mistakes_of_all_files(folder: Path, exactref: Call) -> None:
    (folder / "a.yaml").write_text(SPEC.replace("seed", "seed").replace("expect: violated", "expct: x"))
    (folder / "b.yaml").write_text(SPEC.replace("kernels.py:Square", "kernels.py:Squar"))
    code, out, err = exactref("check", "a.yaml", "b.yaml")
    assert (code, out) == (2, "")
    assert err == (
        'a.yaml:10: checks[1].expct: unknown key, did you mean "expect"?\n'
        'b.yaml:4: checks[0].function: kernels.py has no attribute Squar, did you mean "Square"?\n'
        'b.yaml:7: checks[1].function: kernels.py has no attribute Squar, did you mean "Square"?\n'
    )


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("spek.yaml", 'there is no file or folder spek.yaml, did you mean "spec.yaml"?\n'),
        ("empty", "empty holds no spec file\na spec file ends in .yaml or .yml\n"),
    ],
)
def test_check_of_nothing_says_so(folder: Path, exactref: Call, path: str, message: str) -> None:
    (folder / "spec.yaml").write_text(SPEC, encoding="utf-8")
    (folder / "empty").mkdir()
    assert exactref("check", path) == (2, "", message)


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (Verdict.COVERED, 0),
        (Verdict.VIOLATED, 1),
        (Verdict.UNDECIDED, 4),
        (Verdict.UNCONSTRAINED, 4),
        (Verdict.SUSPECT, 4),
        (UnsupportedOperation("aten.foo", "kernels.py:3"), 2),
        (KeyError("bug"), 3),
        (MemoryError(), 4),
        (RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory"), 4),
    ],
)
def test_exit_code_follows_the_outcome(
    folder: Path, engine: Engine, exactref: Call, reports: Any, answer: Any, code: int
) -> None:
    engine(answer if isinstance(answer, BaseException) else reports.report(reports.row(verdict=answer)))
    assert exactref("gradcheck", "kernels:Square")[0] == code


def test_shapes_beyond_the_memory_are_not_decided(folder: Path, engine: Engine, exactref: Call) -> None:
    engine(RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 6480000000000 bytes."))
    code, out, _ = exactref("gradcheck", "kernels:Square")
    assert code == 4
    assert "  out of memory: 6,035.0 GiB at once are not to be had\n  give smaller shapes" in out


def test_kernel_that_ends_the_program_never_passes(folder: Path, engine: Engine, exactref: Call) -> None:
    engine(SystemExit(0))
    code, out, _ = exactref("gradcheck", "kernels:Square")
    assert code == 1
    assert out.startswith("kernels:Square: raised\n  the kernel ended the program: sys.exit(0)\n")


def test_report_without_elements_exits_5(folder: Path, engine: Engine, exactref: Call, reports: Any) -> None:
    engine(reports.report(reports.row(elements=0, covered=0)))
    code, out, _ = exactref("gradcheck", "kernels:Square")
    assert code == 5
    assert "kernels:Square: nothing checked\n" in out


def test_missing_device_is_not_decided(folder: Path, engine: Engine, exactref: Call, reports: Any) -> None:
    engine(reports.report(reports.row()))
    code, out, _ = exactref("gradcheck", "kernels:Square", "--device", "xpu")
    assert code == 4
    assert "kernels:Square: not decided\n  device xpu cannot be used here: " in out


def test_one_internal_error_does_not_stop_the_others(
    folder: Path, engine: Engine, exactref: Call, reports: Any
) -> None:
    (folder / "spec.yaml").write_text(SPEC, encoding="utf-8")
    engine(KeyError("bug"), reports.report(reports.violated_row()))
    code, out, err = exactref("check", "spec.yaml")
    assert (code, err) == (3, "")
    assert out.startswith("first: internal error\n  KeyError: 'bug'\n\nsecond: violated as expected\n")


def test_debug_shows_the_traceback_of_an_internal_error(
    folder: Path, engine: Engine, exactref: Call, reports: Any
) -> None:
    engine(KeyError("bug"))
    code, _, err = exactref("--debug", "gradcheck", "kernels:Square")
    assert code == 3
    assert err.startswith("Traceback")


def test_unexpected_error_outside_of_a_case_exits_3(
    folder: Path, exactref: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("exactref_cli.plan.spec_files", lambda paths: 1 / 0)
    assert exactref("check", "spec.yaml") == (
        3,
        "",
        "internal error: ZeroDivisionError: division by zero\n"
        "a bug of exactref, please report it; `exactref --debug ...` shows the traceback\n",
    )


def test_json_has_what_the_table_has(folder: Path, engine: Engine, exactref: Call, reports: Any) -> None:
    engine(reports.report(reports.row(), reports.violated_row()))
    code, out, _ = exactref("gradcheck", "kernels:Square", "--format", "json")
    found = json.loads(out)
    assert (found["version"], found["exit_code"], code) == (1, 1, 1)
    (case,) = found["cases"]
    assert (case["name"], case["verdict"], case["seed"]) == ("kernels:Square", "violated", 0)
    assert case["repeat"] == "exactref gradcheck kernels:Square --shape x=16x32 --dtype float32 --seed 0 --vary-sizes"
    assert case["tensors"][1]["failure"]["elements"][1] == {
        "index": [0, 1], "actual": "nan", "lower": -1.0, "upper": -1.0, "exact": -1.0, "ulps_outside": "inf",
        "ratio": None,
    }  # fmt: skip


@pytest.mark.parametrize("form", ["table", "json"])
def test_output_file_has_the_report_and_the_screen_the_summary(
    folder: Path, engine: Engine, exactref: Call, reports: Any, form: str
) -> None:
    engine(reports.report(reports.row(), reports.row("grad_x", kinks=2)))
    options = ["--shape", "x=2x3", "--seed", "7", "--format", form, "--output", "report.txt"]
    code, out, _ = exactref("gradcheck", "kernels:Square", *options)
    assert (code, out) == (0, "1 case: 1 covered; 12 of 12 elements covered; 0.2 s\n")
    written = (folder / "report.txt").read_text(encoding="utf-8")
    assert written == PASSING if form == "table" else json.loads(written)["exit_code"] == 0


def test_what_a_kernel_prints_is_no_part_of_the_report(
    folder: Path, engine: Engine, exactref: Call, reports: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "loud.py").write_text("print('loading')\n\n\ndef plain(x):\n    return x\n", encoding="utf-8")
    engine(reports.report(reports.row()))
    _, out, err = exactref("gradcheck", "loud.py:plain", "--format", "json")
    assert json.loads(out)["exit_code"] == 0
    assert err == "loading\n"


def test_random_state_of_the_caller_is_left_alone(folder: Path, engine: Engine, exactref: Call, reports: Any) -> None:
    engine(reports.report(reports.row()))
    before = torch.get_rng_state()
    exactref("gradcheck", "kernels:Square")
    assert torch.equal(torch.get_rng_state(), before)


def test_list_shows_references_profiles_and_operations(exactref: Call) -> None:
    code, out, _ = exactref("list")
    assert code == 0
    assert "exactref:attention.flash" in out
    assert "ieee" in out
    assert "aten.mul.Tensor" in out
    assert all(line == line.rstrip() for line in out.splitlines())
    found = json.loads(exactref("list", "--format", "json")[1])
    assert {"reference": "exactref:matmul", "arguments": "A, B"} in found["references"]


def test_command_line_without_arguments_shows_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main([])
    assert stop.value.code == 2
    captured = capsys.readouterr()
    assert "gradcheck" in captured.out + captured.err


def test_version_is_shown(exactref: Call) -> None:
    code, out, _ = exactref("--version")
    assert code == 0
    assert out.startswith("exactref")


def test_device_that_does_not_exist_is_a_mistake_of_the_spec(folder: Path, exactref: Call) -> None:
    text = SPEC.replace("    expect: violated", "    device: gpu\n    matrix: {dtype: [float32], device: [cpu, cpx]}")
    (folder / "spec.yaml").write_text(text, encoding="utf-8")
    code, out, err = exactref("check", "spec.yaml")
    assert (code, out) == (2, "")
    assert err == (
        "spec.yaml:10: checks[1].device: wanted one of cpu, cuda, mps, xpu, found 'gpu', did you mean \"cuda\"?\n"
        "spec.yaml:11: checks[1].matrix.device: wanted one of cpu, cuda, mps, xpu, found 'cpx', did you mean \"cpu\"?\n"
    )


def test_battery_of_gradcheck_is_all_unless_items_are_named(exactref, engine, folder, reports) -> None:
    calls = engine(reports.report(reports.row()))
    exactref("gradcheck", "kernels:Square")
    exactref("gradcheck", "kernels:Square", "--battery", "none")
    assert [call["battery"] for call in calls] == [("all",), ("none",)]


def test_battery_is_kept_by_the_repeat_command_and_printed_with_it(exactref, engine, folder, reports) -> None:
    row = BatteryRow("shared_grad_output", Outcome.FAIL, "the second branch got another gradient")
    engine(dataclasses.replace(reports.report(reports.row()), battery=(row,)))
    code, out, _ = exactref("gradcheck", "kernels:Square", "--battery", "shared_grad_output")
    assert code == 1
    assert "  battery             outcome  evidence\n  shared_grad_output  fail     the second branch got" in out
    assert "--seed 0 --battery shared_grad_output\n" in out


def test_unknown_item_is_one_message(exactref, folder) -> None:
    code, _, err = exactref("gradcheck", "kernels:Square", "--battery", "shared_grad")
    assert (code, err.splitlines()[0]) == (
        2,
        "--battery: no battery item is called 'shared_grad', did you mean \"shared_grad_output\"?",
    )


def test_sizes_found_by_trial_are_varied_and_the_repeat_command_varies_them_too(exactref, engine, folder, reports):
    calls = engine(reports.report(reports.row()))
    _, out, _ = exactref("gradcheck", "kernels:Square", "--format", "json")
    (case,) = json.loads(out)["cases"]
    assert case["repeat"].endswith(" --vary-sizes")
    exactref(*case["repeat"].split()[1:])
    exactref("gradcheck", "kernels:Square", "--shape", "x=16x32")
    labels = [[size.label for size in call["settings"].sizes] for call in calls]
    assert labels[0][:3] == ["1 for 32", "1 for 16", "16 for 32"]
    assert labels[0] == labels[1]
    assert labels[2] == []
    assert calls[0]["settings"].sizes[0].inputs()[0]["x"].shape == (16, 1)


def test_gradient_that_is_none_comes_with_a_hint(folder: Path, exactref: Call) -> None:
    (folder / "mask.py").write_text(
        "import torch\n\n\nclass Masked(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x, mask):\n"
        "        ctx.save_for_backward(mask)\n        return x * mask\n\n    @staticmethod\n"
        "    def backward(ctx, grad):\n        return grad * ctx.saved_tensors[0], None\n",
        encoding="utf-8",
    )
    call = ("gradcheck", "mask.py:Masked", "--shape", "x=3", "--shape", "mask=3", "--battery", "none")
    code, out, _ = exactref(*call)
    assert code == 1
    assert "if mask is not to be differentiated, say so: --wrt x, or requires_grad: false in a spec" in out
    assert exactref(*call, "--wrt", "x")[0] == 0


def test_rounding_that_the_backward_reads_comes_with_a_hint(folder: Path, exactref: Call) -> None:
    (folder / "soft.py").write_text(
        "import torch\n\n\nclass Soft(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n"
        "        y = torch.softmax(x.float(), -1).to(x.dtype)\n        ctx.save_for_backward(y)\n        return y\n\n"
        "    @staticmethod\n    def backward(ctx, grad):\n        y, g = ctx.saved_tensors[0].float(), grad.float()\n"
        "        return (y * (g - (g * y).sum(-1, keepdim=True))).to(grad.dtype)\n\n\n"
        "def stored(inputs, outputs, grads):\n    y, g = outputs[0].float(), grads[0].float()\n"
        "    return ((y * (g - (g * y).sum(-1, keepdim=True))).to(inputs[0].dtype),)\n",
        encoding="utf-8",
    )
    call = ("gradcheck", "soft.py:Soft", "--reference", "exactref:softmax", "--dtype", "bfloat16", "--shape", "x=16x32")
    code, out, _ = exactref(*call, "--battery", "none")
    assert code == 1
    assert "if the backward is meant to read that rounded value, declare so: reference_backward" in out
    declared = exactref(*call, "--battery", "none", "--reference-backward", "soft.py:stored")
    assert declared[0] == 0, declared[1]  # what docs/specs.md shows
