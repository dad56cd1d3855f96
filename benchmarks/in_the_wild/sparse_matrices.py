"""The Functions of torchsparsegradutils on matrices with a fixed pattern, as functions of the stored values.

Inputs of a check are dense, so the sparse matrix is built inside of the kernel; its gradient comes back as that of the
values.
"""

import torch
from torchsparsegradutils import sparse_mm, sparse_triangular_solve

ROWS = torch.tensor([0, 0, 1, 1, 2, 3, 3, 4])
COLUMNS = torch.tensor([0, 3, 1, 2, 2, 0, 3, 1])
LOWER = torch.tensor([[0, 1, 1, 2, 2, 3, 3, 3], [0, 0, 1, 1, 2, 0, 2, 3]])


def product(values, B):
    """Return A B, A a COO matrix of 5 x 4."""
    return sparse_mm(torch.sparse_coo_tensor(torch.stack([ROWS, COLUMNS]), values, (5, 4)).coalesce(), B)


def product_csr(values, B):
    """Return A B, A a CSR matrix of 5 x 4."""
    starts = torch.searchsorted(ROWS, torch.arange(6))
    return sparse_mm(torch.sparse_csr_tensor(starts, COLUMNS, values, (5, 4)), B)


def product_repeated(values, B):
    """Return A B, A a COO matrix whose first two entries are one element, to be added."""
    places = torch.stack([ROWS.clone().index_fill_(0, torch.tensor([1]), 0), COLUMNS.clone()])
    places[1, 1] = 0
    return sparse_mm(torch.sparse_coo_tensor(places, values, (5, 4)), B)


def plain_product(values, B):
    """Return A B from a dense matrix."""
    return torch.zeros(5, 4).index_put((ROWS, COLUMNS), values) @ B


def plain_product_repeated(values, B):
    """Return A B, the first two values at one place."""
    columns = torch.cat([COLUMNS[:1], COLUMNS[:1], COLUMNS[2:]])
    return torch.zeros(5, 4).index_put((ROWS, columns), values, accumulate=True) @ B


def solution(values, B):
    """Return the solution of the lower triangular A X = B, A a CSR matrix of 4 x 4."""
    return _solve(values, B, transpose=False)


def transposed_solution(values, B):
    """Return the solution of A^T X = B."""
    return _solve(values, B, transpose=True)


def _solve(values, B, transpose):
    starts = torch.searchsorted(LOWER[0].contiguous(), torch.arange(5))
    A = torch.sparse_csr_tensor(starts, LOWER[1], values, (4, 4))
    return sparse_triangular_solve(A, B, upper=False, transpose=transpose)


def plain_solution(values, B):
    """Return the solution from a dense matrix."""
    A = torch.zeros(4, 4).index_put((LOWER[0], LOWER[1]), values)
    return torch.linalg.solve_triangular(A, B, upper=False)


def plain_transposed_solution(values, B):
    """Return the solution of the transposed system from a dense matrix."""
    A = torch.zeros(4, 4).index_put((LOWER[0], LOWER[1]), values)
    return torch.linalg.solve_triangular(A.T, B, upper=True)
