"""The effect of text operators on domains; see `operator_bounds` for all other operators.

A text has no bounds. The length of a text has bounds, because every text is cut after `LONGEST` code points.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from deniable.queries.relations.linear_patterns import Replacement, UnfitPattern, pattern
from deniable.queries.relations.operator_bounds import Domains, Unfit, constant_of, is_whole, nullable, only_null
from deniable.tables.kinds import LONGEST, Domain, Kind


def text(domains: Domains) -> Domain:
    """The domain of a text computed from texts. `Unfit` if an argument is not a text."""
    if any(domain.kind is not Kind.TEXT and not only_null(domain) for domain in domains):
        raise Unfit("cast it first: CAST(a AS VARCHAR)")
    return Domain(Kind.TEXT, None, None, nullable(domains))


def length(domains: Domains) -> Domain:
    """The domain of LENGTH(a): from 0 to `LONGEST`, the most code points of a text."""
    text(domains)
    return Domain(Kind.INTEGER, (Fraction(0), Fraction(LONGEST)), None, nullable(domains))


def prefix(domains: Domains) -> Domain:
    """The domain of LEFT(a, n) for a constant n from 0 to 1000."""
    text(domains[:1])
    size = constant_of(domains[1])
    if domains[1].kind is not Kind.INTEGER or not isinstance(size, int) or not 0 <= size <= 1000:
        raise Unfit
    return Domain(Kind.TEXT, None, None, nullable(domains))


def substring(domains: Domains) -> Domain:
    """The domain of SUBSTRING(a, start, length) for constants from 1 to `LONGEST`."""
    text(domains[:1])
    if not all(is_whole(domain, 1, LONGEST) for domain in domains[1:]):
        raise Unfit("start at 1 or later, and give a length: SUBSTRING(a, 4, 2)")
    return Domain(Kind.TEXT, None, None, nullable(domains))


def split_part(domains: Domains) -> Domain:
    """The domain of SPLIT_PART(a, separator, n) for a constant separator and a constant n from 1 to `LONGEST`."""
    text(domains[:2])
    if not constant_of(domains[1]) or not is_whole(domains[2], 1, LONGEST):
        raise Unfit("the separator must not be empty, and parts are counted from 1: SPLIT_PART(a, '-', 2)")
    return Domain(Kind.TEXT, None, None, nullable(domains))


def replace(domains: Domains) -> Domain:
    """The domain of REPLACE(a, old, new) for a constant `old` that is not empty."""
    text(domains)
    if not constant_of(domains[1]):
        raise Unfit("the text to replace must not be empty: REPLACE(a, '-', ' ')")
    return Domain(Kind.TEXT, None, None, nullable(domains))


def position(domains: Domains) -> Domain:
    """The domain of STRPOS(a, part): from 0, if the part does not occur, to `LONGEST`."""
    text(domains)
    if not constant_of(domains[1]):
        raise Unfit("the text to search for must not be empty: STRPOS(a, '-')")
    return Domain(Kind.INTEGER, (Fraction(0), Fraction(LONGEST)), None, nullable(domains))


def regexp(result: Kind) -> Callable[[Domains], Domain]:
    """The domain of a function with a constant pattern: whether it matches, a group, or the text after replacing."""

    def domain(domains: Domains) -> Domain:
        text(domains[:1])
        try:
            found = pattern(str(constant_of(domains[1])))
            if result is Kind.TEXT and domains[2].kind is Kind.TEXT:
                Replacement.of(str(constant_of(domains[2])), found.groups)
        except UnfitPattern as wrong:
            raise Unfit(str(wrong)) from None
        if domains[2:] and domains[2].kind is Kind.INTEGER and not is_whole(domains[2], 0, found.groups):
            raise Unfit(f"the number of a group must be from 0 (the whole match) to {found.groups}")
        return Domain(result, None, None, nullable(domains))

    return domain


def like(domains: Domains) -> Domain:
    """The domain of a LIKE pattern, for a constant pattern without escapes."""
    text(domains[:1])
    given = constant_of(domains[1])
    if not isinstance(given, str) or "\\" in given or len(given) > 1000:
        raise Unfit("a pattern must be a text of at most 1000 characters without a backslash: a LIKE 'x%'")
    return Domain(Kind.BOOLEAN, None, None, nullable(domains))
