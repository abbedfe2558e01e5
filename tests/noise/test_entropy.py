"""Bits: from the cipher they are said to come from, never twice, and new after a fork."""

from __future__ import annotations

import inspect
import pickle
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from deniable import noise
from deniable.errors import InvalidParameter
from deniable.noise import entropy as source
from tests.noise.exact import Chosen


def key_stream(key: bytes, count: int) -> bytes:
    """AES-256-CTR from the block cipher itself: the counters 0, 1, 2, ... one after the other."""
    block = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    return b"".join(block.update(i.to_bytes(16, "big")) for i in range(-(-count // 16)))[:count]


@pytest.mark.parametrize("sizes", [[1000], [3, 1, 2, 700], [1], [2, 2], [20_000, 5, 9000]])
def test_arrays_are_the_key_stream_in_order(sizes: list[int]) -> None:
    """Little-endian words of AES-256-CTR, however they are asked for: none is left out and none comes twice."""
    key = bytes(range(32))
    stream = source._Stream(key)
    parts = []
    for size in sizes:
        part = np.empty(size, dtype=np.uint64)
        stream.fill(part)
        parts.append(part)
    expected = np.frombuffer(key_stream(key, 8 * sum(sizes)), dtype="<u8")
    assert np.array_equal(np.concatenate(parts), expected)


def test_single_words_are_part_of_the_same_stream() -> None:
    key = b"k" * 32
    stream = source._Stream(key)
    words = [stream.word() for _ in range(source.SPARE)]
    assert sorted(words) == sorted(np.frombuffer(key_stream(key, 8 * source.SPARE), dtype="<u8").tolist())


def test_bits_words_and_bytes_have_the_size_asked_for() -> None:
    e = noise.current()
    assert [len(e.bytes(n)) for n in (0, 1, 7, 8, 64, 65, 1000)] == [0, 1, 7, 8, 64, 65, 1000]
    assert e.words(0).size == 0
    assert e.words(3).dtype == np.uint64
    assert e.bits(0) == 0
    for count in (1, 5, 63, 64, 65, 200, 4096):
        drawn = [e.bits(count) for _ in range(64)]
        assert max(drawn) < 2**count
        assert max(drawn) >= 2 ** (count - 1)  # 64 times a leading zero: 2^-64


def test_bytes_are_fair() -> None:
    """Chi-square over 256 values of a million bytes; false alarm 1e-9 (limit 394 for 255 degrees of freedom)."""
    counts = np.bincount(np.frombuffer(noise.current().bytes(10**6), dtype=np.uint8), minlength=256)
    assert np.sum((counts - 10**6 / 256) ** 2) / (10**6 / 256) < 394


def test_words_made_ahead_do_not_repeat() -> None:
    e = noise.current()
    words = [e.word() for _ in range(5000)] + e.words(5000).tolist() + [e.bits(64) for _ in range(5000)]
    assert len(set(words)) == len(words)


def test_a_key_is_worn_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "REKEY_AFTER", 4096)
    e = source.SystemEntropy()
    first = e._stream()
    e.words(600)
    assert e._stream() is not first


def test_replay_gives_the_same_and_is_marked() -> None:
    one, two, other = noise.ReplayEntropy(5), noise.ReplayEntropy(5), noise.ReplayEntropy(6)
    assert np.array_equal(one.words(100), two.words(100))
    assert one.word() == two.word()
    assert one.bytes(100) == two.bytes(100)
    assert not np.array_equal(noise.ReplayEntropy(5).words(100), other.words(100))
    assert noise.current().is_private
    assert not one.is_private
    assert repr(one) == "ReplayEntropy(5)"


@pytest.mark.parametrize("seed", [1.5, "7", None, True, b"x"])
def test_a_seed_is_a_whole_number(seed: object) -> None:
    with pytest.raises(InvalidParameter, match="seed"):
        noise.ReplayEntropy(seed)  # type: ignore[arg-type]


@pytest.mark.parametrize("count", [-1, 1.5, "3", None])
def test_a_count_is_a_count(count: object) -> None:
    for ask in (noise.current().bytes, noise.current().words):
        with pytest.raises(InvalidParameter, match="count"):
            ask(count)  # type: ignore[arg-type]
    with pytest.raises(InvalidParameter, match="count"):
        noise.current().bits(-1)


def test_no_seed_on_any_private_path() -> None:
    """No sampler takes a seed, an rng or a state; the only thing that does is marked."""
    for name in noise.__all__:
        thing = getattr(noise, name)
        parameters = set(inspect.signature(thing).parameters)
        if thing is not noise.ReplayEntropy:
            assert not parameters & {"seed", "rng", "state", "random_state", "key", "generator"}, name
    assert not inspect.signature(source.SystemEntropy).parameters
    assert not inspect.signature(noise.current).parameters


def test_global_seeds_have_no_effect() -> None:
    import random

    drawn = []
    for _ in range(2):
        random.seed(1)
        np.random.seed(1)
        drawn.append(noise.discrete_laplace(scale=2.0**40, size=4).tolist())
    assert drawn[0] != drawn[1]


def test_the_process_source_is_pickled_by_name() -> None:
    pickled = pickle.dumps(noise.current())
    assert pickle.loads(pickled) is noise.current()
    assert len(pickled) < 100  # no key in it


def in_a_fresh_interpreter(code: str) -> str:
    """Python warns of forks in a process with threads, and a test runner has some."""
    run = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")
    return run.stdout


FORKS = """
import os
from deniable import noise

noise.current().word()               # words and draws made ahead are in a child's memory too
noise.rounded_gaussian(sigma=1e12)
noise.discrete_laplace(scale=3, size=10)

for _ in range(3):
    child = os.fork()
    if child:
        os.waitpid(child, 0)
drawn = [noise.current().bits(256), *(noise.rounded_gaussian(sigma=1e12) for _ in range(3))]
drawn += noise.discrete_laplace(scale=1e12, size=3).tolist()
print("\\n".join(map(str, drawn)), flush=True)
os._exit(0)
"""


@pytest.mark.parametrize("before", ["", "import os; os.getpid = lambda: 1"], ids=["", "by the hook alone"])
def test_fork_gives_different_streams(before: str) -> None:
    """Eight processes, seven draws each; the narrowest law has 2^40 likely values, so no two agree but by 2^-30.

    A child may have the number that a process before it had: then only Python's hook notices.
    """
    drawn = in_a_fresh_interpreter(before + FORKS).split()
    assert len(drawn) == 56
    assert len(set(drawn)) == 56


POOL = """
import multiprocessing
from deniable import noise

def draw(_):
    return noise.discrete_gaussian(sigma=1e14)

draw(0)
with multiprocessing.get_context("fork").Pool(2) as pool:
    print(*pool.map(draw, range(40), chunksize=1))
"""


def test_pools_of_processes_draw_differently() -> None:
    assert len(set(in_a_fresh_interpreter(POOL).split())) == 40


def test_a_fork_behind_the_back_of_python_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library that forks in C does not call Python's hooks; the number of the process gives it away."""
    noise.rounded_gaussian(sigma=1e12)
    before = noise.current().lineage()
    stream = source._PROCESS._stream()
    monkeypatch.setattr(source.os, "getpid", lambda: -1)
    assert noise.current().lineage() is not before
    assert source._PROCESS._stream() is not stream


def test_forgetting_is_not_stopped_by_a_thread_that_begins() -> None:
    """A set that grows while it is looked through says so by an error."""
    e = source.SystemEntropy()
    before, lineage = e.word(), e.lineage()

    class Growing(weakref.WeakSet[Any]):
        tries = 0

        def __iter__(self) -> Iterator[Any]:
            Growing.tries += 1
            if Growing.tries < 3:
                raise RuntimeError("Set changed size during iteration")
            return super().__iter__()

    e._all = Growing(e._all.copy())
    stream = e._stream()
    e.forget()
    assert Growing.tries == 3
    assert stream._spare == []
    assert e.lineage() is not lineage
    assert e.word() != before  # the same once in 2⁶⁴ times


def test_threads_draw_differently() -> None:
    drawn: list[int] = []

    def draw() -> None:
        mine = [noise.current().bits(128) for _ in range(2000)]
        mine += [noise.rounded_gaussian(sigma=2.0**50) for _ in range(1000)]
        mine += np.hstack([noise.rounded_gaussian(sigma=2.0**50, size=4) for _ in range(250)]).tolist()
        drawn.extend(mine)

    threads = [threading.Thread(target=draw) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(drawn) == 32_000
    # Of 16,000 draws as wide as 2⁵⁰ two agree by chance with probability 3e-8, and twice two with 1e-15.
    assert len(set(drawn)) >= 31_999


def test_a_signal_in_the_middle_of_a_draw_gets_other_bits() -> None:
    """A handler that draws while the main program draws shares its thread, and so its stream."""
    seen: list[int] = []
    old = signal.signal(signal.SIGALRM, lambda *_: seen.append(noise.current().word()))
    signal.setitimer(signal.ITIMER_REAL, 1e-4, 1e-4)
    try:
        seen += [noise.current().word() for _ in range(60_000)]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    assert len(seen) > 60_000
    assert len(set(seen)) == len(seen)


def test_forgetting_erases_what_was_made_ahead() -> None:
    e = source.SystemEntropy()
    e.word()
    spare = e._stream()._spare
    assert spare
    e.forget()
    assert not spare
    assert isinstance(e.word(), int)  # and goes on with a new key


def test_the_program_ends_quietly() -> None:
    code = "from deniable import noise; noise.discrete_laplace(scale=1); noise.current().word()"
    assert in_a_fresh_interpreter(code) == ""


def test_a_source_of_ones_own_needs_only_bytes() -> None:
    """The protocol: whoever gives bytes gives words and bits as well, little-endian."""
    assert Chosen([0x0123456789ABCDEF]).word() == 0x0123456789ABCDEF
    assert Chosen([0x0123456789ABCDEF]).words(1).tolist() == [0x0123456789ABCDEF]
    assert Chosen([0x0123456789ABCDEF]).bits(8) == 0x01
    assert Chosen([2**63]).bits(1) == 1
    with pytest.raises(InvalidParameter, match="entropy"):
        noise.uniform(below=3, entropy=np.random.default_rng())  # type: ignore[call-overload]
