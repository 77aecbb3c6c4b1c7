"""RequestModel: who the person is, and what the last requests were.

    type      z, drawn once for each person, with probability weights[z]
    context   c, what the last requests leave: the longest suffix of them that is one of `contexts`
    law       p(x | z, c), the next request of a person of type z in context c
    next      (c, x) -> c', the context after request x

Contexts are tuples of source numbers, the oldest request first. The first is (), the context before the first request.
Without its oldest request a context is a context too (its parent: what is left when less is known), and so it is
without its latest (else it could not be entered). Order k is "all tuples of up to k sources"; a tree of variable order
has fewer. One type and order 1 is the chain of the paper: `RequestModel.of(chain)`.

Laws are dense, or sparse with a share that is left to the parent: `ContextLaws`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, overload

import numpy as np
import numpy.typing as npt

from onoff.errors import InvalidChain, InvalidModel
from onoff.model.chain import LARGEST_FILE, MarkovChain, Sources
from onoff.model.context_tree import Context, ContextTree, context_named
from onoff.model.files import read_file, write_model
from onoff.model.rows import SUM_TOLERANCE, Floats, Integers, Rows, checked_csr, to_units

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from scipy.sparse import csr_matrix


MOST_WRITTEN_OUT = 2**23
"""Numbers up to which laws with a common part are written out while a session needs them."""


# --------------------------------------------------------------------------------------------------------------------
# ContextLaws: p(x | z, c), the next request of a person of type z in context c, for every type and context.
#
# Laws are a dense array (types, contexts, N), or a sparse matrix with one row for each (type, context) and a share
# `backoff` that is left to another law: for many contexts to that of the context's parent, for many types to a `common`
# one, which all types mix with something of their own.
#
#     p(x | z, c) = own[z, c, x] + backoff[z, c] p(x | z, parent of c)
#     p(x | z, c) = own[z, c, x] + backoff[z, c] common[c, x]
#
# so that nothing is impossible and only what is special takes memory. The *state* z * contexts + c numbers the rows.


class ContextLaws:
    """The laws over a tree of contexts.

    Parameters
    ----------
    matrix
        As `checked_matrix` returns it.
    tree
        The contexts.
    backoff
        With a sparse matrix: the share of each row that is left to its parent, or to the common law, shape
        (types, contexts); none unless given.
    common
        The common law of each context, shape (contexts, N).
    """

    def __init__(self, matrix: Floats | csr_matrix, tree: ContextTree, backoff: Any = None, common: Any = None) -> None:
        self.matrix = matrix
        self.tree = tree
        self.n: int = matrix.shape[-1]
        self.contexts = len(tree.contexts)
        self.types: int = len(matrix) if isinstance(matrix, np.ndarray) else matrix.shape[0] // self.contexts
        self.states = self.types * self.contexts
        self.common: Floats | None = self._checked_common(common)
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
        z, c = divmod(state, self.contexts)
        lo, hi = self.matrix.indptr[state], self.matrix.indptr[state + 1]
        if self.common is None:
            found = self.law(z * self.contexts + int(self.tree.parent[c])) if self.backoff[z, c] else np.zeros(self.n)
        else:
            found = self.common[c]
        found = self.backoff[z, c] * found
        found[self.matrix.indices[lo:hi]] += self.matrix.data[lo:hi]
        return np.asarray(found)

    def block(self, context: int) -> Floats:
        """p(x | z, c) of one context, shape (N, types)."""
        if not self.is_sparse or (self.common is not None and self.states * self.n <= MOST_WRITTEN_OUT):
            return np.asarray(self._by_context[context])
        return self._made(context)

    def _made(self, context: int) -> Floats:
        source, type_, value = self._own_of(context)
        found: Floats
        if self.common is not None:
            found = self.common[context][:, None] * self._shares[context]
        elif context and self.backoff[:, context].any():
            found = self.block(int(self.tree.parent[context])) * self._shares[context]
        else:
            found = np.zeros((self.n, self.types))
        found[source, type_] += value
        return found

    @cached_property
    def _by_context(self) -> Floats:
        """Laws written out by context, source and type."""
        if isinstance(self.matrix, np.ndarray):
            return np.ascontiguousarray(self.matrix.transpose(1, 2, 0))
        return np.stack([self._made(c) for c in range(self.contexts)])

    def mixed(self, context: int, mass: Floats) -> Floats:
        """Sum over z of mass[i, z] p(x | z, c) in one context, for every i and x."""
        if self.common is None:
            return np.asarray(mass @ self.block(context).T)
        shared = mass @ self._shares[context]
        return np.asarray(shared[:, None] * self.common[context] + (self._own_matrices[context] @ mass.T).T)

    @cached_property
    def _own_matrices(self) -> list[Any]:
        """The own parts in each context, sources x types."""
        from scipy.sparse import csr_matrix

        shape = (self.n, self.types)
        every = map(self._own_of, range(self.contexts))
        return [csr_matrix((value, (source, type_)), shape=shape) for source, type_, value in every]

    @cached_property
    def _shares(self) -> Floats:
        return np.ascontiguousarray(self.backoff.T)

    def _own_of(self, context: int) -> tuple[Integers, Integers, Floats]:
        """Source, type and value of the own parts in a context."""
        starts, source, type_, value = self._own_by_context
        some = slice(starts[context], starts[context + 1])
        return source[some], type_[some], value[some]

    @cached_property
    def _own_by_context(self) -> tuple[Integers, Integers, Integers, Floats]:
        assert not isinstance(self.matrix, np.ndarray)
        state = np.repeat(np.arange(self.states), np.diff(self.matrix.indptr))
        type_, context = np.divmod(state, self.contexts)
        order = np.argsort(context, kind="stable")
        starts = np.searchsorted(context[order], np.arange(self.contexts + 1))
        return starts, self.matrix.indices[order].astype(np.int64), type_[order], self.matrix.data[order]

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
        if self.common is not None:
            by_context = np.asarray((beliefs @ self._shares_by_context).toarray())
            return np.asarray(mixed + by_context @ (self.common if columns is None else self.common[:, columns]))
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
    def _shares_by_context(self) -> Any:
        """states x contexts: the share that a state leaves to the common law of its context."""
        from scipy.sparse import csr_matrix

        every = np.arange(self.states)
        return csr_matrix((self.backoff.reshape(-1), every % self.contexts, np.arange(self.states + 1)))

    @cached_property
    def _by_column(self) -> Any:
        from scipy.sparse import csr_matrix

        return csr_matrix(self.matrix).tocsc()

    # -- checks --------------------------------------------------------------------------------------------

    def _checked_common(self, common: Any) -> Floats | None:
        if common is None:
            return None
        laws = np.asarray(common, dtype=np.float64)
        if not self.is_sparse:
            raise InvalidModel("common laws with dense laws", hint="they belong to sparse ones")
        if (
            laws.shape != (self.contexts, self.n)
            or not (np.isfinite(laws) & (laws >= 0)).all()
            or (np.abs(laws.sum(axis=1) - 1) > SUM_TOLERANCE).any()
        ):
            raise InvalidModel(
                f"common laws of shape {laws.shape} are not a law for each of {self.contexts} contexts",
                hint="contexts x sources, each row with sum 1",
            )
        return laws

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
            or (self.common is None and shares[:, 0].any())
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
        if self.common is not None and self.backoff[z, context] > 0 and self.common[context, source] > 0:
            return True
        while True:
            state = z * self.contexts + context
            lo, hi = self.matrix.indptr[state], self.matrix.indptr[state + 1]
            at = lo + int(np.searchsorted(self.matrix.indices[lo:hi], source))
            if at < hi and self.matrix.indices[at] == source:
                return True
            if context == 0 or self.backoff[z, context] == 0 or self.common is not None:
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


class RequestModel(Sources):
    """Types of people, contexts of requests, and the law of the next request for each.

    Parameters
    ----------
    laws
        p(x | type, context): an array of shape (types, contexts, N), or a scipy sparse matrix of shape
        (types * contexts, N) whose row z * contexts + c belongs to type z and context c.
    contexts
        Tuples of source numbers, oldest request first; the first is ().
    names
        The N sources; "source-1", ... unless given.
    weights
        The probability of each type; equal unless given.
    order
        The longest context allowed; that of `contexts` unless given.
    backoff
        With sparse laws: the share of each row that is left to its parent, shape (types, contexts).
    common
        With sparse laws of many types: a law for each context, to which the shares are left instead; shape
        (contexts, N).
    about
        What the model was learnt on: any JSON object, kept in the file.

    Raises
    ------
    InvalidModel
        With the type, the context and the source at fault.

    >>> model = RequestModel([[[0.5, 0.5], [0.9, 0.1], [0.2, 0.8]]], [(), (0,), (1,)], names=["left", "right"])
    >>> model.types, model.order, model.next(0, 1), model.contexts[2]
    (1, 1, 2, (1,))
    """

    def __init__(
        self,
        laws: Any,
        contexts: Iterable[Sequence[int]],
        names: Sequence[str] | None = None,
        weights: Any = None,
        *,
        order: int | None = None,
        backoff: Any = None,
        common: Any = None,
        about: dict[str, Any] | None = None,
    ) -> None:
        listed = [tuple(int(x) for x in context) for context in contexts]
        self.laws: Floats | csr_matrix = checked_matrix(laws, len(listed))
        super().__init__(int(self.laws.shape[-1]), names)
        self.tree = ContextTree(listed, self.n, order, lambda context: context_named(context, self.names))
        self._laws = ContextLaws(self.laws, self.tree, backoff, common)
        self.types: int = self._laws.types
        self.backoff: Floats = self._laws.backoff
        self.common: Floats | None = self._laws.common
        self.weights: Floats = _checked_weights(weights, self.types)
        self.about: dict[str, Any] = {} if about is None else about
        self._laws.check(self.names)

    @classmethod
    def of(cls, chain: MarkovChain) -> RequestModel:
        """A chain as a model: one type, the contexts () and (x,)."""
        contexts = [(), *((x,) for x in range(chain.n))]
        if isinstance(chain.transition, np.ndarray):
            return cls(np.vstack([chain.initial, chain.transition])[None], contexts, chain.names, about=chain.about)
        from scipy.sparse import csr_matrix, vstack

        rows = vstack([csr_matrix(chain.initial[None]), chain.transition]).tocsr()
        return cls(rows, contexts, chain.names, about=chain.about)

    # -- what it is ----------------------------------------------------------------------------------------

    @property
    def contexts(self) -> tuple[Context, ...]:
        """Every context; its place here is its number."""
        return self.tree.contexts

    @property
    def order(self) -> int:
        """How many of the last requests can matter."""
        return self.tree.order

    @property
    def is_sparse(self) -> bool:
        """Whether the laws are kept as a sparse matrix."""
        return self._laws.is_sparse

    def __repr__(self) -> str:
        size = f"{self.n} sources, {self.types} types, {len(self.contexts)} contexts of order {self.order}"
        return f"<RequestModel: {size}, {'sparse' if self.is_sparse else 'dense'}>"

    def _repr_html_(self) -> str:
        from onoff.model.notebook import model_html

        return model_html(self)

    def plot(self) -> Figure:
        """What follows each request where only that one is known, as a heat map, a matplotlib figure."""
        from onoff.model.notebook import model_figure

        return model_figure(self)

    def as_chain(self) -> MarkovChain | None:
        """The same as a MarkovChain where it is one: one type, first order, every source a context."""
        singles = [self.tree.number((x,)) for x in range(self.n)]
        if self.types > 1 or self.order > 1 or None in singles:
            return None
        rows = [self.law(0, c) for c in singles if c is not None]
        return MarkovChain(np.stack(rows), self.names, self.law(0, 0), about=self.about)

    # -- laws ----------------------------------------------------------------------------------------------

    def law(self, type_: int, context: int) -> Floats:
        """p(x | type, context) for every source x."""
        return self._laws.law(type_ * len(self.contexts) + context)

    def block(self, context: int) -> Floats:
        """p(x | type, context) of one context, for every source and type: shape (N, types)."""
        return self._laws.block(context)

    def mixed(self, context: int, mass: Floats) -> Floats:
        """Sum over z of mass[i, z] p(x | z, c) in one context, for every i and x."""
        return self._laws.mixed(context, mass)

    def dense(self) -> Floats:
        """All laws, shape (types, contexts, N)."""
        if isinstance(self.laws, np.ndarray):
            return self.laws
        return np.stack([self.block(c).T for c in range(len(self.contexts))], axis=1)

    def mixtures(self, beliefs: csr_matrix, columns: Integers | None = None) -> Floats:
        """Sum over (z, c) of beliefs[i, z * contexts + c] p(x | z, c), for every i and each x of `columns` (all)."""
        return self._laws.mixtures(beliefs, columns)

    def initial_rows(self) -> Rows:
        """The law of the first request as a single exact row: nothing is hidden yet."""
        law = self.block(0) @ self.weights
        reached = np.flatnonzero(law)
        return Rows.from_integers(to_units(np.asarray(law)[reached].tolist()).reshape(1, -1), self.n, reached)

    # -- contexts ------------------------------------------------------------------------------------------

    @overload
    def next(self, context: int, source: int) -> int: ...
    @overload
    def next(self, context: Integers, source: Integers | int) -> Integers: ...
    def next(self, context: int | Integers, source: int | Integers) -> int | Integers:
        """The number of the context after a request in a context; numbers, or arrays of them."""
        found = self.tree.next(np.asarray(context, dtype=np.int64), np.asarray(source, dtype=np.int64))
        return found if found.ndim else int(found)

    def likeliest_type(self, requests: Iterable[int]) -> int:
        """The type of a person that these requests, the first one first, make likeliest."""
        told, context = np.log(np.maximum(self.weights, np.finfo(float).tiny)), 0
        for x in requests:
            laws = np.array([self.law(z, context)[x] for z in range(self.types)])
            told += np.log(np.maximum(laws, np.finfo(float).tiny))
            context = int(self.next(np.array([context]), np.array([x]))[0])
        return int(told.argmax())

    def context_of(self, history: Sequence[int]) -> int:
        """The number of the context that a history of requests, oldest first, leaves."""
        context = 0
        for x in history[max(0, len(history) - self.order) :]:
            context = self.next(context, int(x))
        return context

    # -- requests ------------------------------------------------------------------------------------------

    def sample(self, length: int, rng: np.random.Generator) -> Integers:
        """`length` successive requests of one person. For experiments."""
        path: Integers = self.sample_many(1, length, rng)[0]
        return path

    def sample_many(self, users: int, length: int, rng: np.random.Generator) -> Integers:
        """The first `length` requests of `users` people, shape (users, length). For experiments.

        Parameters
        ----------
        users
            How many people.
        length
            Requests of each.
        rng
            Draws them.
        """
        kind = rng.choice(self.types, size=users, p=self.weights)
        context = np.zeros(users, dtype=np.int64)
        paths = np.empty((users, length), dtype=np.int64)
        for t in range(length):
            states, person = np.unique(kind * len(self.contexts) + context, return_inverse=True)
            one = np.arange(len(states) + 1)
            edges = np.cumsum(self.mixtures(self._laws.beliefs(np.ones(len(states)), states, one)), axis=1)
            uniform = rng.random(users) * edges[person, -1]
            paths[:, t] = (edges[person] <= uniform[:, None]).sum(axis=1)
            context = self.tree.next(context, paths[:, t])
        return paths

    # -- files and learning --------------------------------------------------------------------------------

    def digest(self) -> str:
        """SHA-256 of names, contexts, weights and laws."""
        found = hashlib.sha256(json.dumps(["onoff model 1", self.names, self.order], ensure_ascii=False).encode())
        offsets, items = self.tree.arrays()
        if isinstance(self.laws, np.ndarray):
            parts: tuple[Any, ...] = (self.laws,)
        else:
            parts = (self.laws.indptr, self.laws.indices, self.laws.data, self.backoff)
            parts += () if self.common is None else (self.common,)
        for part in (offsets, items, self.weights, *parts):
            kind = "<f8" if np.issubdtype(part.dtype, np.floating) else "<i8"
            found.update(np.ascontiguousarray(part, dtype=kind).tobytes())
        return found.hexdigest()

    @classmethod
    def load(cls, path: str | Path) -> RequestModel:
        """The model of a file; a chain file gives its chain as a model. Raises InvalidModel or InvalidChain."""
        found = load_model(path)
        return cls.of(found) if isinstance(found, MarkovChain) else found

    def save(self, path: str | Path) -> None:
        """Write a file that `load` reads as the same model: .npz, or .json where the laws are dense.

        Raises InvalidModel where the name of the file says another format.
        """
        parts = self.parts()
        if not isinstance(self.laws, np.ndarray):
            P = parts.pop("laws")
            parts |= {"data": P.data, "indices": P.indices, "indptr": P.indptr, "shape": P.shape}
        write_model(Path(path), parts)

    def parts(self) -> dict[str, Any]:
        """What the model is made of: the arguments that make the same again."""
        head = {"order": self.order, "names": self.names, "weights": self.weights, "about": self.about}
        backoff = {"backoff": self.backoff} if self.is_sparse else {}
        backoff |= {} if self.common is None else {"common": self.common}
        return {**head, "contexts": self.contexts, "laws": self.laws, **backoff}

    @classmethod
    def fit(
        cls,
        sequences: Iterable[Iterable[Any]],
        names: Sequence[str] | None = None,
        *,
        order: int | Literal["auto"] = "auto",
        types: int | Literal["auto"] = "auto",
        seed: int = 0,
        progress: Callable[[str], None] | None = None,
    ) -> RequestModel:
        """The model of observed request sequences, one for each person.

        Parameters
        ----------
        sequences
            For each person the sources requested, by name or number, in order.
        names
            The sources and their order; those seen, sorted, unless given.
        order, types
            How many requests back, and how many types of people; "auto" chooses on every tenth person, held out.
        seed
            Of the first guess of the types.
        progress
            Called with one line about each model that is tried.

        Raises
        ------
        InvalidModel
            Where there is too little to learn from.
        """
        from onoff.model.choosing import fit_sequences

        return cls(**fit_sequences(sequences, names, order=order, types=types, seed=seed, progress=progress))


Model: TypeAlias = MarkovChain | RequestModel
"""What a session, a client or a simulation takes."""


def check_model(model: object) -> None:
    """Raise TypeError, with the mend, for what is neither a chain nor a model."""
    if not isinstance(model, Sources):
        mend = "MarkovChain(**content)" if isinstance(model, dict) else "MarkovChain(matrix)"
        raise TypeError(f"not a chain or model, but a {type(model).__name__}; make one of it: onoff.{mend}")


def load_model(path: str | Path) -> Model:
    """The chain or the model of a file, whichever it holds; a model of one type and order 1 is a chain.

    Raises InvalidChain or InvalidModel with the place of the fault.
    """
    try:
        found = read_file(Path(path), LARGEST_FILE)
        if "transition" in found:
            return MarkovChain(**found)
        model = RequestModel(**found)
        return model.as_chain() or model
    except (InvalidChain, InvalidModel) as error:
        raise type(error)(f"{path}: {error.message}", hint=error.hint) from None


def _checked_weights(weights: Any, types: int) -> Floats:
    if weights is None:
        return np.full(types, 1 / types)
    try:
        given = np.asarray(weights, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidModel("the weights of the types are not numbers", hint="one for each type") from None
    if given.shape != (types,):
        raise InvalidModel(f"{given.size} weights for {types} types", hint="one for each type")
    for z, weight in enumerate(given.tolist()):
        if not np.isfinite(weight) or weight < 0:
            raise InvalidModel(f"type {z}: {weight} is not a weight", hint="give numbers above 0")
        if weight == 0:
            raise InvalidModel(f"type {z} has weight zero", hint="leave it out")
    if abs(given.sum() - 1) > SUM_TOLERANCE:
        raise InvalidModel(f"the weights sum to {float(given.sum()):.12g}, not to 1", hint="divide them by their sum")
    return given
