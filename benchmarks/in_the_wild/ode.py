"""The adjoint Function of torchdiffeq on y' = A y, whose solution is exp(A t) y_0.

Rounding is all that a check excuses, so the error of a method must be below it, or be part of the reference.
"""

import torch
from torchdiffeq import odeint_adjoint

STEPS = 8


class Linear(torch.nn.Module):
    """The right-hand side A y."""

    def __init__(self, A):
        """Keep the matrix as an attribute, so that it stays the argument that it is."""
        super().__init__()
        self.A = A

    def forward(self, t, y):
        """Return A y."""
        return self.A @ y


def by_runge_kutta(A, y, t):
    """Return y(t) by 8 Runge-Kutta steps, its gradient by the adjoint equation and the same method."""
    times = torch.stack([torch.zeros_like(t), t])
    settings = {"method": "rk4", "options": {"step_size": 0.125}, "adjoint_params": (A,)}
    return odeint_adjoint(Linear(A), y, times, **settings)[-1]


def plain_runge_kutta(A, y, t):
    """Return the same steps, by the 3/8 rule as torchdiffeq takes them."""
    h = t / STEPS
    for _ in range(STEPS):
        k1 = A @ y
        k2 = A @ (y + h * k1 / 3)
        k3 = A @ (y + h * (k2 - k1 / 3))
        k4 = A @ (y + h * (k1 - k2 + k3))
        y = y + (k1 + 3 * (k2 + k3) + k4) * h / 8
    return y


def by_tight_tolerance(A, y, t):
    """Return y(t) of float32 inputs, solved in float64 to 1e-11 and rounded once."""
    A, y, t = A.double(), y.double(), t.double()
    times = torch.stack([torch.zeros_like(t), t])
    settings = {"method": "dopri8", "rtol": 1e-11, "atol": 1e-11, "adjoint_params": (A,)}
    return odeint_adjoint(Linear(A), y, times, **settings)[-1].float()


def by_default_tolerance(A, y, t):
    """Return y(t) of float32 inputs with every setting left out: tolerances of 1e-7 and 1e-9."""
    times = torch.stack([torch.zeros_like(t), t])
    return odeint_adjoint(Linear(A), y, times, adjoint_params=(A,))[-1]


def known_solution(A, y, t):
    """Return exp(A t) y."""
    return torch.linalg.matrix_exp(A * t) @ y
