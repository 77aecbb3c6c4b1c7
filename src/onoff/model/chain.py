"""MarkovChain: how requests follow one another.

    names       the N sources
    transition  P, with P[i, j] = Pr(X_t = j | X_{t-1} = i); a dense matrix, or a scipy CSR matrix for many sources
    initial     the law of the first request; uniform unless given

Files: JSON `{"transition": [[...]], "names": [...], "initial": [...]}` (names and initial optional), a square CSV or
.npy matrix, or a scipy .npz for sparse chains. They are checked in full before anything uses them.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from onoff.errors import InvalidChain, InvalidInput, UnknownSource, nearest
from onoff.model.rows import (
    SUM_TOLERANCE,
    Floats,
    Integers,
    Rows,
    SparseRows,
    as_matrix,
    checked_csr,
    matrix_units,
    to_units,
)
from onoff.names import name_problem

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from scipy.sparse import csr_matrix


class Sources(ABC):
    """What every model has: N sources by name and number."""

    def __init__(self, n: int, names: Sequence[str] | None = None) -> None:
        self.n = n
        self.names: tuple[str, ...] = _checked_names(names, n)
        self._position = {name: x for x, name in enumerate(self.names)}

    @abstractmethod
    def digest(self) -> str:
        """What tells two models apart: they are the same iff their digests are."""

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self is other or self.digest() == other.digest()

    def __hash__(self) -> int:
        return hash(self.digest())

    def index(self, source: int | str) -> int:
        """The number of a source given by name or number. Raises UnknownSource."""
        if isinstance(source, str):
            if source not in self._position:
                # The name may be a private request: the error does not repeat it.
                raise UnknownSource("no source of that name", hint=nearest(source, self.names))
            return self._position[source]
        if isinstance(source, bool) or not isinstance(source, int | np.integer) or not 0 <= source < self.n:
            raise UnknownSource("no source of that number", hint=f"sources are 0 to {self.n - 1}")
        return int(source)


class Names(Sources):
    """Sources of which nothing is known but their names: how requests follow one another is not."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(len(names), tuple(names))

    def digest(self) -> str:
        return hashlib.sha256("\n".join(self.names).encode()).hexdigest()


def check_model_name(name: Any, what: str) -> None:
    """Raise InvalidChain, about `what`, for a name that a source cannot have."""
    problem = name_problem(name)
    if problem is not None:
        raise InvalidChain(f"{what} {problem.message}", hint=problem.hint)


NAME_THEM: Final = (
    'give their names, in the order of its rows: "names" in a JSON file, or MarkovChain(..., names=[...])'
)


def default_names(n: int) -> tuple[str, ...]:
    """What n sources are called that nobody named."""
    return tuple(f"source-{x + 1}" for x in range(n))


def _checked_names(names: Sequence[str] | None, n: int) -> tuple[str, ...]:
    if names is None:
        return default_names(n)
    if isinstance(names, str):
        raise InvalidChain("the names are one text, not a list", hint="one name for each row of the matrix")
    if len(names) != n:
        raise InvalidChain(f"{len(names)} names for {n} sources", hint="one name for each row of the matrix")
    seen: dict[str, int] = {}
    for x, name in enumerate(names):
        check_model_name(name, f"name {x}")
        if name in seen:
            raise InvalidChain(f"names {seen[name]} and {x} are both {name!r}", hint="give each source its own")
        seen[name] = x
    return tuple(names)


LARGEST_FILE = 512 * 2**20
"""Bytes of a chain file that are read at most."""
LARGEST_DENSE = 20_000
"""Sources of a dense chain at most; more need a sparse one."""
MOST_EXACT = 2**24
"""Rows times columns of a sparse chain up to which `possible_rows` are exact."""
MANY_ENTRIES = 40_000
"""Entries of dense rows from which they are rounded together."""
DEFAULT_SMOOTHING = 0.1
"""What `fit` adds to every count: nothing is impossible, and rows with few observations hardly move."""


