"""Losses with hand-written gradients, and a fault of each."""

import torch
from torch.autograd import Function


def wide(t):
    """Return a 16-bit tensor as float32, others as they are."""
    return t.float() if t.dtype.itemsize < 4 else t


class MyCrossEntropy(Function):
    """Mean cross entropy with label smoothing and z loss; the gradient is formed in the forward, as Liger does."""

    smoothed_to = staticmethod(lambda smoothing, classes: smoothing / classes)

    @classmethod
    def forward(cls, ctx, input, target, reduction, ignore_index, label_smoothing, z_loss):
        """Return the mean over the rows that are not ignored."""
        x, kept = wide(input), target != ignore_index
        safe, count = target.masked_fill(~kept, 0), kept.sum()
        lse = torch.logsumexp(x, -1, keepdim=True)
        floor = cls.smoothed_to(label_smoothing, x.shape[-1])
        q = torch.full_like(x, floor).scatter_add_(1, safe[:, None], torch.full_like(x[:, :1], 1 - label_smoothing))
        loss = (lse - (q * x).sum(-1, keepdim=True) + z_loss * lse * lse)[:, 0]
        gradient = torch.softmax(x, -1) * (1 + 2 * z_loss * lse) - q
        ctx.save_for_backward(torch.where(kept[:, None], gradient / count, 0.0))
        return (torch.where(kept, loss, 0.0).sum() / count).to(input.dtype)

    @staticmethod
    def backward(ctx, grad):
        """Return the gradient of the forward times grad."""
        (gradient,) = ctx.saved_tensors
        return (gradient * wide(grad)).to(grad.dtype), None, None, None, None, None


class SmoothsOverTheOthers(MyCrossEntropy):
    """A fault: the smoothing is shared by the other classes, as if the target got none of it."""

    smoothed_to = staticmethod(lambda smoothing, classes: smoothing / (classes - 1))


class MyLinearCrossEntropy(Function):
    """Cross entropy of a linear layer, two rows of logits at a time; both gradients are formed in the forward."""

    @staticmethod
    def forward(ctx, input, weight, target):
        """Return the mean loss."""
        x, w, n = wide(input), wide(weight), len(target)
        loss, grad_x, grad_w = torch.zeros(()), torch.zeros_like(x), torch.zeros_like(w)
        for i in range(0, n, 2):
            logits = x[i : i + 2] @ w.T
            lse = torch.logsumexp(logits, -1, keepdim=True)
            rows = torch.arange(len(logits))
            loss = loss + (lse[:, 0] - logits[rows, target[i : i + 2]]).sum()
            p = torch.exp(logits - lse)
            p[rows, target[i : i + 2]] -= 1
            grad_x[i : i + 2] = p @ w / n
            grad_w += p.T @ x[i : i + 2] / n
        ctx.save_for_backward(grad_x, grad_w)
        return (loss / n).to(input.dtype)

    @staticmethod
    def backward(ctx, grad):
        """Return both gradients times grad."""
        return (*((g * wide(grad)).to(grad.dtype) for g in ctx.saved_tensors), None)


class IgnoresGradOutput(MyLinearCrossEntropy):
    """A fault: the gradients of the forward are returned as if the loss were the end of everything."""

    @staticmethod
    def backward(ctx, grad):
        """Return the gradients for grad = 1."""
        return (*(g.to(grad.dtype) for g in ctx.saved_tensors), None)


class MyKlDivergence(Function):
    """Mean of t (log t - x)."""

    @staticmethod
    def forward(ctx, input, target):
        """Return the mean over all elements; a target of 0 adds nothing."""
        x, t = wide(input), wide(target)
        ctx.save_for_backward(input, target)
        return torch.where(t > 0, t * (torch.log(t) - x), 0.0).mean().to(input.dtype)

    @staticmethod
    def backward(ctx, grad):
        """Return -t / n and (log t - x + 1) / n, times grad."""
        input, target = ctx.saved_tensors
        x, t, g = wide(input), wide(target), wide(grad) / input.numel()
        return (-t * g).to(input.dtype), ((torch.log(t) - x + 1) * g).to(target.dtype)


class ForgetsTheOne(MyKlDivergence):
    """A fault: the derivative of t log t is taken for log t."""

    @staticmethod
    def backward(ctx, grad):
        """Return the gradients without the 1."""
        input, target = ctx.saved_tensors
        x, t, g = wide(input), wide(target), wide(grad) / input.numel()
        return (-t * g).to(input.dtype), ((torch.log(t) - x) * g).to(target.dtype)


