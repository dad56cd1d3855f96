"""Three Triton kernels for the CPU, in Triton's interpreter: layer norm with its backward, softmax, matrix product."""

import os

os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported

import torch
import triton
import triton.language as tl
from torch.autograd import Function

Tensor = torch.Tensor


@triton.jit
def _layer_norm(x, weight, bias, y, means, rstds, columns, eps, block: tl.constexpr):
    row, place = tl.program_id(0), tl.arange(0, block)
    inside = place < columns
    values = tl.load(x + row * columns + place, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(values, axis=0) / columns
    centred = tl.where(inside, values - mean, 0.0)
    rstd = 1 / tl.sqrt(tl.sum(centred * centred, axis=0) / columns + eps)
    w, b = tl.load(weight + place, mask=inside, other=0.0), tl.load(bias + place, mask=inside, other=0.0)
    tl.store(y + row * columns + place, centred * rstd * w + b, mask=inside)
    tl.store(means + row, mean)
    tl.store(rstds + row, rstd)


@triton.jit
def _layer_norm_backward(x, weight, grad, means, rstds, grad_x, partial_w, columns, block: tl.constexpr):
    row, place = tl.program_id(0), tl.arange(0, block)
    inside = place < columns
    g = tl.load(grad + row * columns + place, mask=inside, other=0.0).to(tl.float32)
    values = tl.load(x + row * columns + place, mask=inside, other=0.0).to(tl.float32)
    rstd = tl.load(rstds + row)
    xhat = tl.where(inside, (values - tl.load(means + row)) * rstd, 0.0)
    h = g * tl.load(weight + place, mask=inside, other=0.0).to(tl.float32)
    mean_h, mean_hx = tl.sum(h, axis=0) / columns, tl.sum(h * xhat, axis=0) / columns
    tl.store(grad_x + row * columns + place, rstd * (h - mean_h - xhat * mean_hx), mask=inside)
    tl.store(partial_w + row * columns + place, g * xhat, mask=inside)


@triton.jit
def _softmax(x, y, columns, block: tl.constexpr):
    row, place = tl.program_id(0), tl.arange(0, block)
    inside = place < columns
    values = tl.load(x + row * columns + place, mask=inside, other=-float("inf")).to(tl.float32)
    powers = tl.exp(values - tl.max(values, axis=0))
    tl.store(y + row * columns + place, powers / tl.sum(powers, axis=0), mask=inside)


@triton.jit
def _softmax_backward(y, grad, grad_x, columns, block: tl.constexpr):
    row, place = tl.program_id(0), tl.arange(0, block)
    inside = place < columns
    p = tl.load(y + row * columns + place, mask=inside, other=0.0)
    g = tl.load(grad + row * columns + place, mask=inside, other=0.0).to(tl.float32)
    tl.store(grad_x + row * columns + place, p * (g - tl.sum(p * g, axis=0)), mask=inside)


@triton.jit
def _matmul(a, b, c, m, n, k, a_row, a_column, b_row, b_column, block: tl.constexpr):
    rows = tl.program_id(0) * block + tl.arange(0, block)[:, None]
    columns = tl.program_id(1) * block + tl.arange(0, block)[None, :]
    total = tl.zeros((block, block), dtype=tl.float32)
    for start in range(0, k, block):
        down, along = start + tl.arange(0, block)[:, None], start + tl.arange(0, block)[None, :]
        left = tl.load(a + rows * a_row + along * a_column, mask=(rows < m) & (along < k), other=0.0)
        right = tl.load(b + down * b_row + columns * b_column, mask=(down < k) & (columns < n), other=0.0)
        total += tl.dot(left, right)
    tl.store(c + rows * n + columns, total, mask=(rows < m) & (columns < n))


class LayerNorm(Function):
    """Layer norm of rows, which keeps mean and 1/std of each."""

    @staticmethod
    def forward(ctx, input: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        rows, columns = input.shape
        y = torch.empty(input.shape, dtype=input.dtype)
        means, rstds = torch.empty(rows), torch.empty(rows)
        block = triton.next_power_of_2(columns)
        parameters = weight.contiguous(), bias.contiguous()
        _layer_norm[(rows,)](input.contiguous(), *parameters, y, means, rstds, columns, 1e-5, block=block)
        ctx.save_for_backward(input, weight, means, rstds)
        return y

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        input, weight, means, rstds = ctx.saved_tensors
        rows, columns = input.shape
        grad_x, partial = torch.empty(input.shape, dtype=input.dtype), torch.empty(rows, columns)
        arguments = (input.contiguous(), weight.contiguous(), grad.contiguous(), means, rstds, grad_x, partial, columns)
        _layer_norm_backward[(rows,)](*arguments, block=triton.next_power_of_2(columns))
        return grad_x, partial.sum(0).to(weight.dtype), grad.float().sum(0).to(weight.dtype)


class CountsThePadding(LayerNorm):
    """A fault: the columns beyond the row enter the variance, as where a mask is left out."""

    @staticmethod
    def forward(ctx, input: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        padded = torch.nn.functional.pad(input, (0, 1))
        y = LayerNorm.forward(ctx, padded, *(torch.nn.functional.pad(t, (0, 1)) for t in (weight, bias)))
        _, _, means, rstds = ctx.to_save
        ctx.save_for_backward(input, weight, means, rstds)
        return y[:, :-1].clone()


class Softmax(Function):
    """Softmax of rows; the float32 result is kept."""

    @staticmethod
    def forward(ctx, input: Tensor) -> Tensor:
        y = torch.empty(input.shape)
        _softmax[(input.shape[0],)](input.contiguous(), y, input.shape[1], block=triton.next_power_of_2(input.shape[1]))
        ctx.save_for_backward(y)
        return y.to(input.dtype)

    @staticmethod
    def backward(ctx, grad: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        grad_x = torch.empty(grad.shape, dtype=grad.dtype)
        block = triton.next_power_of_2(y.shape[1])
        _softmax_backward[(y.shape[0],)](y, grad.contiguous(), grad_x, y.shape[1], block=block)
        return grad_x


class IgnoresTheSum(Softmax):
    """A fault: the backward is that of independent elements."""

    @staticmethod
    def backward(ctx, grad: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        return (y * grad).to(grad.dtype)


class Matmul(Function):
    """Matrix product in blocks of 16; the backward is two more of them, on transposed strides."""

    @staticmethod
    def product(A: Tensor, B: Tensor) -> Tensor:
        (m, k), n = A.shape, B.shape[1]
        C = torch.empty(m, n, dtype=A.dtype)
        grid = (triton.cdiv(m, 16), triton.cdiv(n, 16))
        _matmul[grid](A, B, C, m, n, k, *A.stride(), *B.stride(), block=16)
        return C

    @staticmethod
    def forward(ctx, A: Tensor, B: Tensor) -> Tensor:
        ctx.save_for_backward(A, B)
        return Matmul.product(A, B)

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, Tensor]:
        A, B = ctx.saved_tensors
        return Matmul.product(grad, B.T), Matmul.product(A.T, grad)


class LosesTheTail(Matmul):
    """A fault: the last, incomplete block of the inner dimension is left out."""

    @staticmethod
    def forward(ctx, A: Tensor, B: Tensor) -> Tensor:
        ctx.save_for_backward(A, B)
        whole = A.shape[1] // 16 * 16
        return Matmul.product(A[:, :whole], B[:whole])
