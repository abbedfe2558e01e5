"""Synthetic data: one distribution that agrees with noisy marginals, and rows drawn from it.

Everything here works on what was released already (post-processing): no data is read and no budget is spent in this
room. `Session.synthesize` measures the marginals, and comes here with them. The way of a table through the room:
`marginals` says what to measure and how exactly, `mixture` fits a distribution to the noisy counts, `forbidden` takes
out of it what cannot be, `raking` puts single columns right, `row_drawing` draws rows from it, and `fit_error` says
how far off all of it may be.

Chance in this room is numpy's. It starts fits and draws rows from what is public already: nothing here needs to be
hidden from whoever could guess it. The noise that protects people is drawn before, by `deniable.noise`.
"""

from __future__ import annotations

from deniable.synth.fit_error import Doubt
from deniable.synth.forbidden import Forbidden
from deniable.synth.marginals import Marginal, marginals, shares
from deniable.synth.mixture import Mixture, fit, room
from deniable.synth.raking import raked
from deniable.synth.row_drawing import draw

__all__ = ["Doubt", "Forbidden", "Marginal", "Mixture", "draw", "fit", "marginals", "raked", "room", "shares"]
