"""Kernels along a sequence: sparse softmaxes by sorting, scans and linear attention, and a fault of each."""

import math

import torch
from torch.autograd import Function


def wide(t):
    """Return a 16-bit tensor as float32, others as they are."""
    return t.float() if t.dtype.itemsize < 4 else t


class MySparsemax(Function):
    """Sparsemax over the last dimension by bisection of the threshold."""

    @staticmethod
    def forward(ctx, input):
        """Return max(x - tau, 0); tau is bisected to the last bit, then taken from its support."""
        x = wide(input)
        low, high = x.amax(-1, keepdim=True) - 1, x.amax(-1, keepdim=True)
        for _ in range(40):
            middle = (low + high) / 2
            enough = (x - middle).clamp(min=0).sum(-1, keepdim=True) >= 1
            low, high = torch.where(enough, middle, low), torch.where(enough, high, middle)
        support = x > low
        tau = ((x * support).sum(-1, keepdim=True) - 1) / support.sum(-1, keepdim=True)
        ctx.save_for_backward(support)
        return ((x - tau) * support).clamp(min=0).to(input.dtype)

    @staticmethod
    def backward(ctx, grad):
        """Return grad less its mean over the support, on the support."""
        (support,) = ctx.saved_tensors
        g = wide(grad) * support
        return ((g - g.sum(-1, keepdim=True) / support.sum(-1, keepdim=True)) * support).to(grad.dtype)


class MeanOverAll(MySparsemax):
    """A fault: the mean of the backward is over all elements."""

    @staticmethod
    def backward(ctx, grad):
        """Return grad less a mean that is too small."""
        (support,) = ctx.saved_tensors
        g = wide(grad) * support
        return ((g - g.mean(-1, keepdim=True)) * support).to(grad.dtype)


class MyEntmax15(Function):
    """Entmax-1.5 over the last dimension; the gradient needs no more than the roots of the result."""

    @staticmethod
    def forward(ctx, input):
        """Return max(x / 2 - tau, 0)^2."""
        y = (wide(input) - wide(input).amax(-1, keepdim=True)) / 2
        largest, k = y.sort(-1, descending=True).values, torch.arange(1, y.shape[-1] + 1)
        mean, squares = largest.cumsum(-1) / k, largest.square().cumsum(-1) / k
        tau = mean - ((1 - k * (squares - mean * mean)) / k).clamp(min=0).sqrt()
        tau = tau.gather(-1, (tau <= largest).sum(-1, keepdim=True) - 1)
        root = (y - tau).clamp(min=0)
        ctx.save_for_backward(root)
        return (root * root).to(input.dtype)

    @staticmethod
    def backward(ctx, grad):
        """Return r (g - sum(r g) / sum(r)), r the root."""
        (root,) = ctx.saved_tensors
        g = wide(grad)
        return (root * (g - (root * g).sum(-1, keepdim=True) / root.sum(-1, keepdim=True))).to(grad.dtype)


class AsOfSoftmax(MyEntmax15):
    """A fault: the backward takes the result for a softmax."""

    @staticmethod
    def backward(ctx, grad):
        """Return p (g - sum(p g))."""
        p, g = ctx.saved_tensors[0].square(), wide(grad)
        return (p * (g - (p * g).sum(-1, keepdim=True))).to(grad.dtype)


class MyGatedScan(Function):
    """h_t = a_t h_(t-1) + x_t in one pass; the backward is the same scan from the end."""

    @staticmethod
    def forward(ctx, gate, input, initial_state):
        """Return all states."""
        a, x, h = wide(gate), wide(input), wide(initial_state)
        states = []
        for t in range(x.shape[-2]):
            h = a[..., t, :] * h + x[..., t, :]
            states.append(h)
        ctx.save_for_backward(a, wide(initial_state), torch.stack(states, -2))
        return torch.stack(states, -2).to(input.dtype)

    @staticmethod
    def backward(ctx, grad):
        """Return the gradients of gates, inputs and the initial state."""
        a, first, states = ctx.saved_tensors
        g, carried = wide(grad), torch.zeros_like(first)
        grad_a, grad_x = torch.zeros_like(a), torch.zeros_like(a)
        for t in reversed(range(a.shape[-2])):
            carried = carried + g[..., t, :]
            grad_x[..., t, :] = carried
            grad_a[..., t, :] = carried * (states[..., t - 1, :] if t else first)
            carried = carried * a[..., t, :]
        return grad_a.to(grad.dtype), grad_x.to(grad.dtype), carried.to(grad.dtype)


