"""One library on one work: `python worker.py <contender> <number of the work>` prints one JSON object.

The worker imports the library once and then forks. Each child is therefore cold (nothing has been computed in it, no
cache is filled) without paying for imports, and its peak memory is its own. A child may use 60 s of CPU and 8 GiB of
addresses. CPU time is that of the one thread that computes: under a CPU limit Linux answers `process_time` from its
coarse ticks.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import signal
import statistics
import sys
import time
import warnings

from contenders import CONTENDERS, Contender, NotOffered
from works import WORKS, Work

CPU_LIMIT = 60
ADDRESS_LIMIT = 8 * 2**30
SHORT, REPEATS = 1.0, 3
VERY_SHORT, MANY_REPEATS = 0.1, 7
"""Runs of at most so many CPU seconds are repeated so often, each in a fresh child; the best counts."""

MORE = 7
"""How often one more mechanism is added, one after the other in one child; the median counts."""


def measure(contender: Contender, work: Work) -> dict[str, object]:
    """Ask once (or, for "add one", several times in a row) and say what came out and what it cost."""
    try:
        ask = contender.ask(work)
        times = []
        first = None
        for _ in range(MORE if work.ask == "add one" else 1):
            began = time.thread_time()
            answer = ask()
            times.append(time.thread_time() - began)
            first = first or answer
            if times[-1] > SHORT:
                break
        assert first is not None
        return {"low": first.low, "high": first.high, "cpu": statistics.median(times)}
    except NotOffered as reason:
        return {"refused": str(reason)}
    except Exception as error:
        text = " ".join(str(error).split())
        return {"error": type(error).__name__, "text": text[:200]}


def in_a_child(contender: Contender, work: Work) -> dict[str, object]:
    """`measure` in a fork, with limits; being stopped by them is a result too."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_LIMIT, CPU_LIMIT + 5))
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_LIMIT, ADDRESS_LIMIT))
        result = measure(contender, work)
        with os.fdopen(writer, "w") as pipe:
            json.dump(result, pipe)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    _, status, used = os.wait4(child, 0)
    result = json.loads(text) if text else {}
    if not text:
        stopped = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        if stopped not in (signal.SIGXCPU, signal.SIGKILL):
            result = {"error": f"signal {stopped}", "text": "the process died"}
        elif work.ask == "add one":  # it was most likely stopped while it still built what is to be held
            result = {"error": "timeout", "text": f"holding and asking took more than {CPU_LIMIT} s of CPU"}
        else:
            result = {"error": "timeout", "text": f"not in {CPU_LIMIT} s of CPU", "limit": float(CPU_LIMIT)}
    result["peak_mb"] = used.ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)
    return result


def best(contender: Contender, work: Work) -> dict[str, object]:
    """The first cold run, with the least CPU time of as many as its length allows."""
    result = in_a_child(contender, work)
    cpu = result.get("cpu")
    if not isinstance(cpu, float) or cpu > SHORT or work.ask == "add one":
        return result
    repeats = MANY_REPEATS if cpu <= VERY_SHORT else REPEATS
    others = [in_a_child(contender, work).get("cpu") for _ in range(repeats - 1)]
    result["cpu"] = min(cpu, *(t for t in others if isinstance(t, float)))
    return result


def main() -> None:
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    key, number = sys.argv[1:]
    contender = next(c for c in CONTENDERS if c.key == key)()
    contender.load()
    print(json.dumps(best(contender, WORKS[int(number)])))


if __name__ == "__main__":
    main()
