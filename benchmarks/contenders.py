"""The libraries compared, each behind the same two methods.

`load` imports everything the library may need, so that no import is timed. `ask` turns a work into a function without
arguments that answers it; whatever happens before that function is called is preparation and is not timed.

Every library is used the way its own documentation says, and in its favour where there is a choice: connect-the-dots
for Google's PLD, Gaussians merged before they are put on a grid (as its accountant does), a distribution or an
accountant that is kept when one more mechanism is added.
"""

from __future__ import annotations

import math
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Callable
from importlib import import_module
from typing import Any, ClassVar, NamedTuple

from works import Mechanism, Part, Work


class Answer(NamedTuple):
    """What a library says; a bound it does not give is None."""

    low: float | None
    high: float | None


class NotOffered(Exception):
    """The library does not support this question."""


class Contender(ABC):
    """A library. `key` names it on the command line of the worker, `title` in the tables."""

    key: ClassVar[str]
    title: ClassVar[str]

    @abstractmethod
    def load(self) -> None:
        """Import everything."""

    def ask(self, work: Work) -> Callable[[], Answer]:
        """A function that answers the work's question. For "add one" each call adds one more."""
        if work.ask == "sigma":
            return lambda: self.sigma(work)
        if work.ask == "lower":
            return lambda: self.lower(work)
        if work.ask == "add one":
            return self.holding(work)
        return lambda: self.epsilon(work)

    @abstractmethod
    def epsilon(self, work: Work) -> Answer: ...

    @abstractmethod
    def holding(self, work: Work) -> Callable[[], Answer]: ...

    @abstractmethod
    def sigma(self, work: Work) -> Answer: ...

    def lower(self, work: Work) -> Answer:
        raise NotOffered("no lower bounds")


class Deniable(Contender):
    """This library, asked for both certified bounds."""

    key, title = "deniable", "deniable [low, high]"

    def load(self) -> None:
        import numpy as np
        import scipy.fft
        import scipy.special

        curves = import_module("deniable.curves")
        for module in pkgutil.walk_packages(curves.__path__, "deniable.curves."):
            import_module(module.name)
        self.atoms = import_module("deniable.curves.atoms.mechanism_atoms")
        self.joined = import_module("deniable.curves.curve").product
        np.fft.rfft(np.ones(8))
        scipy.fft.rfft(np.ones(8))
        scipy.special.ndtr(0.5)

    def mechanism(self, m: Mechanism) -> Any:
        if m.kind == "gaussian":
            return self.atoms.gaussian(sigma=m.size)
        if m.kind == "laplace":
            return self.atoms.laplace(scale=m.size)
        if m.kind == "randomized_response":
            return self.atoms.randomized_response(epsilon=m.size)
        return self.atoms.gaussian(sigma=m.size).sampled(rate=m.rate)

    def curve(self, parts: tuple[Part, ...]) -> Any:
        return self.joined(self.mechanism(p.mechanism) ** p.count for p in parts)

    def read(self, curve: Any, delta: float) -> Answer:
        return Answer(*curve.epsilon_bounds(delta=delta))

    def epsilon(self, work: Work) -> Answer:
        return self.read(self.curve(work.parts), work.delta)

    def lower(self, work: Work) -> Answer:
        return Answer(self.curve(work.parts).epsilon_bounds(delta=work.delta)[0], None)

    def holding(self, work: Work) -> Callable[[], Answer]:
        held = self.curve(work.parts)
        self.read(held, work.delta)

        def step() -> Answer:
            nonlocal held
            held = held * self.mechanism(work.more)
            return self.read(held, work.delta)

        return step

    def sigma(self, work: Work) -> Answer:
        calibrate = import_module("deniable").calibrate
        (part,) = work.parts

        def make(sigma: float) -> Any:
            return self.mechanism(Mechanism(part.mechanism.kind, sigma, part.mechanism.rate)) ** part.count

        return Answer(None, float(calibrate(make, epsilon=work.target, delta=work.delta)))


