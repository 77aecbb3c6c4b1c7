"""Sparse matrices of callers and files, checked before compiled code uses their indices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from onoff.errors import InvalidChain, InvalidModel

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix


def checked_csr(given: Any, error: type[InvalidChain] | type[InvalidModel]) -> csr_matrix:
    """A copy of a sparse matrix as CSR floats, each entry once and none zero. Raises `error` where it is broken."""
    from scipy.sparse import csr_matrix

    matrix = csr_matrix(given, dtype=np.float64, copy=True)
    try:
        matrix.check_format(full_check=True)
    except ValueError as fault:
        raise error(f"not a CSR matrix: {fault}", hint="sources are numbered from 0 to N - 1") from None
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    return matrix
