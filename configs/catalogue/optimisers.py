"""Update steps, and a fault of each. They have no gradient that anybody asks for: only the new state is checked."""

import torch


def sgd(parameter, grad, momentum_buffer, lr, momentum):
    """Return the new parameter and buffer."""
    buffer = momentum_buffer * momentum + grad
    return parameter - lr * buffer, buffer


def sgd_with_the_old_buffer(parameter, grad, momentum_buffer, lr, momentum):
    """A fault: the step is taken by the buffer of the step before."""
    return parameter - lr * momentum_buffer, momentum_buffer * momentum + grad


def adam(parameter, grad, exp_avg, exp_avg_sq, step):
    """Return the new parameter and moments of Adam with PyTorch's defaults."""
    m = 0.9 * exp_avg + 0.1 * grad
    v = 0.999 * exp_avg_sq + 0.001 * grad * grad
    size = 1e-3 / (1 - 0.9**step)
    return parameter - size * m / (v.sqrt() / (1 - 0.999**step) ** 0.5 + 1e-8), m, v


def adam_with_eps_under_the_root(parameter, grad, exp_avg, exp_avg_sq, step):
    """A fault: epsilon is added to v instead of its root."""
    _, m, v = adam(parameter, grad, exp_avg, exp_avg_sq, step)
    root = torch.sqrt(v / (1 - 0.999**step) + 1e-8)
    return parameter - 1e-3 / (1 - 0.9**step) * m / root, m, v


def adam_state(generator):
    """Return the state of an early step, where squares of gradients are small."""
    parameter, grad, m = torch.randn(3, 12, generator=generator)
    return {"parameter": parameter, "grad": 1e-3 * grad, "exp_avg": 1e-3 * m, "exp_avg_sq": 1e-6 * grad**2, "step": 3}
