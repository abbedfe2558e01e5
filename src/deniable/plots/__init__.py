"""Pictures of curves and of mechanisms' outputs: what to draw (a `Figure` of plain numbers) apart from how (`render`).

>>> from deniable import curves, plots
>>> figure = plots.profile({"one release": curves.gaussian(sigma=2)}, delta=1e-6)
>>> figure.panels[0].y.label
'δ'

`plots.render(figure, "profile.png")` then needs matplotlib, which the extra `plots` brings.

    figure_spec       `Figure`: panels, lines and labels as plain data
    curve_figures     figures of curves
    output_figures    figures of a mechanism's answers on two neighbouring values
    render            draws a figure with matplotlib
    explorer          sliders in a notebook
"""

from deniable.plots.curve_figures import compare, growth, loss, odds, profile, tradeoff
from deniable.plots.explorer import Explorer, explore
from deniable.plots.figure_spec import Figure
from deniable.plots.output_figures import chances, density, laws
from deniable.plots.render import render

__all__ = [
    "Explorer",
    "Figure",
    "chances",
    "compare",
    "density",
    "explore",
    "growth",
    "laws",
    "loss",
    "odds",
    "profile",
    "render",
    "tradeoff",
]
