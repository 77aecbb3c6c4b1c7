"""ContextLaws: p(x | z, c), the next request of a person of type z in context c, for every type and context.

Laws are a dense array (types, contexts, N), or for many contexts a sparse matrix with one row for each (type, context)
and a share `backoff` that is left to the parent of the context:

    p(x | z, c) = own[z, c, x] + backoff[z, c] p(x | z, parent of c)

so that nothing is impossible and only what was seen takes memory. The *state* z * contexts + c numbers the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from onoff.errors import InvalidModel
from onoff.model.context_tree import ContextTree, context_named
from onoff.model.rows import SUM_TOLERANCE, Floats, Integers
from onoff.model.sparse import checked_csr

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix


class ContextLaws:
    """The laws over a tree of contexts.

    Parameters
    ----------
    matrix
        As `checked_matrix` returns it.
    tree
        The contexts.
    backoff
        With a sparse matrix: the share of each row that is left to its parent, shape (types, contexts); none unless
        given.
    """

    def __init__(self, matrix: Floats | csr_matrix, tree: ContextTree, backoff: Any = None) -> None:
        self.matrix = matrix
        self.tree = tree
        self.n: int = matrix.shape[-1]
        self.contexts = len(tree.contexts)
        self.types: int = len(matrix) if isinstance(matrix, np.ndarray) else matrix.shape[0] // self.contexts
        self.states = self.types * self.contexts
        self.backoff: Floats = self._checked_backoff(backoff)

    @property
    def is_sparse(self) -> bool:
        """Whether the laws are kept as a sparse matrix."""
        return not isinstance(self.matrix, np.ndarray)

    def law(self, state: int) -> Floats:
        """The law of one state, for every source."""
        if isinstance(self.matrix, np.ndarray):
            law: Floats = self.matrix[divmod(state, self.contexts)]
            return law
        return np.asarray(self.mixtures(self.beliefs(np.ones(1), np.array([state]), np.array([0, 1])))[0])

    def beliefs(self, data: Floats, states: Integers, indptr: npt.NDArray[Any]) -> csr_matrix:
        """A CSR matrix of weights of states, a row for each mixture.

        data, states, indptr: The weights, the states they belong to and where each row starts, as in CSR.
        """
        from scipy.sparse import csr_matrix

        return csr_matrix((data, states, indptr), shape=(len(indptr) - 1, self.states))

    def mixtures(self, beliefs: csr_matrix, columns: Integers | None = None) -> Floats:
        """Sum over states of beliefs[i, state] p(x | state), for every i and each source x of `columns` (all)."""
        if isinstance(self.matrix, np.ndarray):
            flat = self.matrix.reshape(self.states, self.n)
            return np.asarray(beliefs @ (flat if columns is None else flat[:, columns]))
        own = self.matrix if columns is None else self._by_column[:, columns]
        mixed = np.asarray((beliefs @ own).toarray())
        for _ in range(self.tree.order):
            left = beliefs.data * self.backoff.reshape(-1)[beliefs.indices]
            if not left.any():
                break
            beliefs = self.beliefs(left, self._parents[beliefs.indices], beliefs.indptr)
            mixed += (beliefs @ own).toarray()
        return mixed

    @cached_property
    def _parents(self) -> Integers:
        """The state (z, parent of c) of every state (z, c)."""
        first = np.arange(self.types, dtype=np.int64)[:, None] * self.contexts
        return np.asarray((first + self.tree.parent).reshape(-1))

    @cached_property
    def _by_column(self) -> Any:
        from scipy.sparse import csr_matrix

        return csr_matrix(self.matrix).tocsc()

    # -- checks --------------------------------------------------------------------------------------------

    def _checked_backoff(self, backoff: Any) -> Floats:
        if backoff is None:
            return np.zeros((self.types, self.contexts))
        shares = np.asarray(backoff, dtype=np.float64)
        if not self.is_sparse:
            raise InvalidModel("backoff with dense laws", hint="it belongs to sparse ones")
        if (
            shares.shape != (self.types, self.contexts)
            or not np.isfinite(shares).all()
            or (shares < 0).any()
            or shares[:, 0].any()
        ):
            raise InvalidModel(
                f"backoff of shape {shares.shape} is not a share from 0 to 1 for each of {self.types} types and "
                f"{self.contexts} contexts, 0 for the first",
                hint="() has no parent",
            )
        return shares

    def check(self, names: Sequence[str]) -> None:
        """Raise InvalidModel unless every law is one, and every context can be reached; `names` are the sources'."""
        self._check_numbers(names)
        self._check_reachable(names)

    def _check_numbers(self, names: Sequence[str]) -> None:
        matrix = self.matrix if isinstance(self.matrix, np.ndarray) else self.matrix.data
        bad = ~(np.isfinite(matrix) & (matrix >= 0))
        if bad.any():
            state, x = self._place_of(int(np.argmax(bad)))
            raise InvalidModel(
                f"{self._state_named(state, names)}, source {names[x]}: {float(matrix.reshape(-1)[np.argmax(bad)])} "
                "is not a probability",
                hint="give numbers from 0 to 1",
            )
        if isinstance(self.matrix, np.ndarray):
            sums = self.matrix.sum(axis=2).reshape(-1)
        else:
            sums = np.asarray(self.matrix.sum(axis=1)).reshape(-1) + self.backoff.reshape(-1)
        off = np.abs(sums - 1) > SUM_TOLERANCE
        if off.any():
            state = int(np.argmax(off))
            raise InvalidModel(
                f"{self._state_named(state, names)}: the law sums to {float(sums[state]):.12g}, not to 1",
                hint="divide it by its sum",
            )

    def _place_of(self, at: int) -> tuple[int, int]:
        """The state and the source of the entry number `at` of the laws."""
        if isinstance(self.matrix, np.ndarray):
            return divmod(at, self.n)
        return int(np.searchsorted(self.matrix.indptr, at, side="right")) - 1, int(self.matrix.indices[at])

    def _state_named(self, state: int, names: Sequence[str]) -> str:
        z, c = divmod(state, self.contexts)
        return f"type {z}, context {c} {context_named(self.tree.contexts[c], names)}"

    def _check_reachable(self, names: Sequence[str]) -> None:
        """Every context can be entered, from () by requests of one type of people, or is part of one that can be."""
        entered = np.zeros(self.contexts, dtype=bool)
        for z in range(self.types):
            entered |= self._entered(z)
            if entered.all():
                return
        for c in reversed(self.tree.by_length):
            entered[[self.tree.parent[c], self.tree.prefix[c]]] |= entered[c]
        if not entered.all():
            c = int(np.argmin(entered))
            raise InvalidModel(
                f"context {c} {context_named(self.tree.contexts[c], names)} can never be reached",
                hint="leave it out, or give its requests a positive probability",
            )

    def _entered(self, z: int) -> npt.NDArray[np.bool_]:
        """Which contexts a person of type z can be in."""
        before, last = self.tree.prefix, self.tree.last
        entered = self._entered_plainly(z)
        changed = not entered.all()
        while changed:
            changed = False
            for c in np.flatnonzero(~entered).tolist():
                x = int(last[c])
                near = np.flatnonzero(entered & self.tree.ends_with(int(before[c])))
                near = near[self.tree.next(near, np.int64(x)) == c]
                if any(self._possible(z, int(b), x) for b in near.tolist()):
                    entered[c] = changed = True
        return entered

    def _entered_plainly(self, z: int) -> npt.NDArray[np.bool_]:
        """Contexts (w, x) that are entered from w, entered so itself, by a request x that is possible."""
        before, last = self.tree.prefix, self.tree.last
        if isinstance(self.matrix, np.ndarray):
            possible = np.asarray(self.matrix[z] > 0)[before, last]
        else:
            possible = np.fromiter(
                (self._possible(z, int(b), int(x)) for b, x in zip(before, last, strict=True)), bool, len(before)
            )
        plain = np.zeros(self.contexts, dtype=bool)
        for c in self.tree.by_length:
            plain[c] = c == 0 or (possible[c] and plain[before[c]])
        return plain

    def _possible(self, z: int, context: int, source: int) -> bool:
        if isinstance(self.matrix, np.ndarray):
            return bool(self.matrix[z, context, source] > 0)
        while True:
            state = z * self.contexts + context
            lo, hi = self.matrix.indptr[state], self.matrix.indptr[state + 1]
            at = lo + int(np.searchsorted(self.matrix.indices[lo:hi], source))
            if at < hi and self.matrix.indices[at] == source:
                return True
            if context == 0 or self.backoff[z, context] == 0:
                return False
            context = int(self.tree.parent[context])


def checked_matrix(laws: Any, contexts: int) -> Floats | csr_matrix:
    """Laws as an array (types, contexts, N) or a CSR matrix (types * contexts, N). Raises InvalidModel."""
    if contexts == 0:
        raise InvalidModel("no contexts", hint="give () first, the context before the first request")
    if hasattr(laws, "tocsr"):
        matrix = checked_csr(laws, InvalidModel)
        if matrix.shape[0] == 0 or matrix.shape[0] % contexts or matrix.shape[1] == 0:
            raise InvalidModel(
                f"{matrix.shape[0]} rows for {contexts} contexts", hint="one row for each type and context"
            )
        return matrix
    try:
        dense = np.array(laws, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidModel(
            "the laws are not numbers, or not of one length", hint="give types x contexts x sources"
        ) from None
    if dense.ndim != 3 or dense.size == 0 or dense.shape[1] != contexts:
        raise InvalidModel(
            f"laws of shape {dense.shape} for {contexts} contexts", hint="give types x contexts x sources"
        )
    dense.setflags(write=False)
    return dense
