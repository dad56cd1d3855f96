"""The façade: what `import exactref` offers, and the examples of its documentation."""

import pytest
import torch

import exactref as er


def test_all_lists_every_public_name_in_order() -> None:
    public = {name for name in vars(er) if not name.startswith("_")}
    assert set(er.__all__) == public
    assert er.__all__ == sorted(er.__all__)


def test_every_catalogue_entry_is_an_attribute() -> None:
    for name, entry in er.catalogue().items():
        assert getattr(er, name) is entry
        assert entry.name == name


def test_algorithms_are_attributes_named_after_their_entry() -> None:
    for name, entry in er.catalogue().items():
        for algorithm, reference in entry.algorithms.items():
            assert getattr(entry, algorithm) is reference
            assert reference.name == f"{name}.{algorithm}"
    assert er.attention.flash.declared is not None


def test_unknown_algorithm_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(AttributeError, match="has no algorithm 'one_pas', did you mean \"one_pass\""):
        er.layer_norm.one_pas  # noqa: B018


def test_matmul_covers_a_float32_product_and_not_a_half_precision_one() -> None:
    A, B = torch.randn(16, 32, generator=torch.Generator().manual_seed(0)), torch.randn(32, 8)
    assert er.matmul(A, B).covers(A @ B).all()
    assert er.matmul(A, B).covers((A.half() @ B.half()).float()).float().mean() < 0.1


def test_matmul_backward_names_its_gradients_after_the_arguments() -> None:
    A, B, grad = torch.randn(3, 4), torch.randn(4, 5), torch.randn(3, 5)
    results = er.matmul.backward(A, B, grad)
    assert list(results) == ["grad_A", "grad_B"]
    assert results["grad_A"].covers(grad @ B.T).all()
    assert results["grad_B"].covers(A.T @ grad).all()


class DoublesThrice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 3 * x * grad


def test_assert_covered_raises_with_the_report_where_a_gradient_is_wrong() -> None:
    x = torch.randn(8)
    with pytest.raises(er.NotCovered, match="grad_input"):
        er.assert_covered(DoublesThrice, (x,), reference=er.square)
    report = er.check(DoublesThrice, (x,), reference=er.square)
    assert report.verdict is er.Verdict.VIOLATED
    assert report.row("output").verdict is er.Verdict.COVERED