class OneStepLate(MyGatedScan):
    """A fault: the gradient is carried on by the gate of the step before."""

    @staticmethod
    def backward(ctx, grad):
        """Return the gradients with shifted gates."""
        a, first, states = ctx.saved_tensors
        shifted = type("Saved", (), {"saved_tensors": (a.roll(1, -2), first, states)})
        return MyGatedScan.backward(shifted, grad)


class MyLinearAttention(Function):
    """Linear attention in chunks of 2: a state for what lies before the chunk, a matrix product within."""

    chunk = 2

    @classmethod
    def forward(cls, ctx, query, key, value):
        """Return the outputs, chunk after chunk."""
        ctx.save_for_backward(query, key, value)
        return cls.attend(wide(query), wide(key), wide(value)).to(query.dtype)

    @classmethod
    def attend(cls, q, k, v):
        """Return sum over s <= t of (q_t . k_s) v_s."""
        state, outputs = torch.zeros(*q.shape[:-2], q.shape[-1], v.shape[-1]), []
        for start in range(0, q.shape[-2], cls.chunk):
            part = (..., slice(start, start + cls.chunk), slice(None))
            within = (q[part] @ k[part].transpose(-1, -2)).tril() @ v[part]
            outputs.append(q[part] @ state + within)
            state = state + k[part].transpose(-1, -2) @ v[part]
        return torch.cat(outputs, -2)

    @staticmethod
    def backward(ctx, grad):
        """Return three linear attentions, those of key and value from the end."""
        q, k, v = (wide(t) for t in ctx.saved_tensors)
        g, cls = wide(grad), MyLinearAttention
        back = lambda a, b, c: cls.attend(a.flip(-2), b.flip(-2), c.flip(-2)).flip(-2)  # noqa: E731
        found = cls.attend(g, v, k), back(v, g, q), back(k, q, g)
        return tuple(t.to(grad.dtype) for t in found)


class LosesTheCarry(MyLinearAttention):
    """A fault: the state of one chunk replaces that of all chunks before."""

    @classmethod
    def attend(cls, q, k, v):
        """Return outputs that see two chunks only."""
        state, outputs = torch.zeros(*q.shape[:-2], q.shape[-1], v.shape[-1]), []
        for start in range(0, q.shape[-2], cls.chunk):
            part = (..., slice(start, start + cls.chunk), slice(None))
            within = (q[part] @ k[part].transpose(-1, -2)).tril() @ v[part]
            outputs.append(q[part] @ state + within)
            state = k[part].transpose(-1, -2) @ v[part]
        return torch.cat(outputs, -2)


class MySelectiveScan(Function):
    """The scan of Mamba, one step after the other; the backward recomputes the states."""

    @staticmethod
    def forward(ctx, u, delta, A, B, C, D):
        """Return y_t = C_t h_t + D u_t."""
        ctx.save_for_backward(u, delta, A, B, C, D)
        states = MySelectiveScan._states(*(wide(t) for t in (u, delta, A, B)))
        y = torch.einsum("bctn,bnt->bct", states, wide(C)) + wide(D)[:, None] * wide(u)
        return y.to(u.dtype)

    @staticmethod
    def _states(u, delta, A, B):
        h, states = torch.zeros(u.shape[0], *A.shape), []
        for t in range(u.shape[-1]):
            step = delta[..., t, None]
            h = torch.exp(step * A) * h + step * B[:, None, :, t] * u[..., t, None]
            states.append(h)
        return torch.stack(states, 2)

    @staticmethod
    def backward(ctx, grad):
        """Return the six gradients, from the last step to the first."""
        u, delta, A, B, C, D = (wide(t) for t in ctx.saved_tensors)
        g, states = wide(grad), MySelectiveScan._states(u, delta, A, B)
        grad_C = torch.einsum("bctn,bct->bnt", states, g)
        grad_u, grad_delta = D[:, None] * g, torch.zeros_like(delta)
        grad_A, grad_B, carried = torch.zeros_like(A), torch.zeros_like(B), torch.zeros_like(states[:, :, 0])
        for t in reversed(range(u.shape[-1])):
            step, input, b = delta[..., t, None], u[..., t, None], B[:, None, :, t]
            carried = carried + g[..., t, None] * C[:, None, :, t]
            decay = torch.exp(step * A)
            through = carried * decay * (states[:, :, t - 1] if t else 0.0)
            grad_A += (through * step).sum(0)
            grad_delta[..., t] = (through * A + carried * b * input).sum(-1)
            grad_B[..., t] = (carried * step * input).sum(1)
            grad_u[..., t] += (carried * step * b).sum(-1)
            carried = carried * decay
        found = grad_u, grad_delta, grad_A, grad_B, grad_C, (g * u).sum((0, 2))
        return tuple(t.to(grad.dtype) for t in found)