class DeniableUpper(Deniable):
    """This library, asked for the upper bound alone: all that the others give."""

    key, title = "deniable-upper", "deniable, upper only"

    def read(self, curve: Any, delta: float) -> Answer:
        return Answer(None, curve.epsilon(delta=delta))

    def lower(self, work: Work) -> Answer:
        raise NotOffered("asked for the upper bound alone")


def _noise(epsilon: float) -> float:
    """Google's parameter of binary randomized response: the probability of answering at random."""
    return 2 / (1 + math.exp(epsilon))


class GooglePLD(Contender):
    """dp-accounting's privacy loss distributions, interval 1e-4."""

    key, title = "google-pld", "Google PLD"
    interval = 1e-4

    def load(self) -> None:
        self.dp = import_module("dp_accounting")
        self.pld = import_module("dp_accounting.pld.privacy_loss_distribution")
        self.accountant = import_module("dp_accounting.pld.pld_privacy_accountant").PLDAccountant

    def distribution(self, part: Part, **options: Any) -> Any:
        m, interval = part.mechanism, {"value_discretization_interval": self.interval, **options}
        if m.kind == "gaussian":  # merged as in its accountant
            return self.pld.from_gaussian_mechanism(m.size / math.sqrt(part.count), **interval)
        if m.kind == "laplace":
            one = self.pld.from_laplace_mechanism(m.size, **interval)
        elif m.kind == "randomized_response":
            one = self.pld.from_randomized_response(_noise(m.size), 2, **interval)
        else:
            one = self.pld.from_gaussian_mechanism(m.size, sampling_prob=m.rate, **interval)
        return one.self_compose(part.count)

    def product(self, parts: tuple[Part, ...], **options: Any) -> Any:
        result = self.distribution(parts[0], **options)
        for part in parts[1:]:
            result = result.compose(self.distribution(part, **options))
        return result

    def epsilon(self, work: Work) -> Answer:
        return Answer(None, float(self.product(work.parts).get_epsilon_for_delta(work.delta)))

    def lower(self, work: Work) -> Answer:
        options = {"pessimistic_estimate": False, "use_connect_dots": False}
        return Answer(float(self.product(work.parts, **options).get_epsilon_for_delta(work.delta)), None)

    def holding(self, work: Work) -> Callable[[], Answer]:
        held = self.product(work.parts)
        held.get_epsilon_for_delta(work.delta)
        one = self.distribution(Part(work.more))  # building it again would take up to ten times as long as adding it

        def step() -> Answer:
            nonlocal held
            held = held.compose(one)
            return Answer(None, float(held.get_epsilon_for_delta(work.delta)))

        return step

    def sigma(self, work: Work) -> Answer:
        return _google_sigma(self.dp, self.accountant, work)


def _event(dp: Any, m: Mechanism) -> Any:
    if m.kind == "gaussian":
        return dp.GaussianDpEvent(m.size)
    if m.kind == "laplace":
        return dp.LaplaceDpEvent(m.size)
    if m.kind == "randomized_response":
        return dp.RandomizedResponseDpEvent(_noise(m.size), 2)
    return dp.PoissonSampledDpEvent(m.rate, dp.GaussianDpEvent(m.size))


def _google_sigma(dp: Any, accountant: Callable[[], Any], work: Work) -> Answer:
    (part,) = work.parts

    def event(sigma: float) -> Any:
        return dp.SelfComposedDpEvent(
            dp.PoissonSampledDpEvent(part.mechanism.rate, dp.GaussianDpEvent(sigma)), part.count
        )

    found = dp.calibrate_dp_mechanism(
        accountant, event, work.target, work.delta, dp.LowerEndpointAndGuess(0.5, 4.0), tol=1e-4
    )
    return Answer(None, float(found))