class MyJsd(Function):
    """Generalised Jensen-Shannon divergence of two rows of log-probabilities, the mean over rows."""

    @staticmethod
    def forward(ctx, input, target, beta):
        """Return the divergence."""
        log_q, log_p = wide(input), wide(target)
        log_m = torch.log(beta * torch.exp(log_p) + (1 - beta) * torch.exp(log_q))
        ctx.save_for_backward(log_q, log_p, log_m)
        ctx.beta = beta
        terms = beta * torch.exp(log_p) * (log_p - log_m) + (1 - beta) * torch.exp(log_q) * (log_q - log_m)
        return (terms.sum() / len(input)).to(input.dtype)

    @staticmethod
    def backward(ctx, grad):
        """Return beta p (log p - log m) and (1 - beta) q (log q - log m): the derivatives of log m cancel the ones."""
        log_q, log_p, log_m = ctx.saved_tensors
        g, beta = wide(grad) / len(log_q), ctx.beta
        grad_q = (1 - beta) * torch.exp(log_q) * (log_q - log_m) * g
        return grad_q.to(grad.dtype), (beta * torch.exp(log_p) * (log_p - log_m) * g).to(grad.dtype), None


class SwapsTheDistributions(MyJsd):
    """A fault: beta weights the other distribution."""

    @staticmethod
    def forward(ctx, input, target, beta):
        """Return the divergence with 1 - beta."""
        return MyJsd.forward(ctx, input, target, 1 - beta)


class MyFocalLoss(Function):
    """Mean focal loss of logits and labels 0 or 1."""

    @staticmethod
    def forward(ctx, input, target, alpha, gamma):
        """Return the mean of -a (1 - p)^gamma log p."""
        ctx.save_for_backward(input, target)
        ctx.settings = alpha, gamma
        a, p, log_p, _ = MyFocalLoss._terms(wide(input), target, alpha)
        return (-a * (1 - p) ** gamma * log_p).mean().to(input.dtype)

    @staticmethod
    def backward(ctx, grad):
        """Return a (1 - p)^gamma (gamma p log p - (1 - p)) times the sign of the label."""
        input, target = ctx.saved_tensors
        alpha, gamma = ctx.settings
        a, p, log_p, sign = MyFocalLoss._terms(wide(input), target, alpha)
        slope = a * (1 - p) ** gamma * (gamma * p * log_p - (1 - p)) * sign
        return (slope * (wide(grad) / input.numel())).to(input.dtype), None, None, None

    @staticmethod
    def _terms(x, target, alpha):
        sign = 2 * wide(target) - 1
        a = torch.where(sign > 0, alpha, 1 - alpha)
        return a, torch.sigmoid(x * sign), torch.nn.functional.logsigmoid(x * sign), sign


class FocusAsConstant(MyFocalLoss):
    """A fault: the factor (1 - p)^gamma is not differentiated."""

    @staticmethod
    def backward(ctx, grad):
        """Return the gradient of the weighted log-likelihood."""
        input, target = ctx.saved_tensors
        alpha, gamma = ctx.settings
        a, p, _, sign = MyFocalLoss._terms(wide(input), target, alpha)
        slope = -a * (1 - p) ** (gamma + 1) * sign
        return (slope * (wide(grad) / input.numel())).to(input.dtype), None, None, None


def log_probabilities(generator):
    """Return two rows of log-probabilities and a beta."""
    q, p = torch.log_softmax(torch.randn(2, 4, 9, generator=generator), -1)
    return {"input": q.requires_grad_(), "target": p.requires_grad_(), "beta": 0.3}


def log_and_plain_probabilities(generator):
    """Return log-probabilities and the probabilities of a target."""
    q, p = torch.log_softmax(torch.randn(2, 4, 9, generator=generator), -1)
    return {"input": q.requires_grad_(), "target": p.exp().requires_grad_()}


def logits_and_labels(generator):
    """Return logits of size 2 and labels 0 or 1."""
    x = 2 * torch.randn(5, 8, generator=generator)
    labels = torch.randint(2, x.shape, generator=generator).float()
    return {"input": x.requires_grad_(), "target": labels, "alpha": 0.25, "gamma": 2.0}
