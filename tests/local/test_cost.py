"""What a million people cost: memory of a program of its own that randomizes and estimates."""

from __future__ import annotations

import subprocess
import sys

import pytest

MEMORY = """
import re
import numpy as np
from deniable import local
answers = np.arange(10**6) % {below}
protocol = local.{protocol}
assert protocol.estimate(protocol.randomize(answers)).people == 10**6
# Of this program alone: what getrusage says would include the tests that started it.
print(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1])
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("protocol", "below"),
    [
        ("KaryRandomizedResponse(categories=100, epsilon=1)", 100),
        ("KaryRandomizedResponse(categories=10**6, epsilon=1)", 100),
        ("SymmetricUnary(categories=100, epsilon=1)", 100),
        ("OptimizedUnary(categories=100, epsilon=1)", 100),
        ("LocalHashing(categories=100, epsilon=1)", 100),
        ("SubsetSelection(categories=100, epsilon=1)", 100),
        ("Rappor(categories=100, f=0.5, p=0.25, q=0.75)", 100),
        ("RandomizedResponse(epsilon=1)", 2),
        ("HybridMean(low=0, high=100, epsilon=1)", 100),
    ],
)
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_million_people_need_less_than_three_hundred_megabytes(protocol: str, below: int) -> None:
    """numpy and deniable by themselves are some 60 of them; a gigabyte would be allowed."""
    program = MEMORY.format(protocol=protocol, below=below)
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) * 2**10 < 300 * 10**6