class GoogleAccountant(Contender):
    """dp-accounting's PLD accountant, where it takes another way than the distributions: randomized response."""

    key, title = "google-accountant", "Google PLD accountant"
    module, name = "dp_accounting.pld.pld_privacy_accountant", "PLDAccountant"

    def load(self) -> None:
        self.dp = import_module("dp_accounting")
        self.make = getattr(import_module(self.module), self.name)

    def accountant(self, parts: tuple[Part, ...]) -> Any:
        """Randomized response is offered for replace-one neighbours; unsampled Gaussians cost RDP the same there."""
        responses = any(p.mechanism.kind == "randomized_response" for p in parts)
        relation = self.dp.NeighboringRelation
        accountant = self.make(neighboring_relation=relation.REPLACE_ONE if responses else relation.ADD_OR_REMOVE_ONE)
        try:
            for part in parts:
                accountant.compose(_event(self.dp, part.mechanism), part.count)
        except self.dp.UnsupportedEventError as error:
            raise NotOffered("these mechanisms cannot be mixed") from error
        return accountant

    def epsilon(self, work: Work) -> Answer:
        if self.key == "google-accountant" and any(p.mechanism.kind != "randomized_response" for p in work.parts):
            raise NotOffered("shown only where it differs")
        return Answer(None, float(self.accountant(work.parts).get_epsilon(work.delta)))

    def holding(self, work: Work) -> Callable[[], Answer]:
        if self.key == "google-accountant":
            raise NotOffered("shown only where it differs")
        held = self.accountant(work.parts)
        held.get_epsilon(work.delta)

        def step() -> Answer:
            held.compose(_event(self.dp, work.more))
            return Answer(None, float(held.get_epsilon(work.delta)))

        return step

    def sigma(self, work: Work) -> Answer:
        if self.key == "google-accountant":
            raise NotOffered("shown only where it differs")
        return _google_sigma(self.dp, self.make, work)


class GoogleRDP(GoogleAccountant):
    """dp-accounting's Rényi accountant with its own orders."""

    key, title = "google-rdp", "Google RDP"
    module, name = "dp_accounting.rdp.rdp_privacy_accountant", "RdpAccountant"


class MicrosoftPRV(Contender):
    """prv-accountant, ε error .01 and δ error δ/1000."""

    key, title = "microsoft-prv", "Microsoft PRV ±.01"
    error = 0.01

    def load(self) -> None:
        self.prv = import_module("prv_accountant")
        self.dpsgd = import_module("prv_accountant.dpsgd")

    def variable(self, m: Mechanism) -> Any:
        if m.kind == "gaussian":
            return self.prv.GaussianMechanism(noise_multiplier=m.size)
        if m.kind == "laplace":
            return self.prv.LaplaceMechanism(mu=1 / m.size)
        if m.kind == "randomized_response":
            return self.prv.PureDPMechanism(eps=m.size)
        return self.prv.PoissonSubsampledGaussianMechanism(noise_multiplier=m.size, sampling_probability=m.rate)

    def bounds(self, parts: tuple[Part, ...], delta: float) -> tuple[float, float]:
        counts = [p.count for p in parts]
        accountant = self.prv.PRVAccountant(
            prvs=[self.variable(p.mechanism) for p in parts],
            max_self_compositions=counts,
            eps_error=self.error,
            delta_error=delta / 1000,
        )
        low, _, high = accountant.compute_epsilon(delta=delta, num_self_compositions=counts)
        return float(low), float(high)

    def epsilon(self, work: Work) -> Answer:
        return Answer(*self.bounds(work.parts, work.delta))

    def lower(self, work: Work) -> Answer:
        return Answer(self.bounds(work.parts, work.delta)[0], None)

    def holding(self, work: Work) -> Callable[[], Answer]:
        """Counts are declared up front, so one more means starting again."""
        parts = list(work.parts)

        def step() -> Answer:
            last = parts[-1]
            if last.mechanism == work.more:
                parts[-1] = Part(work.more, last.count + 1)
            else:
                parts.append(Part(work.more))
            return Answer(*self.bounds(tuple(parts), work.delta))

        return step

    def sigma(self, work: Work) -> Answer:
        (part,) = work.parts
        found = self.dpsgd.find_noise_multiplier(
            sampling_probability=part.mechanism.rate,
            num_steps=part.count,
            target_epsilon=work.target,
            target_delta=work.delta,
            eps_error=self.error,
        )
        return Answer(None, float(found))


CONTENDERS: tuple[type[Contender], ...] = (
    Deniable,
    DeniableUpper,
    GooglePLD,
    GoogleAccountant,
    GoogleRDP,
    MicrosoftPRV,
)
