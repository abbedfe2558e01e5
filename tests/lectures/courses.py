"""The five courses, as they are cited, and the items of each."""

from __future__ import annotations

from dataclasses import dataclass

from tests.lectures import f_dp, notes, programming, psl, ucsb
from tests.lectures.item import Item


@dataclass(frozen=True)
class Course:
    """A course: its page in docs/course, its citation, and its items in their order."""

    page: str
    title: str
    cited: str
    items: tuple[Item, ...]


COURSES: tuple[Course, ...] = (
    Course(
        page="psl.md",
        title="Differential Privacy for Machine Learning",
        cited="Differential Privacy for Machine Learning, lecture slides, Master IASD, Université PSL, February 2024",
        items=psl.ITEMS,
    ),
    Course(
        page="ucsb.md",
        title="Differential Privacy Basics",
        cited="Yu-Xiang Wang, Lecture 2: Differential Privacy Basics, lecture slides, University of California, Santa Barbara",
        items=ucsb.ITEMS,
    ),
    Course(
        page="notes.md",
        title="Approximate differential privacy and composition",
        cited="Lecture notes, written by hand, on the Gaussian mechanism, advanced composition and Rényi differential privacy",
        items=notes.ITEMS,
    ),
    Course(
        page="f-dp.md",
        title="f-differential privacy, Poisson and infinitely divisible privacy",
        cited="What is f-differential privacy?, lecture slides on Markov kernels, trade-off functions and Poisson privacy",
        items=f_dp.ITEMS,
    ),
    Course(
        page="programming.md",
        title="Approximate Differential Privacy",
        cited="Joseph P. Near and Chiké Abuah, Programming Differential Privacy (2021), chapter Approximate Differential Privacy",
        items=programming.ITEMS,
    ),
)