class MarkovChain(Sources):
    """A time-invariant Markov chain over named sources. `about`: what its file says of it.

    >>> chain = MarkovChain([[0.8, 0.2], [0.2, 0.8]], names=["left", "right"])
    >>> chain.n, chain.index("right"), chain.stationary().round(6).tolist()
    (2, 1, [0.5, 0.5])
    """

    def __init__(
        self,
        transition: Any,
        names: Sequence[str] | None = None,
        initial: Any = None,
        *,
        about: dict[str, Any] | None = None,
    ) -> None:
        self.about: dict[str, Any] = {} if about is None else about
        self.transition: Floats | csr_matrix = _checked_transition(transition)
        super().__init__(int(self.transition.shape[0]), names)
        self.initial: Floats = _checked_initial(initial, self.n)
        self.initial.setflags(write=False)
        self._units: dict[int, tuple[Integers, Integers]] = {}

    @property
    def is_sparse(self) -> bool:
        """Whether the transition matrix is kept as CSR."""
        return not isinstance(self.transition, np.ndarray)

    def __repr__(self) -> str:
        return f"<MarkovChain: {self.n} sources, {'sparse' if self.is_sparse else 'dense'}>"

    def _repr_html_(self) -> str:
        from onoff.model.notebook import chain_html

        return chain_html(self)

    def plot(self) -> Figure:
        """The transition matrix as a heat map, a matplotlib figure."""
        from onoff.model.notebook import chain_figure

        return chain_figure(self)

    # -- exact rows ----------------------------------------------------------------------------------------

    def row_units(self, x: int) -> tuple[Integers, Integers]:
        """Row P_x as (sources, weights in units of 1/UNIT), rounded once and then always the same."""
        if x not in self._units:
            columns, values = self.row(x)
            self._units[x] = columns, to_units(values.tolist())
        return self._units[x]

    def possible_rows(self, states: Iterable[int] | None = None) -> Rows | SparseRows:
        """The rows P_x for x in `states` (default: all): exact ones where they fit in memory, else sparse floats."""
        chosen = np.arange(self.n) if states is None else np.fromiter(states, dtype=np.int64)
        if not isinstance(self.transition, np.ndarray):
            reached = np.diff(self.transition.indptr)[chosen].sum()
            if len(chosen) * min(int(reached), self.n) > MOST_EXACT:
                return SparseRows.of_csr(self.transition, chosen)
        return self.rows(chosen.tolist())

    def rows(self, states: Iterable[int] | None = None) -> Rows:
        """The exact rows P_x for x in `states` (default: all), in that order."""
        chosen = range(self.n) if states is None else list(states)
        if isinstance(self.transition, np.ndarray) and len(chosen) * self.n >= MANY_ENTRIES:
            given = self.transition if states is None else self.transition[np.fromiter(chosen, dtype=np.int64)]
            return Rows.from_integers(matrix_units(given), self.n)
        parts = [self.row_units(x) for x in chosen]
        columns = np.unique(np.concatenate([sources for sources, _ in parts]))
        weights = np.zeros((len(parts), len(columns)), dtype=np.int64)
        for u, (sources, units) in enumerate(parts):
            weights[u, np.searchsorted(columns, sources)] = units
        return Rows.from_integers(weights, self.n, columns)

    def initial_rows(self) -> Rows:
        """The law of the first request as a single exact row: nothing is hidden yet."""
        reached = np.flatnonzero(self.initial)
        return Rows.from_integers(to_units(self.initial[reached].tolist()).reshape(1, -1), self.n, reached)

    def successors(self, states: Iterable[int]) -> Integers:
        """The sources that can be wanted right after some x in `states`, ascending."""
        return np.unique(np.concatenate([self.row(x)[0] for x in states]))

    def row(self, x: int) -> tuple[Integers, Floats]:
        """The sources that can follow x, ascending, and their probabilities."""
        if isinstance(self.transition, np.ndarray):
            row = self.transition[x]
            columns = np.flatnonzero(row)
            return columns.astype(np.int64), row[columns]
        lo, hi = self.transition.indptr[x], self.transition.indptr[x + 1]
        return self.transition.indices[lo:hi].astype(np.int64), self.transition.data[lo:hi].astype(np.float64)

    # -- laws ----------------------------------------------------------------------------------------------

    def dense(self) -> Floats:
        """P as a dense matrix, whichever way the chain keeps it. Raises InvalidChain where it would be too large."""
        if isinstance(self.transition, np.ndarray):
            return self.transition
        if self.n > LARGEST_DENSE:
            raise InvalidChain(f"{self.n} sources are too many for a dense matrix", hint=f"use {LARGEST_DENSE} at most")
        return np.asarray(self.transition.toarray(), dtype=np.float64)

    def power(self, k: int) -> Floats | csr_matrix:
        """P^k, dense or sparse as the chain is."""
        if isinstance(self.transition, np.ndarray):
            return np.linalg.matrix_power(self.transition, k)
        from scipy.sparse import csr_matrix, identity

        result = csr_matrix(identity(self.n))
        for _ in range(k):
            result = csr_matrix(result @ self.transition)
        return result

    def stationary(self) -> Floats:
        """A law pi with pi P = pi; where there are several, the one of least Euclidean norm (dense chains)."""
        if isinstance(self.transition, np.ndarray):
            equations = np.vstack([self.transition.T - np.eye(self.n), np.ones((1, self.n))])
            wanted = np.zeros(self.n + 1)
            wanted[-1] = 1
            solution = np.clip(np.linalg.lstsq(equations, wanted, rcond=None)[0], 0, None)
            return np.asarray(solution / solution.sum(), dtype=np.float64)
        law: Floats = np.full(self.n, 1 / self.n)
        for _ in range(10_000):  # the lazy chain converges also where P is periodic
            after = np.asarray(0.5 * law + 0.5 * (self.transition.T @ law), dtype=np.float64)
            if np.abs(after - law).sum() < 1e-13:
                break
            law = after
        return law

    def sample(self, length: int, rng: np.random.Generator, start: int | None = None) -> Integers:
        """`length` successive requests, the first one `start` or drawn from the initial law. For experiments.

        Parameters
        ----------
        length
            How many.
        rng
            Draws them.
        start
            The first request, by name or number.
        """
        path = np.empty(length, dtype=np.int64)
        for t in range(length):
            if t == 0:
                path[0] = rng.choice(self.n, p=self.initial) if start is None else start
            else:
                columns, values = self.row(int(path[t - 1]))
                edges = np.cumsum(values)
                path[t] = columns[np.searchsorted(edges, rng.random() * edges[-1], side="right")]
        return path

    # -- files ---------------------------------------------------------------------------------------------

    def digest(self) -> str:
        """SHA-256 of names, transition and initial law: two chains are the same iff their digests are."""
        return hashlib.sha256(b"".join(self._canonical())).hexdigest()

    def _canonical(self) -> Iterable[bytes]:
        yield json.dumps(["onoff chain 1", self.names], ensure_ascii=False).encode()
        yield np.ascontiguousarray(self.initial, dtype="<f8").tobytes()
        for x in range(self.n):
            columns, values = self.row(x)
            yield np.array([len(columns)], dtype="<i8").tobytes()
            yield columns.astype("<i8").tobytes()
            yield values.astype("<f8").tobytes()

    @classmethod
    def load(cls, path: str | Path) -> MarkovChain:
        """The chain of a JSON, CSV, .npy or sparse .npz file. Raises InvalidChain with the place of the fault."""
        from onoff.model.files import read_chain

        try:
            return cls(**read_chain(Path(path), LARGEST_FILE))
        except InvalidChain as error:
            raise InvalidChain(f"{path}: {error.message}", hint=error.hint) from None

    def save(self, path: str | Path, *, remarks: Mapping[str, Any] | None = None) -> None:
        """Write the chain as JSON, or as .npz where it is sparse: a file that `load` reads as the same chain.

        remarks: what a JSON file says besides, for people and other programs ("about", "counts", "tried").
        Raises InvalidChain where the name of the file says another format.
        """
        from onoff.model.files import check_json_name
        from onoff.system.files import atomic_write

        path = Path(path)
        if not isinstance(self.transition, np.ndarray):
            if path.suffix.lower() != ".npz":
                raise InvalidChain(
                    f"{path}: the suffix belongs to another format", hint="a sparse chain is saved as .npz"
                )
            P = self.transition
            parts = {"data": P.data, "indices": P.indices, "indptr": P.indptr, "shape": P.shape, "format": "csr"}
            with atomic_write(path) as file:
                np.savez_compressed(file, **parts, names=self.names, initial=self.initial)  # type: ignore[arg-type]
            return
        check_json_name(path)
        document = {"transition": self.transition.tolist(), "names": self.names, "initial": self.initial.tolist()}
        document |= {"about": self.about} if self.about else {}
        document |= remarks or {}
        with atomic_write(path) as file:
            file.write(json.dumps(document, ensure_ascii=False).encode() + b"\n")

    # -- learning ------------------------------------------------------------------------------------------

    @classmethod
    def fit(
        cls,
        sequences: Iterable[Iterable[Any]],
        names: Sequence[str] | None = None,
        *,
        smoothing: float = DEFAULT_SMOOTHING,
        structural_zeros: bool = False,
    ) -> MarkovChain:
        """The chain of observed request sequences, by counts with `smoothing` added to each.

        A source that was never left gets a uniform row.

        Parameters
        ----------
        sequences
            For each person the sources requested, by name or number, in order.
        names
            The sources and their order; those seen, sorted, unless given.
        smoothing
            Added to each count.
        structural_zeros
            Whether transitions that were never seen stay impossible; what the chain calls impossible cannot be asked
            privately.
        """
        listed = [list(sequence) for sequence in sequences]
        seen = {source for sequence in listed for source in sequence}
        if not seen:
            raise InvalidChain("no requests to learn from", hint="give at least one sequence of sources")
        if all(isinstance(source, int | np.integer) for source in seen):
            order: list[Any] = list(range(max(seen) + 1 if names is None else len(names)))
            labels = names
        else:
            order = sorted(seen, key=str) if names is None else list(names)
            labels = [str(source) for source in order]
        position = {source: x for x, source in enumerate(order)}
        if not seen <= position.keys():
            raise UnknownSource(
                "a sequence holds a source that is not among the names", hint="name every source, or give no names"
            )
        counts, first = count_transitions(([position[s] for s in sequence] for sequence in listed), len(order))
        return cls.from_counts(counts, first, labels, smoothing=smoothing, structural_zeros=structural_zeros)

    @classmethod
    def from_counts(
        cls,
        counts: npt.ArrayLike,
        first: npt.ArrayLike | None = None,
        names: Sequence[str] | None = None,
        *,
        smoothing: float = DEFAULT_SMOOTHING,
        structural_zeros: bool = False,
    ) -> MarkovChain:
        """The chain of a matrix of transition counts, and of the counts of first requests.

        Parameters
        ----------
        counts
            How often each source followed each, shape (N, N).
        first
            How often each source was requested first.
        names
            The sources.
        smoothing
            Added to each count.
        structural_zeros
            Whether transitions that were never seen stay impossible.
        """
        if not np.isfinite(smoothing) or smoothing < 0:
            raise InvalidChain(f"smoothing {smoothing} is not a number from 0 up", hint="0.1 is usual")
        table = np.asarray(counts, dtype=np.float64)
        if table.ndim != 2:
            raise InvalidChain("counts that are not a matrix", hint="one row and one column per source")
        smoothed = table + smoothing * ((table > 0) if structural_zeros else 1)
        smoothed[smoothed.sum(axis=1) == 0] = 1.0
        start = np.ones(len(table)) if first is None else np.asarray(first, dtype=np.float64) + max(smoothing, 1e-9)
        return cls(smoothed / smoothed.sum(axis=1, keepdims=True), names, start / start.sum())


