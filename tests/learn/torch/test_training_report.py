"""A report says what the plan promises and what the owner passed, and nothing of the data."""

from __future__ import annotations

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")
pytestmark = pytest.mark.torch

from scipy.stats import norm  # noqa: E402

from deniable import learn  # noqa: E402
from deniable.errors import InvalidParameter  # noqa: E402
from deniable.learn.torch import DeviceNoise  # noqa: E402
from tests.learn.runs import data, entropy_loss, made, run  # noqa: E402
from tests.wording import worded  # noqa: E402

torch.set_num_threads(1)
PLAN = learn.DPSGD(clip=1.0, rate=1.0, steps=4, noise=2.0)  # without sampling: Gaussian, μ = 1


def test_the_cap_on_membership_is_the_closed_form_of_gaussian_noise():
    """1 - β(α) = Φ(Φ⁻¹(α) + μ) with μ = √steps/noise, by scipy."""
    report = run(made(plan=PLAN)).report(delta=1e-5)
    for alpha in (0.001, 0.01, 0.05, 0.1):
        closed = norm.cdf(norm.ppf(alpha) + 1.0)
        assert closed <= report.cap(alpha) <= closed + 1e-9
    text = report.to_markdown()
    assert "**μ = 1** Gaussian DP" in text
    assert "| 1 % | 9.24 % |" in text  # Φ(Φ⁻¹(0.01) + 1) = 0.09236
    assert f"{PLAN.curve.epsilon(delta=1e-5):.3f}"[:-1] in text


def test_mu_is_told_twice_only_where_the_far_tail_makes_a_difference():
    assert "Up to a probability" not in made(plan=PLAN).report(delta=1e-5).statement.text()
    plan = learn.DPSGD(clip=1.0, rate=0.25, steps=40, noise=2.46)
    told = " ".join(made(plan=plan).report(delta=1e-5).statement.sentences)
    assert f"Up to a probability of δ = 10⁻⁵, it is μ = {plan.curve.gdp(delta=1e-5):.2f}"[:-1] in told


def test_nothing_of_the_data_is_in_it():
    """Runs on other data, with other losses, have the same report to the last letter."""
    plan = learn.DPSGD(clip=1.0, rate=0.3, steps=4, noise=1.0, records=40)
    texts = set()
    for seed in (1, 2):
        trainer = run(made(plan=plan, dataset=data(40, seed=seed)))
        report = trainer.report(delta=1e-5)
        texts.add((report.to_html(), report.to_markdown(), str(report), repr(report)))
    assert len(texts) == 1


def test_it_has_what_the_owner_passes():
    trainer = made(canaries=data(20, seed=5))
    run(trainer)
    finding = trainer.audit(entropy_loss, delta=1e-5, confidence=0.95)
    rng = np.random.default_rng(0)
    included = rng.random(50) < 0.5
    tested = learn.membership_test(rng.exponential(1, 50), included, false_alarms=[0.02, 0.2])
    results = {"accuracy <on> the *test* set": 0.897}
    report = trainer.report(delta=1e-5, title="A & B", audit=finding, membership=tested, results=results)
    html, markdown = report.to_html(), report.to_markdown()
    for text in (html, markdown):
        assert "20 canaries" in text
        assert "0.897" in text
        assert f"{100 * tested.rates[0].found:.1f} %" in text
        assert "Canaries are nobody" in text
    assert "<title>A &amp; B</title>" in html
    assert "accuracy &lt;on&gt; the" in html
    assert "accuracy \\<on\\> the \\*test\\* set" in markdown
    assert html.count("<circle") == 2
    assert report._repr_html_() in html


def test_it_is_written_to_files_and_the_guarantee_into_checkpoints(tmp_path):
    trainer = run(made(plan=PLAN))
    report = trainer.report(delta=1e-5)
    assert report.to_html(tmp_path / "a.html") == (tmp_path / "a.html").read_text("utf-8")
    assert report.to_markdown(tmp_path / "a.md") == (tmp_path / "a.md").read_text("utf-8")
    trainer.save(tmp_path / "run.pt")
    words = torch.load(tmp_path / "run.pt")["guarantee"]
    level = math.ceil(1000 * PLAN.curve.epsilon(delta=1e-6)) / 1000
    assert f"ε = {level}" in words.replace("\n", " ")
    assert "as in real arithmetic" in words.replace("\n", " ")


def test_noise_of_the_device_is_not_called_exact():
    assert "exactly" in run(made(plan=PLAN)).report(delta=1e-5).statement.text()
    other = run(made(plan=PLAN, noise=DeviceNoise())).report(delta=1e-5).statement
    assert not any("drawn exactly" in each for each in other.sentences)
    assert "floating" in other.text()


@pytest.mark.parametrize(
    "given",
    [
        {"audit": "yes"},
        {"membership": 0.5},
        {"auditt": None},
        {"delta": 0.0},
    ],
)
def test_wrong_parts_are_refused(given):
    with worded(InvalidParameter, parameter=next(iter(given))):
        made(plan=PLAN).report(**{"delta": 1e-5, **given})
