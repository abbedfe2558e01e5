"""Graphs whose edges or nodes are private: number of edges, degree of each node, number of nodes of each degree.

A graph is undirected, without loops. Two graphs are neighbours by one **edge** (`GraphUnit.edge()`: a friendship, the
nodes are public) or by one **node** with all its edges (`GraphUnit.node()`: a person with all friendships). How far a
statistic moves between neighbours, with D the degree bound:

===================  ====================  =======================================================
statistic            by an edge            by a node, after projection onto degrees <= D
===================  ====================  =======================================================
number of edges      1                     D
degree sequence      L1 2, L2 √2           L1 2D, L2 √2·D
degree histogram     L1 4, L2 √8           L1 2D + 1, L2 √((D + 1)² + D²)
===================  ====================  =======================================================

By an edge: two degrees move by one; in the histogram two nodes move to the next bin, in the worst case between the same
two bins, which moves two counts by two.

By a node, nothing is bounded: a node can be connected to all others, so a mechanism without `degree=` raises
InvalidParameter. The projection goes through the possible edges in one public order and keeps an edge if both ends have
fewer than D kept edges so far (Day, Li & Lyu 2016). *Why a node moves the statistics so little.* Add v's edges one by
one, in that order. An edge of v that is not kept changes nothing; at most D are kept. A kept edge vu gives u one more.
Either this is the end of the chain, or u is now full when a later edge uw comes that was kept before, and uw is
dropped: u is as before and w has one less. Either this is the end, or a later edge wx that was dropped before, because
w was full, is now kept: w is as before and x has one more. And so on, ever later in the order: in the end one node has
one more or one less, and the number of edges is one more or the same. So at most D nodes besides v, counted with
repetition, move by one, and v itself by at most D. ∎

Source: Hay, Li, Miklau & Jensen (2009) for edges; Kasiviswanathan, Nissim, Raskhodnikova & Smith (2013) for nodes; Day,
Li & Lyu (2016), section 3, for the projection.

>>> from deniable.mechanisms import graphs
>>> friends = graphs.Graph(nodes="abcd", edges=[("a", "b"), ("b", "c"), ("d", "b")])
>>> graphs.degrees(friends)
{'a': 1, 'b': 3, 'c': 1, 'd': 1}
>>> noisy = graphs.EdgeCount(unit=graphs.GraphUnit.node(), degree=2, epsilon=1.0)
>>> noisy
EdgeCount(GraphUnit.node(), degree=2, Laplace noise of scale 2)
>>> answer = noisy.release(friends)
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, Final, final

import numpy as np

from deniable import numbers
from deniable.curves import Curve, curve_arguments
from deniable.errors import NOTHING, InvalidParameter
from deniable.mechanisms import distinguishing_parts
from deniable.mechanisms.additive_noise import DiscreteLaplace, Gaussian, asks_for_laplace
from deniable.mechanisms.distinguishing_parts import Told
from deniable.mechanisms.input_values import Ints
from deniable.mechanisms.mechanism import Mechanism
from deniable.noise.entropy import checked_entropy
from deniable.units import Sensitivity

if TYPE_CHECKING:
    from deniable.mechanisms.laws import NoiseLaw
    from deniable.mechanisms.noise_steps import Additive
    from deniable.noise import Entropy

__all__ = ["DegreeHistogram", "DegreeSequence", "EdgeCount", "Graph", "GraphUnit", "degrees", "projected"]

MOST_NODES: Final = 10**6

Edge = tuple[Hashable, Hashable]


@final
@dataclass(frozen=True, slots=True)
class GraphUnit:
    """What two neighbouring graphs differ by: one edge, or one node with all its edges; added or removed.

    >>> GraphUnit.edge().describe(), GraphUnit.node().describe()
    ('one edge added or removed', 'one node with all its edges added or removed')
    """

    thing: str

    def __post_init__(self) -> None:
        if self.thing not in ("edge", "node"):
            raise InvalidParameter("thing", self.thing, "must be an edge or a node", "write GraphUnit.edge()")

    @classmethod
    def edge(cls) -> GraphUnit:
        """Neighbours G, G′: G′ is G with one edge added or removed; both have the same nodes."""
        return cls("edge")

    @classmethod
    def node(cls) -> GraphUnit:
        """Neighbours G, G′: G′ is G with one node and all edges at it added or removed, however many."""
        return cls("node")

    def describe(self) -> str:
        """The unit as a phrase that finishes "neighbouring graphs differ by …"."""
        return "one edge added or removed" if self.thing == "edge" else "one node with all its edges added or removed"

    def __repr__(self) -> str:
        return f"GraphUnit.{self.thing}()"


@final
@dataclass(frozen=True, slots=True, init=False, repr=False)
class Graph:
    """An undirected graph: nodes with different names, and pairs of them. An edge given twice, in either direction,
    counts once; loops and ends that are not nodes raise InvalidParameter. The order of the nodes depends only on their
    names.
    """

    nodes: tuple[Hashable, ...]
    edges: frozenset[tuple[int, int]]
    """As pairs of indices into `nodes`, the smaller one first."""

    def __init__(self, *, nodes: Iterable[Hashable], edges: Iterable[Edge]) -> None:
        listed = tuple(nodes)
        if any(isinstance(node, float) and node != node for node in listed):
            # NaN does not compare: it would break the sorting, so that one node could move all others.
            raise InvalidParameter("nodes", NOTHING, "must not be NaN", "leave out rows without a name")
        # Sorted by name alone: the order of two nodes must not depend on the other nodes.
        ordered = tuple(sorted(listed, key=lambda node: (type(node).__name__, node if _plain(node) else repr(node))))
        places = {node: i for i, node in enumerate(ordered)}
        if len(places) != len(ordered) or len(ordered) > MOST_NODES:
            raise InvalidParameter("nodes", NOTHING, f"must be at most {MOST_NODES:,} different names")
        found = set()
        for edge in edges:
            ends = [places.get(end) for end in edge] if isinstance(edge, tuple | list | np.ndarray) else []
            if len(ends) != 2 or None in ends or ends[0] == ends[1]:
                raise InvalidParameter("edges", NOTHING, "must be pairs of two different nodes of the graph")
            found.add((min(ends), max(ends)))  # type: ignore[type-var]  # None is refused above
        object.__setattr__(self, "nodes", ordered)
        object.__setattr__(self, "edges", frozenset(found))

    def __repr__(self) -> str:
        return "<Graph>"  # neither the size nor the edges are public


def _plain(node: object) -> bool:
    return isinstance(node, str | int | float) and not isinstance(node, bool)


def degrees(graph: Graph) -> dict[Hashable, int]:
    """The number of edges of each node: exact, for tests and teaching."""
    counted = Counter(end for edge in graph.edges for end in edge)
    return {node: counted[i] for i, node in enumerate(graph.nodes)}


def projected(graph: Graph, *, degree: int) -> Graph:
    """The graph without the edges that would give a node more than `degree` edges, in the order of the nodes' names.

    The order of two edges does not depend on the rest of the graph, which the proof of the sensitivities needs.
    """
    most = curve_arguments.integer("degree", degree, 1)
    used: Counter[int] = Counter()
    kept = []
    for one, two in sorted(graph.edges):
        if used[one] < most and used[two] < most:
            used[one] += 1
            used[two] += 1
            kept.append((graph.nodes[one], graph.nodes[two]))
    return Graph(nodes=graph.nodes, edges=kept)


class _GraphMechanism(Mechanism):
    """An integer statistic of a graph with noise for its unit."""

    __slots__ = ()

    BINS: ClassVar[bool] = False
    """Whether `degree` is the last bin, under either unit."""

    unit: GraphUnit
    degree: int | None
    noise: Additive

    def _settled(self, unit: Any, degree: Any, dimension: int | None, more: dict[str, Any], **level: Any) -> None:
        if not isinstance(unit, GraphUnit):
            raise InvalidParameter("unit", unit, "must be a GraphUnit", "write GraphUnit.edge() or GraphUnit.node()")
        if unit.thing == "node" and degree is None:
            remedy = "give degree=: edges beyond that many at a node are left out"
            raise InvalidParameter("degree", None, "is needed: a node can be a neighbour of all others", remedy)
        if unit.thing == "edge" and degree is not None and not self.BINS:
            rule = "is for nodes: an edge moves two degrees by one, however many edges there are"
            raise InvalidParameter("degree", degree, rule, "leave it out")
        bound = None if degree is None else curve_arguments.integer("degree", degree, 1)
        moved = self._moves(unit, bound)
        if asks_for_laplace(**level):
            made: Additive = DiscreteLaplace(
                sensitivity=moved, scale=level["scale"], epsilon=level["epsilon"], dimension=dimension
            )
        else:
            given = {name: level[name] for name in ("sigma", "mu", "epsilon", "delta")}
            made = Gaussian.whole(sensitivity=moved, dimension=dimension, **given)
        self._settle(unit=unit, degree=bound, noise=made, **more)

    @staticmethod
    @abstractmethod
    def _moves(unit: GraphUnit, degree: int | None) -> Sensitivity:
        """The sensitivity of the statistic."""

    @abstractmethod
    def statistic(self, graph: Graph) -> Any:
        """The exact statistic that noise is added to, after the projection: for tests and teaching."""

    @property
    def sensitivity(self) -> Sensitivity:
        """The sensitivity of the statistic between neighbours."""
        return self._moves(self.unit, self.degree)

    @property
    def curve(self) -> Curve:
        return self.noise.curve

    def release(self, value: Any, *, entropy: Entropy | None = None) -> Any:
        """The statistic of a `Graph` plus noise: an integer, or an array of integers with independent noise."""
        _check_graph(value)
        if entropy is not None:
            checked_entropy(entropy)
        exact = self.statistic(value)
        drawn = self.noise.draw(None if isinstance(exact, int) else exact.shape, entropy)
        return exact + (int(drawn) if isinstance(exact, int) else drawn)

    def told_apart(self, x: Any, x2: Any) -> list[Told]:
        """The numbers that differ."""
        _check_graph(x)
        _check_graph(x2)
        return distinguishing_parts.numbers(self.noise, self.statistic(x), self.statistic(x2), self._number)

    def _number(self, place: int) -> str:
        """The name of one of several numbers."""
        return f"number {place + 1}"

    def error(self, *, confidence: float) -> float:
        """A bound on the distance of every number from the statistic of the projected graph, with probability at least
        `confidence`.
        """
        return self.noise.error(confidence=confidence)

    def _bounded(self, graph: Graph) -> Graph:
        return graph if self.degree is None else projected(graph, degree=self.degree)

    def __repr__(self) -> str:
        level = "scale" if isinstance(self.noise, DiscreteLaplace) else "sigma"
        kind = "Laplace" if level == "scale" else "Gaussian"
        bound = "" if self.degree is None else f"degree={self.degree}, "
        noise = f"{kind} noise of {level} {float(self.noise.width):g}"
        return f"{type(self).__name__}({self.unit!r}, {bound}{noise})"


@final
@dataclass(frozen=True, slots=True, init=False, repr=False)
class EdgeCount(_GraphMechanism):
    """The number of edges, with noise: an edge moves it by 1, a node by D if the graph is projected onto degrees <= D =
    `degree`.

    Give the noise by `epsilon=` or `scale=` (discrete Laplace), or by `mu=`, `sigma=`, or `epsilon=` with `delta=`
    (rounded Gaussian).
    """

    unit: GraphUnit
    degree: int | None
    noise: Additive

    def __init__(
        self, *, unit: GraphUnit, degree: int | None = None, scale: float | Fraction | None = None,
        epsilon: float | Fraction | None = None, sigma: float | Fraction | None = None, mu: float | None = None,
        delta: float | None = None,
    ) -> None:  # fmt: skip
        self._settled(unit, degree, None, {}, scale=scale, epsilon=epsilon, sigma=sigma, mu=mu, delta=delta)

    @staticmethod
    def _moves(unit: GraphUnit, degree: int | None) -> Sensitivity:
        return _bounds(1, 1, 1) if degree is None else _bounds(degree, degree * degree, degree)

    def statistic(self, graph: Graph) -> int:
        return len(self._bounded(graph).edges)

    def law(self, value: Any) -> NoiseLaw:
        """The noise around the number of edges of the projected graph."""
        _check_graph(value)
        return self.noise.law(self.statistic(value))


@final
@dataclass(frozen=True, slots=True, init=False, repr=False)
class DegreeSequence(_GraphMechanism):
    """The degree of each of the public `nodes`, with noise, in their order. By an edge: L1 2, L2 √2. By a node: L1 2D,
    L2 √2·D, where an absent node has degree 0 and D is `degree`. Arguments for the noise as for `EdgeCount`.

    >>> from deniable.mechanisms import graphs
    >>> noisy = graphs.DegreeSequence(nodes="abc", unit=graphs.GraphUnit.edge(), epsilon=1.0)
    >>> noisy.sensitivity
    Sensitivity(l1=2.0, l2=1.4142135623730951, linf=1.0)
    >>> noisy.statistic(graphs.Graph(nodes="abc", edges=[("c", "a")]))
    array([1, 0, 1])
    """

    unit: GraphUnit
    degree: int | None
    noise: Additive
    nodes: tuple[Hashable, ...]

    def __init__(
        self, *, nodes: Iterable[Hashable], unit: GraphUnit, degree: int | None = None,
        scale: float | Fraction | None = None, epsilon: float | Fraction | None = None,
        sigma: float | Fraction | None = None, mu: float | None = None, delta: float | None = None,
    ) -> None:  # fmt: skip
        listed = tuple(nodes)
        if not 1 <= len(set(listed)) == len(listed) <= MOST_NODES:
            raise InvalidParameter("nodes", NOTHING, f"must be 1 to {MOST_NODES:,} different names")
        given = {"scale": scale, "epsilon": epsilon, "sigma": sigma, "mu": mu, "delta": delta}
        self._settled(unit, degree, len(listed), {"nodes": listed}, **given)

    @staticmethod
    def _moves(unit: GraphUnit, degree: int | None) -> Sensitivity:
        most = 1 if degree is None else degree
        return _bounds(2 * most, 2 * most * most, most)

    def statistic(self, graph: Graph) -> Ints:
        found = degrees(self._bounded(graph))
        return np.array([found.get(node, 0) for node in self.nodes], dtype=np.int64)

    def _number(self, place: int) -> str:
        return f"the degree of {self.nodes[place]}"


@final
@dataclass(frozen=True, slots=True, init=False, repr=False)
class DegreeHistogram(_GraphMechanism):
    """The number of nodes of degree 0, 1, …, `degree`, with noise. By an edge: L1 4, L2 √8, and nodes with more than
    `degree` edges count as having `degree`. By a node: L1 2D + 1, L2 √((D + 1)² + D²), where the graph is projected
    onto degrees <= D = `degree`. Arguments for the noise as for `EdgeCount`.

    >>> from deniable.mechanisms import graphs
    >>> noisy = graphs.DegreeHistogram(degree=3, unit=graphs.GraphUnit.edge(), epsilon=1.0)
    >>> noisy.statistic(graphs.Graph(nodes="abcd", edges=[("a", "b"), ("b", "c"), ("d", "b")]))
    array([0, 3, 0, 1])
    """

    BINS: ClassVar[bool] = True

    unit: GraphUnit
    degree: int
    noise: Additive

    def __init__(
        self, *, degree: int, unit: GraphUnit, scale: float | Fraction | None = None,
        epsilon: float | Fraction | None = None, sigma: float | Fraction | None = None, mu: float | None = None,
        delta: float | None = None,
    ) -> None:  # fmt: skip
        bins = curve_arguments.integer("degree", degree, 1) + 1
        self._settled(unit, degree, bins, {}, scale=scale, epsilon=epsilon, sigma=sigma, mu=mu, delta=delta)

    @staticmethod
    def _moves(unit: GraphUnit, degree: int | None) -> Sensitivity:
        assert degree is not None
        if unit.thing == "edge":
            return _bounds(4, 8, 2)
        # At most D + 1 nodes enter bins, and at most D leave them; a bin where both happen moves less.
        return _bounds(2 * degree + 1, (degree + 1) ** 2 + degree**2, degree + 1)

    def statistic(self, graph: Graph) -> Ints:
        found = degrees(self._bounded(graph) if self.unit.thing == "node" else graph)
        return np.bincount([min(each, self.degree) for each in found.values()], minlength=self.degree + 1)

    def _number(self, place: int) -> str:
        return f"the number of nodes of degree {place}"


def _check_graph(value: Any) -> None:
    if not isinstance(value, Graph):
        raise InvalidParameter("value", NOTHING, "must be a Graph", "write graphs.Graph(nodes=, edges=)")


def _bounds(l1: int, square: int, linf: int) -> Sensitivity:
    """L1, the square of L2, and the largest move of one number."""
    return Sensitivity(l1=l1, l2=numbers.up(numbers.root_up(Fraction(square))), linf=linf)
