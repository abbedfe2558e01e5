"""What a peer's accountant is told, as a curve: one adapter for the descriptions of events in `peer_values.json`.

An event is a record with its name under "event" and the peer's own parameters. The neighbours differ by one person added
or removed, unless the record says "replaced", or "zeroed" for an answer that is replaced by a special one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import optimize, stats

from deniable import curves
from deniable.curves import Curve
from deniable.curves.atoms.repeated_selection import mean_repeats

Event = dict[str, Any]


def curve_of(event: Event) -> Curve:
    """The curve of an event, and of the events in it."""
    return ADAPTERS[event["event"]](**{name: value for name, value in event.items() if name != "event"})


def with_noise(event: Event, noise: float) -> Event:
    """The event whose missing parameter (null in the table) is `noise`."""

    def filled(value: Any) -> Any:
        return with_noise(value, noise) if isinstance(value, dict) else noise if value is None else value

    return {name: filled(value) for name, value in event.items()}


def grows_with_noise(event: Event) -> bool:
    """Whether the missing parameter is a scale; a discrete Laplace law has its inverse as the parameter."""
    if "parameter" in event:
        return False
    return grows_with_noise(event["of"]) if "of" in event else True


def discrete_laplace(parameter: float, sensitivity: int) -> Curve:
    return curves.discrete_laplace(scale=1 / parameter, sensitivity=sensitivity)


def discrete_gaussian(sigma: float, sensitivity: int, bound: int | None = None) -> Curve:
    """With a bound, the noise takes the values from -bound to bound only."""
    if bound is None:
        return curves.discrete_gaussian(sigma=sigma, sensitivity=sensitivity)
    noise = np.arange(-bound, bound + 1)
    masses = np.exp(-(noise**2) / (2 * sigma**2))
    centre = np.concatenate([masses / masses.sum(), np.zeros(sensitivity)])
    return curves.from_pmf(centre.tolist(), np.roll(centre, sensitivity).tolist())


def mixture_of_gaussians(standard_deviation: float, sensitivities: list[float], sampling_probs: list[float]) -> Curve:
    """The person moves the sum by one of the sensitivities, drawn with these probabilities and kept secret."""
    moved = [
        curves.gaussian(sigma=standard_deviation, sensitivity=move) if move else curves.identity()
        for move in sensitivities
    ]
    return curves.hidden_mixture(sampling_probs, moved) if len(moved) > 1 else moved[0]


def randomized_response(noise: float, buckets: int, neighbours: str) -> Curve:
    """With probability `noise` the answer is drawn from all buckets. The special answer is always drawn so."""
    truth = 1 - noise + noise / buckets
    if neighbours == "replaced":
        return curves.randomized_response(p=truth, categories=buckets)
    return curves.from_pmf([1 / buckets, 1 - 1 / buckets], [truth, 1 - truth])


def poisson_sampled(rate: float, of: Event, neighbours: str = "added") -> Curve:
    if neighbours == "added":
        return curve_of(of).sampled(rate=rate)
    return curve_of(of).sampled(rate=rate, replaced=replaced(of))


def replaced(of: Event) -> Curve:
    """The event if one person is replaced: the sum moves by twice the sensitivity."""
    return curve_of({**of, "sensitivity": 2 * of["sensitivity"]})


def losses(losses: list[float], masses: list[float], infinite: float) -> Curve:
    """Any mechanism with this law of the privacy loss, when the person is removed."""
    other = [mass * math.exp(-loss) for loss, mass in zip(losses, masses, strict=True)]
    return curves.from_pmf([*other, 0.0, 1 - math.fsum(other)], [*masses, infinite, 0.0])


def repeat_and_select(of: Event, mean: float, shape: float | str) -> Curve:
    """The best of a random number of runs: Poisson if the shape is infinite, otherwise negative binomial."""
    if shape == "infinity":
        return curves.best_of_poisson_repeats(curve_of(of), mean=mean)
    number = float(shape)
    gamma = optimize.brentq(lambda g: mean_repeats(shape=number, gamma=g) - mean, 1e-12, 1 - 1e-9, xtol=1e-15)
    return curves.best_of_repeats(curve_of(of), shape=number, gamma=float(gamma))


def truncated_batches(sigma: float, rate: float, records: int, most: int) -> Curve:
    """dp_accounting's pair for a dataset of exactly `records` records. A batch is overfull if at least `most` of the
    others are drawn. Then the person is kept with probability `kept`, and the pair is that of two persons who replace
    each other, each with twice the sensitivity.
    """
    others = np.arange(records)
    chances = stats.binom.pmf(others, records - 1, rate)
    overfull = float(chances[most:].sum())
    kept = float(rate * (chances * most / (others + 1))[most:].sum()) / overfull
    usual = curves.gaussian(sigma=sigma).sampled(rate=rate)
    doubled = curves.gaussian(sigma=sigma / 2).sampled(rate=kept, replaced=curves.gaussian(sigma=sigma / 4))
    return curves.mixture([1 - overfull, overfull], [usual, doubled])


ADAPTERS: dict[str, Callable[..., Curve]] = {
    "composed": lambda of: curves.product(curve_of(part) for part in of),
    "discrete_gaussian": discrete_gaussian,
    "discrete_laplace": discrete_laplace,
    "epsilon_delta": lambda epsilon, delta: curves.approximate(epsilon=epsilon, delta=delta),
    "exponential": lambda epsilon: curves.exponential(epsilon=epsilon),
    "gaussian": lambda sigma, sensitivity: curves.gaussian(sigma=sigma, sensitivity=sensitivity),
    "laplace": lambda scale, sensitivity: curves.laplace(scale=scale, sensitivity=sensitivity),
    "losses": losses,
    "mixture_of_gaussians": mixture_of_gaussians,
    "outcomes": lambda upper, lower: curves.from_pmf(lower, upper),
    "poisson_sampled": poisson_sampled,
    "randomized_response": randomized_response,
    "renyi": lambda order, epsilon: curves.renyi(order=order, epsilon=epsilon),
    "repeat_and_select": repeat_and_select,
    "self_composed": lambda of, count: curve_of(of) ** count,
    # One person is in one leaf, so in as many sums as the tree has levels.
    "single_epoch_tree": lambda sigma, steps: curves.gaussian(sigma=sigma) ** int(steps).bit_length(),
    "truncated_batches": truncated_batches,
    "zcdp": lambda rho: curves.zcdp(rho=rho),
}
