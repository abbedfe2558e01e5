"""Private graphs: sensitivities against all graphs of up to five nodes, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import chain, combinations
from typing import Any

import numpy as np
import pytest

from deniable import Unit, curves, mechanisms
from deniable.errors import InvalidOperation, InvalidParameter
from deniable.mechanisms import graphs
from deniable.mechanisms.graphs import Graph, GraphUnit
from tests.wording import worded

EDGE, NODE = GraphUnit.edge(), GraphUnit.node()
LARGEST = 5


def all_graphs(nodes: int) -> Iterator[tuple[Any, ...]]:
    pairs = list(combinations(range(nodes), 2))
    return chain.from_iterable(combinations(pairs, k) for k in range(len(pairs) + 1))


def edge_neighbours(nodes: int) -> Iterator[tuple[Graph, Graph]]:
    for edges in all_graphs(nodes):
        for gone in range(len(edges)):
            yield tuple(Graph(nodes=range(nodes), edges=e) for e in (edges, edges[:gone] + edges[gone + 1 :]))  # type: ignore[misc]


def node_neighbours(nodes: int) -> Iterator[tuple[Graph, Graph]]:
    for edges in all_graphs(nodes):
        for v in range(nodes):
            yield (
                Graph(nodes=range(nodes), edges=edges),
                Graph(nodes=[u for u in range(nodes) if u != v], edges=[e for e in edges if v not in e]),
            )


def largest_move(mechanism: Any, pairs: Any) -> tuple[float, float, float]:
    moves = {tuple(np.atleast_1d(mechanism.statistic(a) - mechanism.statistic(b))) for a, b in pairs}
    return (
        max(sum(map(abs, m)) for m in moves),
        math.sqrt(max(sum(x * x for x in m) for m in moves)),
        max(max(map(abs, m)) for m in moves),
    )


def statistics(unit: GraphUnit, degree: int) -> dict[str, Any]:
    bound = {} if unit == EDGE else {"degree": degree}
    return {
        "edges": graphs.EdgeCount(unit=unit, epsilon=1, **bound),
        "sequence": graphs.DegreeSequence(nodes=range(LARGEST), unit=unit, epsilon=1, **bound),
        "histogram": graphs.DegreeHistogram(degree=degree, unit=unit, epsilon=1),
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", ["edges", "sequence", "histogram"])
def test_no_graph_of_five_nodes_moves_further_by_an_edge_than_said(name: str) -> None:
    pairs = list(edge_neighbours(LARGEST))
    for degree in (2, LARGEST - 1):
        mechanism = statistics(EDGE, degree)[name]
        claimed = mechanism.sensitivity
        found = largest_move(mechanism, pairs)
        assert np.allclose(found, (claimed.l1, claimed.l2, claimed.linf), rtol=1e-15)  # attained, and not exceeded


@pytest.mark.slow
@pytest.mark.parametrize("degree", [1, 2, 3])
@pytest.mark.parametrize("name", ["edges", "sequence", "histogram"])
def test_no_graph_of_five_nodes_moves_further_by_a_node_than_said(name: str, degree: int) -> None:
    mechanism = statistics(NODE, degree)[name]
    claimed = mechanism.sensitivity
    found = largest_move(mechanism, node_neighbours(LARGEST))
    assert found[0] == claimed.l1  # attained
    assert found[1] <= claimed.l2
    assert found[2] <= claimed.linf


def test_the_projection_keeps_the_bound_and_nothing_of_a_graph_that_keeps_it_already() -> None:
    for edges in all_graphs(4):
        graph = Graph(nodes=range(4), edges=edges)
        for degree in (1, 2, 3):
            small = graphs.projected(graph, degree=degree)
            assert max(graphs.degrees(small).values()) <= degree
            assert small.edges <= graph.edges
            if max(graphs.degrees(graph).values()) <= degree:
                assert small == graph


def test_a_node_without_a_bound_is_refused_because_nothing_bounds_it() -> None:
    star = [Graph(nodes=range(n), edges=[(0, i) for i in range(1, n)]) for n in (2, 50)]
    assert [len(g.edges) for g in star] == [1, 49]  # one node moves the count by as many as there are
    with worded(InvalidParameter, parameter="degree"):
        graphs.EdgeCount(unit=NODE, epsilon=1)
    with worded(InvalidParameter):
        graphs.EdgeCount(unit=EDGE, degree=3, epsilon=1)
    with pytest.raises(InvalidParameter, match="GraphUnit"):
        graphs.EdgeCount(unit=Unit.row(), epsilon=1)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "edges",
    [[("a", "a")], [("a", "z")], [("a",)], ["ab"], [("a", "b", "c")]],
    ids=["loop", "end", "one", "text", "three"],
)
def test_what_is_no_graph_is_refused_without_its_names(edges: Any) -> None:
    with pytest.raises(InvalidParameter) as refused:
        Graph(nodes=["a", "b", "c"], edges=edges)
    assert "'a'" not in str(refused.value)
    assert repr(Graph(nodes=["a"], edges=[])) == "<Graph>"


def test_an_edge_is_one_however_often_and_in_whichever_direction_it_is_written() -> None:
    assert Graph(nodes="ab", edges=[("a", "b"), ("b", "a")]) == Graph(nodes="ba", edges=[("a", "b")])


def test_edges_may_be_rows_of_an_array() -> None:
    assert Graph(nodes=range(3), edges=np.array([[0, 1], [2, 1]])) == Graph(nodes=range(3), edges=[(1, 0), (1, 2)])


def test_noise_and_curves_follow_from_the_sensitivity() -> None:
    count = graphs.EdgeCount(unit=NODE, degree=4, epsilon=1)
    assert count.curve == curves.discrete_laplace(scale=4, sensitivity=4)
    histogram = graphs.DegreeHistogram(degree=3, unit=EDGE, mu=0.5)
    assert histogram.curve == curves.gaussian(mu=0.5)
    assert math.isclose(histogram.noise.sigma, math.sqrt(8) / 0.5, rel_tol=1e-12)  # type: ignore[attr-defined]
    graph = Graph(nodes=range(4), edges=[(0, 1), (2, 1)])
    assert isinstance(count.release(graph), int)
    assert histogram.release(graph).shape == (4,)
    assert graphs.DegreeSequence(nodes=range(6), unit=NODE, degree=2, epsilon=1).release(graph).shape == (6,)


def test_graphs_of_different_units_do_not_compose() -> None:
    with pytest.raises(InvalidOperation, match="different units"):
        _ = graphs.EdgeCount(unit=EDGE, epsilon=1) * graphs.EdgeCount(unit=NODE, degree=2, epsilon=1)
    both = graphs.EdgeCount(unit=EDGE, epsilon=1) ** 2
    assert both.curve.epsilon(delta=0) <= 2 + 1e-12
    assert mechanisms.graphs is graphs


@pytest.mark.parametrize("missing", [math.nan, np.float64("nan")])
def test_a_node_without_a_name_does_not_change_the_order_of_all_others(missing: float) -> None:
    """Sorting around a NaN leaves others as they stood: the projection kept other edges, and moved 4 degrees, not 2."""
    with pytest.raises(InvalidParameter, match="NaN"):
        Graph(nodes=[3.0, missing, 1.0, 2.0, 4.0], edges=[(1.0, 2.0), (2.0, 3.0), (3.0, 4.0)])