def count_transitions(sequences: Iterable[Sequence[int]], n: int) -> tuple[Integers, Integers]:
    """Counts of (from, to) pairs and of first requests, over sequences of source numbers."""
    counts = np.zeros((n, n), dtype=np.int64)
    first = np.zeros(n, dtype=np.int64)
    for sequence in sequences:
        path = np.asarray(sequence, dtype=np.int64)
        if len(path):
            first[path[0]] += 1
            np.add.at(counts, (path[:-1], path[1:]), 1)
    return counts, first


def _checked_transition(transition: Any) -> Floats | csr_matrix:
    if hasattr(transition, "tocsr"):
        return _checked_sparse(transition)
    if hasattr(transition, "__len__") and len(transition) > LARGEST_DENSE:
        raise InvalidChain(f"{len(transition)} sources are too many for a dense matrix", hint="give a scipy CSR matrix")
    matrix = as_matrix(transition)
    if matrix.shape[0] != matrix.shape[1]:
        raise _not_square(matrix)
    dense = np.array(matrix, dtype=np.float64)
    dense.setflags(write=False)
    return dense


def _checked_sparse(transition: Any) -> csr_matrix:
    matrix = checked_csr(transition, InvalidChain)
    if matrix.shape[0] != matrix.shape[1] or matrix.shape[0] == 0:
        raise _not_square(matrix)
    if not np.isfinite(matrix.data).all() or (matrix.data < 0).any():
        at = int(np.argmax(~np.isfinite(matrix.data) | (matrix.data < 0)))
        row = int(np.searchsorted(matrix.indptr, at, side="right")) - 1
        raise InvalidChain(
            f"row {row}, column {matrix.indices[at]}: {matrix.data[at]} is not a probability", hint="use 0 to 1"
        )
    sums = np.asarray(matrix.sum(axis=1)).reshape(-1)
    off = np.abs(sums - 1) > SUM_TOLERANCE
    if off.any():
        row = int(np.argmax(off))
        raise InvalidChain(f"row {row} sums to {float(sums[row]):.12g}, not to 1", hint="divide the row by its sum")
    return matrix


