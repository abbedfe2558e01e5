"""One synthetic table by one library, in a process of its own: rows in a file, CPU seconds and peak memory on stdout.

Run by benchmarks/synth.py, with the Python of the library's own environment. Every value is a whole number from 0 to
the size of its domain, and the domain is public.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

TARGET = "income>50K"


def deniable(
    people: Any, domain: dict[str, int], epsilon: float, delta: float, target: str | None = None, method: str = "pairs"
) -> Any:
    import deniable as dn

    schema = {name: dn.Domain.integer(keys=range(size), nullable=False) for name, size in domain.items()}
    budget = dn.Budget(epsilon=epsilon, delta=delta)
    with dn.session({"people": people}, unit=dn.Unit.row(), budget=budget, schema=schema) as s:
        return s.synthesize(target=target, method=method, share=1).rows(len(people)).to_pandas()


def pgm(people: Any, domain: dict[str, int], epsilon: float, delta: float, method: str) -> Any:
    """private-pgm from its repository: its mechanisms are scripts beside the library."""
    from mbi import Dataset, Domain

    data = Dataset(people, Domain(list(domain), list(domain.values())))
    if method == "mst":
        from mst import MST

        return MST(data, epsilon, delta).df
    from aim import AIM

    pairs = [(pair, 1.0) for pair in itertools.combinations(domain, 2)]
    megabytes = 1 if method == "small aim" else 80  # the most that its model may take; 80 is its default
    return AIM(epsilon, delta, max_model_size=megabytes).run(data, pairs)[1].df


def smartnoise(people: Any, domain: dict[str, int], epsilon: float, delta: float, method: str) -> Any:
    from snsynth.aim import AIMSynthesizer
    from snsynth.mst import MSTSynthesizer
    from snsynth.transform import LabelTransformer, TableTransformer

    columns = []
    for size in domain.values():  # the domain is public: nothing is learnt from the data
        label = LabelTransformer(nullable=False)
        label.fit(list(range(size)))
        columns.append(label)
    made = (MSTSynthesizer if method == "mst" else AIMSynthesizer)(epsilon=epsilon, delta=delta)
    made.fit(people, transformer=TableTransformer(columns), preprocessor_eps=0.0)
    import pandas as pd

    return pd.DataFrame(made.sample(len(people)), columns=list(domain))


def dpmm(people: Any, domain: dict[str, int], epsilon: float, delta: float, method: str) -> Any:
    from dpmm.models.aim import AIMGM
    from dpmm.models.mst import MSTGM
    from dpmm.pipelines.base import GenerativePipeline

    made = GenerativePipeline((MSTGM if method == "mst" else AIMGM)(epsilon=epsilon, delta=delta))
    made.fit(people, domain=dict(domain))
    return made.generate(n_records=len(people))


MAKERS = {
    "deniable": lambda *given: deniable(*given),
    "deniable, target": lambda *given: deniable(*given, TARGET),
    "deniable MST": lambda *given: deniable(*given, method="mst"),
    "deniable adaptive": lambda *given: deniable(*given, method="adaptive"),
    "private-pgm MST": lambda *given: pgm(*given, "mst"),
    "private-pgm AIM": lambda *given: pgm(*given, "aim"),
    "private-pgm AIM 1 MB": lambda *given: pgm(*given, "small aim"),
    "smartnoise MST": lambda *given: smartnoise(*given, "mst"),
    "smartnoise AIM": lambda *given: smartnoise(*given, "aim"),
    "dpmm MST": lambda *given: dpmm(*given, "mst"),
    "dpmm AIM": lambda *given: dpmm(*given, "aim"),
}


def main() -> None:
    """Arguments: the maker, the folder with train.csv and domain.json, epsilon, delta, and the file of the rows."""
    import pandas as pd

    maker, folder, epsilon, delta, out = sys.argv[1:]
    people = pd.read_csv(Path(folder) / "train.csv")
    domain = json.loads((Path(folder) / "domain.json").read_text())
    people = people.astype(dict.fromkeys(domain, "int64"))
    began = time.process_time()
    with contextlib.redirect_stdout(sys.stderr):  # some print what they do
        rows = MAKERS[maker](people, domain, float(epsilon), float(delta))
    seconds = time.process_time() - began
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    rows[list(domain)].astype("int64").to_csv(out, index=False)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"cpu": seconds + children.ru_utime + children.ru_stime, "megabytes": peak}))


if __name__ == "__main__":
    main()
