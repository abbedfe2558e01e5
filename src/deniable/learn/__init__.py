"""Machine learning: training plans, which are pure maths, and the trainers and estimators that carry them out.

    plans                 DPSGD: noise and sampling of private gradient descent, and its curve
    adaptive_clipping     AdaptiveNorm: a clipping norm that follows the gradients, and its price
    layer_clipping        PerLayer: a clipping norm for each layer, and its price
    batch_rules           the values of `batches=` of DPSGD: who is drawn, the curve and the words of each
    epoch_batches         batches that visit every record once in each epoch: allocated or shuffled
    truncated_batches     the price of keeping a Poisson sample below a fixed size
    matrix_factorisation  DPFTRL: noise that is correlated over the steps, for data in a fixed order
    buffered_noise        correlated noise by a few buffers, for DPFTRL
    banded_sampling       BandMF: correlated noise with sampling
    federated_plan        Federated: shares of integer noise in a secure sum of clients' updates
    federated_run         FederatedRun: simulated clients carry out that plan
    tuning                tune: the best of a random number of runs, with its curve
    loss_membership       how many members an attacker finds from losses, at a rate of false alarms
    convex_perturbation   output and objective perturbation for convex losses
    private_metrics       accuracy, confusion matrix, mean loss and AUROC as questions to a session
    torch                 Trainer: carries out a plan on an unmodified PyTorch model (needs the extra `torch`)
    sklearn               private estimators for scikit-learn (needs the extra `sklearn`)

>>> import deniable as dn
>>> plan = dn.learn.DPSGD(clip=1.0, rate=256 / 60_000, steps=3_000).calibrate(epsilon=3, delta=1e-5)
>>> plan.curve.epsilon(delta=1e-5) <= 3
True
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from deniable.doors import lazy_door

if TYPE_CHECKING:
    from deniable.learn import private_metrics, sklearn, torch
    from deniable.learn.adaptive_clipping import AdaptiveNorm
    from deniable.learn.banded_sampling import BandMF
    from deniable.learn.convex_perturbation import ObjectivePerturbation, OutputPerturbation
    from deniable.learn.federated_plan import Federated
    from deniable.learn.federated_run import FederatedRun
    from deniable.learn.layer_clipping import PerLayer
    from deniable.learn.loss_membership import MembershipTest, membership_test
    from deniable.learn.matrix_factorisation import DPFTRL
    from deniable.learn.plans import DPSGD, Automatic, Flat, Plan
    from deniable.learn.tuning import PoissonRepeats, Repeats, Tuned, tune

_HOMES = {
    "AdaptiveNorm": "adaptive_clipping",
    "Automatic": "plans",
    "BandMF": "banded_sampling",
    "DPFTRL": "matrix_factorisation",
    "DPSGD": "plans",
    "Federated": "federated_plan",
    "FederatedRun": "federated_run",
    "Flat": "plans",
    "MembershipTest": "loss_membership",
    "ObjectivePerturbation": "convex_perturbation",
    "OutputPerturbation": "convex_perturbation",
    "PerLayer": "layer_clipping",
    "Plan": "plans",
    "PoissonRepeats": "tuning",
    "Repeats": "tuning",
    "Tuned": "tuning",
    "membership_test": "loss_membership",
    "private_metrics": "private_metrics",
    "sklearn": "sklearn",
    "torch": "torch",
    "tune": "tuning",
}

__all__ = [
    "DPFTRL",
    "DPSGD",
    "AdaptiveNorm",
    "Automatic",
    "BandMF",
    "Federated",
    "FederatedRun",
    "Flat",
    "MembershipTest",
    "ObjectivePerturbation",
    "OutputPerturbation",
    "PerLayer",
    "Plan",
    "PoissonRepeats",
    "Repeats",
    "Tuned",
    "membership_test",
    "private_metrics",
    "sklearn",
    "torch",
    "tune",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_door(__name__, _HOMES)