def _not_square(matrix: Any) -> InvalidChain:
    rows, columns = matrix.shape
    return InvalidChain(f"the matrix has {rows} rows and {columns} columns", hint="one row and one column per source")


def _checked_initial(initial: Any, n: int) -> Floats:
    if initial is None:
        return np.full(n, 1 / n)
    try:
        law = as_matrix([list(initial)])[0].astype(np.float64)
    except InvalidChain as error:
        raise InvalidChain(f"initial law: {error.message.replace('row 0, ', '')}", hint=error.hint) from None
    except TypeError:
        raise InvalidChain("the initial law is not a list of probabilities", hint="one for each source") from None
    if len(law) != n:
        raise InvalidChain(f"the initial law has {len(law)} entries for {n} sources", hint="one for each")
    return np.asarray(law, dtype=np.float64)  # as it was given: dividing by the sum would move it at every load


# Models for users without a trace are guesses, and labelled so. With `uniform` and `popular` requests are
# independent, so a plain request after a private one costs one message and tells nothing, *if the guess is right*; a
# wrong one leaks in proportion to how wrong it is (`onoff audit chain`). `sticky` hides more, and costs more.

MOST_TEMPLATE_SOURCES = 2000
"""A model is a matrix, and its file grows with the square of the sources."""
STAY = 0.5


