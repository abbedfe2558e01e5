"""Clipping layer by layer: every layer has its own clipping norm, and the plan uses the Euclidean norm of all of them.

One example's gradient is divided into the parts of the layers, and the part of layer l is scaled down to norm C_l. The
clipped gradient then has a length of at most √(Σ C_l²), which is the `norm` of the rule: sums get noise in units of it,
so the curve is the same as for flat clipping with this norm. Source: McMahan, Ramage, Talwar & Zhang 2018, "Learning
Differentially Private Recurrent Language Models". They give each of m layers the norm S/√m.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import final

from deniable.curves import curve_arguments
from deniable.errors import InvalidParameter, type_of
from deniable.numbers import root_up, up


@final
@dataclass(frozen=True, slots=True, init=False, repr=False)
class PerLayer:
    """A norm for each layer, by the name of the module, or of a parameter, as in `model.named_parameters()`.

    A parameter belongs to the longest name that it begins with: "encoder.0.weight" to "encoder.0" rather than to
    "encoder". Every trained parameter needs a layer; "" is the layer of all other parameters.

    >>> from deniable import learn
    >>> clip = learn.PerLayer({"encoder": 3.0, "head": 4.0})
    >>> clip.norm
    5.0
    >>> learn.DPSGD(clip=clip, rate=0.01, steps=100, noise=1.0).sigma
    5.0
    """

    layers: tuple[tuple[str, float], ...]

    def __init__(self, norms: Mapping[str, float]) -> None:
        if not isinstance(norms, Mapping) or not norms or not all(isinstance(name, str) for name in norms):
            rule = "must be a mapping from names of layers to norms, with at least one layer"
            raise InvalidParameter("norms", type_of(norms), rule, 'for instance {"encoder": 1.0, "head": 0.5}')
        pairs = tuple((name, curve_arguments.positive(f"norms[{name!r}]", norms[name])) for name in sorted(norms))
        object.__setattr__(self, "layers", pairs)

    @classmethod
    def equal(cls, norm: float, *, layers: Iterable[str]) -> PerLayer:
        """The same norm for each of these layers, such that the whole gradient has norm at most `norm`.

        >>> PerLayer.equal(1.0, layers=["a", "b", "c", "d"])
        PerLayer({'a': 0.5, 'b': 0.5, 'c': 0.5, 'd': 0.5})
        """
        whole, names = curve_arguments.positive("clip", norm), list(layers)
        return cls({name: whole / len(names) ** 0.5 for name in names})

    @property
    def norm(self) -> float:
        """√(Σ C_l²), rounded up."""
        return up(root_up(sum((Fraction(each) ** 2 for _, each in self.layers), start=Fraction(0))))

    @property
    def norms(self) -> tuple[float, ...]:
        """The norm of each layer."""
        return tuple(each for _, each in self.layers)

    def layer_of(self, parameter: str) -> int:
        """The number of the layer that a parameter belongs to. Raises `InvalidParameter` if it has none."""
        found = [
            (len(name), number)
            for number, (name, _) in enumerate(self.layers)
            if not name or parameter == name or parameter.startswith(f"{name}.")
        ]
        if not found:
            rule = f"has no norm for the parameter {parameter!r}"
            raise InvalidParameter("clip", self, rule, 'give every layer a norm; "" is the name of all others')
        return max(found)[1]

    def describe(self) -> str:
        """The rule in words, for `explain`."""
        return f"gradients are scaled down layer by layer ({len(self.layers)} norms), to {self.norm:g} together"

    def __repr__(self) -> str:
        return f"PerLayer({dict(self.layers)!r})"