class StepOnlyInTheDecay(MySelectiveScan):
    """A fault: the gradient of delta lacks its part in what is written."""

    @staticmethod
    def backward(ctx, grad):
        """Return the gradients without the second term of delta's."""
        u, delta, A, B, C, _ = (wide(t) for t in ctx.saved_tensors)
        grad_u, grad_delta, *rest = MySelectiveScan.backward(ctx, grad)
        carried = torch.zeros(u.shape[0], *A.shape)
        grad_delta = grad_delta.clone()
        for t in reversed(range(u.shape[-1])):
            carried = carried + wide(grad)[..., t, None] * C[:, None, :, t]
            grad_delta[..., t] -= (carried * B[:, None, :, t] * u[..., t, None]).sum(-1)
            carried = carried * torch.exp(delta[..., t, None] * A)
        return grad_u, grad_delta, *rest


class MyWindowAttention(Function):
    """Sequences one behind the other, causal, with a window, ALiBi and a softcap, a sequence at a time."""

    cap_gradient = staticmethod(lambda bent, cap: 1 - (bent / cap) ** 2)

    @staticmethod
    def forward(ctx, query, key, value, query_offsets, key_offsets, causal, scale, window, softcap, slopes):
        """Return the attention; only the output and logsumexp are kept."""
        outputs, kept = [], []
        spans = list(zip(query_offsets.tolist()[:-1], query_offsets.tolist()[1:], strict=True))
        ctx.spans, ctx.settings = spans, (scale, window, softcap, slopes)
        for start, stop in spans:
            q, k, v = (wide(t[start:stop]).transpose(0, 1) for t in (query, key, value))
            scores = MyWindowAttention._scores(q, k, scale, window, softcap, slopes)[0]
            lse = torch.logsumexp(scores, -1, keepdim=True)
            outputs.append((torch.exp(scores - lse) @ v).transpose(0, 1))
            kept.append(lse)
        out = torch.cat(outputs).to(query.dtype)
        ctx.save_for_backward(query, key, value, out, *kept)
        return out

    @staticmethod
    def _scores(q, k, scale, window, softcap, slopes):
        bent = softcap * torch.tanh(q @ k.transpose(-1, -2) * scale / softcap)
        place = torch.arange(k.shape[1]) - torch.arange(q.shape[1])[:, None]
        hidden = (place > 0) | (place < -window[0])
        return (bent - slopes[:, None, None] * place.abs()).masked_fill(hidden, -math.inf), bent

    @classmethod
    def backward(cls, ctx, grad):
        """Return the gradients of query, key and value, with delta from the stored output."""
        query, key, value, out, *kept = ctx.saved_tensors
        scale, _, softcap, _ = ctx.settings
        grads = [torch.zeros_like(wide(t)) for t in (query, key, value)]
        for (start, stop), lse in zip(ctx.spans, kept, strict=True):
            q, k, v, o, g = (wide(t[start:stop]).transpose(0, 1) for t in (query, key, value, out, grad))
            scores, bent = cls._scores(q, k, *ctx.settings)
            p = torch.exp(scores - lse)
            ds = p * (g @ v.transpose(-1, -2) - (g * o).sum(-1, keepdim=True)) * cls.cap_gradient(bent, softcap)
            found = ds @ k * scale, ds.transpose(-1, -2) @ q * scale, p.transpose(-1, -2) @ g
            for total, part in zip(grads, found, strict=True):
                total[start:stop] = part.transpose(0, 1)
        return (*(g.to(t.dtype) for g, t in zip(grads, (query, key, value), strict=True)), *[None] * 7)


class CapAsConstant(MyWindowAttention):
    """A fault: the derivative of the softcap is left out."""

    cap_gradient = staticmethod(lambda bent, cap: torch.ones_like(bent))


def packed_sequences(generator):
    """Return three sequences of 3, 1 and 4 tokens in one tensor."""
    query, key, value = torch.randn(3, 8, 2, 4, generator=generator)
    offsets = torch.tensor([0, 3, 4, 8])
    tensors = {"query": 2 * query, "key": key, "value": value}
    plain = {"causal": True, "scale": 0.5, "window": (2, 0), "softcap": 4.0, "slopes": torch.tensor([0.5, 0.25])}
    leaves = {name: t.requires_grad_() for name, t in tensors.items()}
    return {**leaves, "query_offsets": offsets, "key_offsets": offsets, **plain}
