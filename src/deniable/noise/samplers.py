"""The samplers: the public functions of this room. Each docstring states the law, which is exact for any rational
parameter, far tails included.

`size=None` returns a Python number, any other size an array of that shape. `entropy=None` uses the cryptographic source
of the process; another one is for tests. A parameter outside its range raises InvalidParameter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction
from functools import lru_cache, wraps
from typing import Any, ParamSpec, TypeVar, overload

import numpy as np

from deniable import arguments
from deniable.arguments import NOT_NEGATIVE, POSITIVE, PROBABILITY, NumberRange, at_least
from deniable.errors import InvalidParameter
from deniable.noise import noise_arguments
from deniable.noise.entropy import Entropy, given_or_current
from deniable.noise.inversion_table import LIMIT, Flags, Integers, InversionTable, Sampler
from deniable.noise.noise_arguments import Rational
from deniable.noise.sampled_laws import (
    BernoulliExpLaw,
    BernoulliLaw,
    BinomialLaw,
    DiscreteGaussianLaw,
    GeometricBlocks,
    LaplaceBlocks,
    PoissonLaw,
    RoundedGaussianLaw,
)
from deniable.noise.simple_samplers import Coin, Constant, SumOfDraws, Uniform
from deniable.noise.weighted_choice import Chooser
from deniable.noise.wide_noise import WideDiscreteGaussian, WideGeometric, WideLaplace, WideRoundedGaussian, block_bits

Size = int | tuple[int, ...]

_WIDTHS = NumberRange("must be at most 2**50, so that noise fits into 64 bits", most=2**50, remedy="use a coarser grid")
"""Noise of scale 2⁵⁰ leaves ±2⁶² with probability below e^-4096."""

LARGEST_RATE = 2**36
_RATES = NumberRange("must be at most 2**36, so that a draw takes bounded time", most=LARGEST_RATE)
PIECE = 2**23
"""Poisson and binomial laws of larger variance are sums of such pieces: their tables stay below 2^16 entries."""

REMEMBERED = 32
"""The size of the LRU cache of tables for each kind of noise; a table has about 1 MB, at most 3 MB."""

FEW = 32
"""Largest array whose draws are taken one by one: the set-up for many draws costs as much as about eighty of them."""

P = ParamSpec("P")
T = TypeVar("T")


def _remembered(make: Callable[P, T]) -> Callable[P, T]:
    """Cache the samplers of the latest parameters."""
    keep = lru_cache(maxsize=REMEMBERED, typed=True)(make)

    @wraps(make)
    def made(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return keep(*args, **kwargs)  # type: ignore[arg-type]  # not hashable: caught
        except TypeError:  # not hashable, so not a number: the argument check raises the error
            return make(*args, **kwargs)

    return made


def _drawn(sampler: Sampler, size: Size | None, entropy: Entropy | None) -> int | Integers:
    # A single draw is returned directly. Storing it in a variable first could make the time depend on its value,
    # because Python caches small integers.
    source = given_or_current(entropy)
    if size is None:
        return sampler.one(source)
    out = np.empty(noise_arguments.shape(size), dtype=np.int64)
    # A small array takes draws that were made ahead, and saves the set-up for a large one.
    if out.size <= FEW < sampler.AHEAD and source.lineage() is not None:
        out.reshape(-1)[:] = sampler.few(out.size, source)
    else:
        sampler.fill(out.reshape(-1), source)
    return out


def _flipped(coin: Coin, size: Size | None, entropy: Entropy | None) -> bool | Flags:
    source = given_or_current(entropy)
    if size is None:
        return coin.one(source)
    out = np.empty(noise_arguments.shape(size), dtype=np.bool_)
    coin.fill(out.reshape(-1), source)
    return out


def _scale(name: str, value: Any) -> Fraction:
    return arguments.rational(name, value, POSITIVE, _WIDTHS)


@_remembered
def _geometric(scale: Any) -> Sampler:
    exact = _scale("scale", scale)
    return WideGeometric(exact) if block_bits(exact) else InversionTable(GeometricBlocks(exact, 1))


@_remembered
def _discrete_laplace(scale: Any) -> Sampler:
    exact = _scale("scale", scale)
    return WideLaplace(exact) if block_bits(exact) else InversionTable(LaplaceBlocks(exact, 1))


@_remembered
def _discrete_gaussian(sigma: Any) -> Sampler:
    exact = _scale("sigma", sigma)
    return WideDiscreteGaussian(exact) if block_bits(exact) else InversionTable(DiscreteGaussianLaw(exact**2))


@_remembered
def gaussian_sampler(sigma: Any) -> Sampler:
    """The cached sampler behind `rounded_gaussian`, for compiled code that uses its tables."""
    exact = _scale("sigma", sigma)
    return WideRoundedGaussian(exact) if block_bits(exact) else InversionTable(RoundedGaussianLaw(exact))


@_remembered
def _poisson(rate: Any) -> Sampler:
    exact = arguments.rational("rate", rate, NOT_NEGATIVE, _RATES)
    if exact == 0:
        return Constant(0)
    pieces = -(-exact // PIECE)
    table = InversionTable(PoissonLaw(exact / pieces), LIMIT // pieces)
    return table if pieces == 1 else SumOfDraws((table, pieces))


@_remembered
def _binomial(n: Any, p: Any) -> Sampler:
    total, exact = arguments.whole("n", n, NOT_NEGATIVE), arguments.rational("p", p, PROBABILITY)
    if exact in (0, 1) or total == 0:
        return Constant(total * int(exact))
    pieces = max(1, -(-total * exact * (1 - exact) // PIECE))
    if total > LIMIT or pieces > LARGEST_RATE // PIECE:
        raise InvalidParameter("n", n, "must be at most 2**62, with n p (1 - p) at most 2**36")
    each, more = divmod(total, pieces)
    table = InversionTable(BinomialLaw(each, exact))
    if pieces == 1:
        return table
    return SumOfDraws((table, pieces - more), (InversionTable(BinomialLaw(each + 1, exact)), more))


@_remembered
def _bernoulli(p: Any) -> Coin:
    return Coin(BernoulliLaw(arguments.rational("p", p, PROBABILITY)))


@_remembered
def _bernoulli_exp(x: Any) -> Coin:
    return Coin(BernoulliExpLaw(arguments.rational("x", x, NOT_NEGATIVE)))


@overload
def uniform(*, below: int, size: None = None, entropy: Entropy | None = None) -> int: ...
@overload
def uniform(*, below: int, size: Size, entropy: Entropy | None = None) -> Integers: ...
def uniform(*, below: int, size: Size | None = None, entropy: Entropy | None = None) -> int | Integers:
    """One of 0, 1, ..., below - 1, each with probability 1/below. `below` >= 1, and at most 2**63 for an array.

    >>> from deniable import noise
    >>> 0 <= noise.uniform(below=6) < 6
    True
    """
    count = arguments.whole("below", below, at_least(1))
    if size is not None and count > 2**63:
        raise InvalidParameter("below", count, "must be at most 2**63 for an array", "draw one at a time")
    return _drawn(Uniform(count), size, entropy)


@overload
def bernoulli(*, p: Rational, size: None = None, entropy: Entropy | None = None) -> bool: ...
@overload
def bernoulli(*, p: Rational, size: Size, entropy: Entropy | None = None) -> Flags: ...
def bernoulli(*, p: Rational, size: Size | None = None, entropy: Entropy | None = None) -> bool | Flags:
    """True with probability exactly p. The float 0.1 is the number that it stores; Fraction(1, 10) is a tenth.

    >>> from deniable import noise
    >>> noise.bernoulli(p=0), noise.bernoulli(p=1)
    (False, True)
    """
    return _flipped(_bernoulli(p), size, entropy)


@overload
def bernoulli_exp(*, x: Rational, size: None = None, entropy: Entropy | None = None) -> bool: ...
@overload
def bernoulli_exp(*, x: Rational, size: Size, entropy: Entropy | None = None) -> Flags: ...
def bernoulli_exp(*, x: Rational, size: Size | None = None, entropy: Entropy | None = None) -> bool | Flags:
    """True with probability e^-x, for x >= 0.

    >>> from deniable import noise
    >>> noise.bernoulli_exp(x=0)
    True
    """
    return _flipped(_bernoulli_exp(x), size, entropy)


@overload
def geometric(*, scale: Rational, size: None = None, entropy: Entropy | None = None) -> int: ...
@overload
def geometric(*, scale: Rational, size: Size, entropy: Entropy | None = None) -> Integers: ...
def geometric(*, scale: Rational, size: Size | None = None, entropy: Entropy | None = None) -> int | Integers:
    """P(k) = (1 - q) q^k for k = 0, 1, ..., with q = e^(-1/scale), 0 < scale <= 2**50.

    >>> from deniable import noise
    >>> noise.geometric(scale=2, size=1000).min()
    np.int64(0)
    """
    return _drawn(_geometric(scale), size, entropy)


@overload
def discrete_laplace(*, scale: Rational, size: None = None, entropy: Entropy | None = None) -> int: ...
@overload
def discrete_laplace(*, scale: Rational, size: Size, entropy: Entropy | None = None) -> Integers: ...
def discrete_laplace(*, scale: Rational, size: Size | None = None, entropy: Entropy | None = None) -> int | Integers:
    """P(k) = (1 - q)/(1 + q) q^|k| on the integers, q = e^(-1/scale), 0 < scale <= 2**50 (Ghosh, Roughgarden,
    Sundararajan 2009).

    >>> from deniable import noise
    >>> noise.discrete_laplace(scale=2, size=(3, 4)).shape
    (3, 4)
    """
    return _drawn(_discrete_laplace(scale), size, entropy)


@overload
def discrete_gaussian(*, sigma: Rational, size: None = None, entropy: Entropy | None = None) -> int: ...
@overload
def discrete_gaussian(*, sigma: Rational, size: Size, entropy: Entropy | None = None) -> Integers: ...
def discrete_gaussian(*, sigma: Rational, size: Size | None = None, entropy: Entropy | None = None) -> int | Integers:
    """P(k) ∝ e^(-k²/(2 sigma²)) on the integers, 0 < sigma <= 2**50 (Canonne, Kamath, Steinke 2020).

    >>> from deniable import noise
    >>> isinstance(noise.discrete_gaussian(sigma=0.5), int)
    True
    """
    return _drawn(_discrete_gaussian(sigma), size, entropy)


@overload
def rounded_gaussian(*, sigma: Rational, size: None = None, entropy: Entropy | None = None) -> int: ...
@overload
def rounded_gaussian(*, sigma: Rational, size: Size, entropy: Entropy | None = None) -> Integers: ...
def rounded_gaussian(*, sigma: Rational, size: Size | None = None, entropy: Entropy | None = None) -> int | Integers:
    """round(Z) for Z ~ N(0, sigma²), 0 < sigma <= 2**50: P(k) = Φ((k + 1/2)/sigma) - Φ((k - 1/2)/sigma).

    Added to an integer x it is round(x + Z), post-processing of continuous Gaussian noise, so its guarantee is never
    worse.

    >>> from deniable import noise
    >>> isinstance(noise.rounded_gaussian(sigma=3), int)
    True
    """
    return _drawn(gaussian_sampler(sigma), size, entropy)


@overload
def poisson(*, rate: Rational, size: None = None, entropy: Entropy | None = None) -> int: ...
@overload
def poisson(*, rate: Rational, size: Size, entropy: Entropy | None = None) -> Integers: ...
def poisson(*, rate: Rational, size: Size | None = None, entropy: Entropy | None = None) -> int | Integers:
    """P(k) = e^-rate rate^k/k! for k = 0, 1, ..., 0 <= rate <= 2**36.

    >>> from deniable import noise
    >>> noise.poisson(rate=0)
    0
    """
    return _drawn(_poisson(rate), size, entropy)


@overload
def binomial(*, n: int, p: Rational, size: None = None, entropy: Entropy | None = None) -> int: ...
@overload
def binomial(*, n: int, p: Rational, size: Size, entropy: Entropy | None = None) -> Integers: ...
def binomial(*, n: int, p: Rational, size: Size | None = None, entropy: Entropy | None = None) -> int | Integers:
    """P(k) = C(n, k) p^k (1 - p)^(n - k): the number of heads among n coins. n <= 2**62 and n p (1 - p) <= 2**36.

    >>> from deniable import noise
    >>> 0 <= noise.binomial(n=10, p=0.3) <= 10
    True
    """
    return _drawn(_binomial(n, p), size, entropy)


@overload
def choice(
    *,
    log_weights: Iterable[Rational],
    weights: Iterable[Rational] | None = None,
    size: None = None,
    entropy: Entropy | None = None,
) -> int: ...
@overload
def choice(
    *,
    log_weights: Iterable[Rational],
    weights: Iterable[Rational] | None = None,
    size: Size,
    entropy: Entropy | None = None,
) -> Integers: ...
def choice(
    *,
    log_weights: Iterable[Rational],
    weights: Iterable[Rational] | None = None,
    size: Size | None = None,
    entropy: Entropy | None = None,
) -> int | Integers:
    """The index i with probability ∝ w_i e^(u_i), where u are the log_weights and w the weights (default 1).

    Weights are not negative and not all zero. Nothing is cached, because log_weights are often computed from data.

    >>> from deniable import noise
    >>> noise.choice(log_weights=[0, 0, 1], weights=[0, 1, 0])
    1
    """
    return _drawn(Chooser(log_weights, weights), size, entropy)


def permutation(n: int, *, entropy: Entropy | None = None) -> Integers:
    """The numbers 0, 1, ..., n - 1 in random order, all n! orders equally likely.

    They are sorted by random 64-bit words; equal words are decided by further words.

    >>> from deniable import noise
    >>> sorted(noise.permutation(4).tolist())
    [0, 1, 2, 3]
    """
    count, source = arguments.whole("n", n, NOT_NEGATIVE), given_or_current(entropy)
    keys = [source.words(count)]
    while True:
        order = np.lexsort(keys[::-1])
        same = np.all([key[order[1:]] == key[order[:-1]] for key in keys], axis=0)
        if not same.any():
            return order.astype(np.int64, copy=False)
        keys.append(source.words(count))
