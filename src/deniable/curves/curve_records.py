"""Curves as JSON-compatible records and back. Names and fields are stable; the version rises when a meaning changes."""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any

from deniable.curves.atoms.atom import Atom
from deniable.curves.curve import Curve
from deniable.errors import DeniableError, UnreadableRecord

VERSION = 2
"""Version 2: `gaussian` and `laplace` may have a `ratio`, and P is always the law without the person (in version 1
`from_pmf` and `from_cells` called that law q: see `_turned`).
"""
DEEPEST = 64


@cache
def atom_classes() -> dict[str, type[Atom]]:
    """Every atom by its stable name."""
    from deniable.curves.atoms import (
        binomial_noise,
        composite_atoms,
        divisible,
        generalized_gaussian,
        hidden_mixtures,
        markov_kernel,
        mechanism_atoms,
        poisson_selection,
        quantization,
        random_allocation,
        renyi_bounds,
        repeated_selection,
        replaced_samples,
        shuffled_reports,
        skellam,
        user_supplied,
    )

    found: dict[str, type[Atom]] = {}
    for module in (
        mechanism_atoms,
        renyi_bounds,
        binomial_noise,
        generalized_gaussian,
        composite_atoms,
        divisible,
        hidden_mixtures,
        markov_kernel,
        user_supplied,
        quantization,
        poisson_selection,
        random_allocation,
        repeated_selection,
        replaced_samples,
        shuffled_reports,
        skellam,
    ):
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, Atom) and value is not Atom:
                found[value.name] = value
    return found


def to_dict(curve: Curve) -> dict[str, Any]:
    """The record of a curve (`Curve.to_dict`)."""
    return {"format": "deniable.curve", "version": VERSION, "factors": [_factor(a, n) for a, n in curve.factors]}


def _factor(atom: Atom, count: int) -> dict[str, Any]:
    record: dict[str, Any] = {"atom": atom.name, "count": count}
    for field in dataclasses.fields(atom):  # type: ignore[arg-type]  # every atom is a dataclass
        value = getattr(atom, field.name)
        if value != field.default:
            record[field.name] = _plain(value)
    return record


def _plain(value: Any) -> Any:
    if isinstance(value, Curve):
        return to_dict(value)
    return [_plain(v) for v in value] if isinstance(value, tuple) else value


def from_dict(record: Any, depth: int = 0) -> Curve:
    """The curve of a record (`Curve.from_dict`). `depth` counts curves inside curves."""
    if not isinstance(record, dict) or record.get("format") != "deniable.curve":
        raise UnreadableRecord('not a curve record: expected a dict with "format": "deniable.curve"')
    version = record.get("version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise UnreadableRecord(f"version {version!r} is not a whole number of at least 1")
    if version > VERSION:
        raise UnreadableRecord(f"version {version} is newer than this library reads ({VERSION}); update deniable")
    if depth > DEEPEST:
        raise UnreadableRecord(f"curves are nested more than {DEEPEST} deep")
    unknown = set(record) - {"format", "version", "factors"}
    if unknown:
        raise UnreadableRecord(
            f"unknown fields {sorted(map(str, unknown))}; a curve record has format, version and factors"
        )
    factors = record.get("factors")
    if not isinstance(factors, list):
        raise UnreadableRecord('"factors" must be a list')
    result = Curve({})
    for factor in factors:
        result = result * _read_factor(factor, depth, version)
    return result


def _read_factor(factor: Any, depth: int, version: int) -> Curve:
    if not isinstance(factor, dict) or not isinstance(factor.get("atom"), str):
        raise UnreadableRecord('each factor must be a dict with an "atom" name')
    name = factor["atom"]
    kind = atom_classes().get(name)
    if kind is None:
        raise UnreadableRecord(f"unknown atom {name!r}; known: {', '.join(sorted(atom_classes()))}")
    known = dataclasses.fields(kind)  # type: ignore[arg-type]  # every atom is a dataclass
    fields = [f.name for f in known if f.default is dataclasses.MISSING]
    optional = {f.name for f in known} - set(fields)
    if "count" not in factor:
        raise UnreadableRecord(f'the factor {name!r} does not say how often it is used: "count" is missing')
    given = set(factor) - {"atom", "count"}
    if given - optional != set(fields):
        raise UnreadableRecord(f"atom {name!r} has the fields {fields}, the record has {sorted(given)}")
    try:
        atom = kind(**{field: _value(factor[field], depth) for field in given})
        return Curve.of(_turned(atom) if version == 1 else atom).__pow__(factor["count"])
    except UnreadableRecord:
        raise
    except (DeniableError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise UnreadableRecord(f"atom {name!r} cannot be read: {error}") from error


def _turned(atom: Atom) -> Atom:
    """An atom of a version 1 record in today's convention: p and q are swapped where version 1 named them the other
    way.
    """
    from deniable.curves.atoms.quantization import QuantizedLoss
    from deniable.curves.atoms.user_supplied import FromCells, FromPmf

    if isinstance(atom, FromPmf) and atom.is_tied:
        return dataclasses.replace(atom, p=atom.q, q=atom.p)
    if isinstance(atom, FromCells) and atom.is_tied:
        highest, lowest = (tuple(-v for v in values) for values in (atom.lowest, atom.highest))
        return dataclasses.replace(
            atom, p=atom.q, q=atom.p, lowest=lowest, highest=highest, missing_p=atom.missing_q, missing_q=atom.missing_p
        )
    if isinstance(atom, QuantizedLoss) and not all(_is_free_pair(inner) for inner, _ in atom.curve.factors):
        return dataclasses.replace(atom, edges=tuple(-e for e in reversed(atom.edges)))
    return atom


def _is_free_pair(atom: Atom) -> bool:
    """Whether this is a user-supplied pair whose direction may flip: such pairs kept their p and q."""
    from deniable.curves.atoms.user_supplied import FromCells, FromPmf

    return isinstance(atom, FromPmf | FromCells) and not atom.is_tied


def _value(value: Any, depth: int) -> Any:
    if isinstance(value, dict):
        return from_dict(value, depth + 1)
    if depth > DEEPEST:
        raise UnreadableRecord(f"lists are nested more than {DEEPEST} deep")
    return tuple(_value(v, depth + 1) for v in value) if isinstance(value, list) else value