def _uniform(n: int) -> Floats:
    return np.full((n, n), 1 / n)


def _popular(n: int) -> Floats:
    share = 1 / np.arange(1, n + 1)
    return np.tile(share / share.sum(), (n, 1))


def _sticky(n: int) -> Floats:
    return STAY * np.eye(n) + (1 - STAY) * _uniform(n)


TEMPLATES: dict[str, Callable[[int], Floats]] = {"uniform": _uniform, "popular": _popular, "sticky": _sticky}


def from_template(template: str, names: Sequence[str]) -> MarkovChain:
    """A guessed chain over these sources. Raises InvalidInput.

    >>> from_template("sticky", ["left", "right"]).transition.tolist()
    [[0.75, 0.25], [0.25, 0.75]]
    """
    if template not in TEMPLATES:
        raise InvalidInput(f"no template {template!r}", hint=nearest(template, TEMPLATES))
    if not 2 <= len(names) <= MOST_TEMPLATE_SOURCES:
        raise InvalidInput(
            f"a model of {len(names)} sources",
            hint=f"templates are for 2 to {MOST_TEMPLATE_SOURCES}; without a model the gateway keeps a mirror",
        )
    P = TEMPLATES[template](len(names))
    return MarkovChain(P, names=tuple(names), initial=P.mean(axis=0))
