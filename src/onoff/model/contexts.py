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
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, overload

import numpy as np

from onoff.errors import InvalidChain, InvalidModel
from onoff.model.chain import LARGEST_FILE, MarkovChain
from onoff.model.context_laws import ContextLaws, checked_matrix
from onoff.model.context_tree import Context, ContextTree, context_named
from onoff.model.files import read_file, write_model
from onoff.model.rows import SUM_TOLERANCE, Floats, Integers, Rows, to_units
from onoff.model.sources import Sources

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from scipy.sparse import csr_matrix


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
        about: dict[str, Any] | None = None,
    ) -> None:
        listed = [tuple(int(x) for x in context) for context in contexts]
        self.laws: Floats | csr_matrix = checked_matrix(laws, len(listed))
        super().__init__(int(self.laws.shape[-1]), names)
        self.tree = ContextTree(listed, self.n, order, lambda context: context_named(context, self.names))
        self._laws = ContextLaws(self.laws, self.tree, backoff)
        self.types: int = self._laws.types
        self.backoff: Floats = self._laws.backoff
        self.weights: Floats = _checked_weights(weights, self.types)
        self.about: dict[str, Any] = {} if about is None else about
        self._laws.check(self.names)

    @classmethod
    def of(cls, chain: MarkovChain) -> RequestModel:
        """A chain as a model: one type, the contexts () and (x,)."""
        contexts = [(), *((x,) for x in range(chain.n))]
        if isinstance(chain.transition, np.ndarray):
            return cls(np.vstack([chain.initial, chain.transition])[None], contexts, chain.names)
        from scipy.sparse import csr_matrix, vstack

        return cls(vstack([csr_matrix(chain.initial[None]), chain.transition]).tocsr(), contexts, chain.names)

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
        return MarkovChain(np.stack(rows), self.names, self.law(0, 0))

    # -- laws ----------------------------------------------------------------------------------------------

    def law(self, type_: int, context: int) -> Floats:
        """p(x | type, context) for every source x."""
        return self._laws.law(type_ * len(self.contexts) + context)

    def mixtures(self, beliefs: csr_matrix, columns: Integers | None = None) -> Floats:
        """Sum over (z, c) of beliefs[i, z * contexts + c] p(x | z, c), for every i and each x of `columns` (all)."""
        return self._laws.mixtures(beliefs, columns)

    def initial_rows(self) -> Rows:
        """The law of the first request as a single exact row: nothing is hidden yet."""
        law = sum(weight * self.law(z, 0) for z, weight in enumerate(self.weights.tolist()))
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
