"""The five worlds of the corpus: a hospital, a shop, a web site, TPC-H and ClickBench, small and the same every time.

Each world is a star schema as a warehouse has it: facts about people, and public dimensions. The values stay within the
declared bounds and nobody has more rows than are read, so without noise every answer must be plain DuckDB's.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from deniable import Domain, Unit

PEOPLE = 20_000
Columns = dict[str, Any]


@dataclass(frozen=True, slots=True)
class World:
    """Tables about people, each with the most rows of a person; public tables; and what is declared of all columns."""

    person: str
    private: Mapping[str, pd.DataFrame]
    rows: Mapping[str, int]
    schema: Mapping[str, Mapping[str, Domain]]
    public: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    people: Mapping[str, str] = field(default_factory=dict)
    """The column that names people, where a table calls it otherwise."""
    unique: Mapping[str, list[str]] = field(default_factory=dict)
    """The columns that name one row of a table."""
    owned: Mapping[str, list[str]] = field(default_factory=dict)
    """The columns of a table of which each value belongs to one person."""

    @property
    def units(self) -> dict[str, Unit]:
        named = {name: self.people.get(name, self.person) for name in self.private}
        return {name: Unit.person(named[name], rows=self.rows[name]) for name in self.private}

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        return {**self.private, **self.public}


def within(frame: pd.DataFrame, person: str, most: int) -> pd.DataFrame:
    """At most so many rows of a person."""
    return frame[frame.groupby(person).cumcount() < most].reset_index(drop=True)


def days(rng: np.random.Generator, first: str, number: int, size: int) -> Any:
    return np.datetime64(first, "D") + rng.integers(0, number, size).astype("timedelta64[D]")


def moments(rng: np.random.Generator, first: str, number: int, size: int) -> Any:
    """Seconds within so many days, more of them by day than by night."""
    hours = np.clip(rng.normal(14, 4, size), 0, 23.99)
    return days(rng, first, number, size).astype("datetime64[s]") + (hours * 3600).astype("timedelta64[s]")


def active(rng: np.random.Generator, size: int, people: int = PEOPLE) -> Any:
    """Who did it: a skewed choice of people."""
    weights = rng.gamma(0.7, 1.0, people)
    return rng.choice(np.arange(1, people + 1), size, p=weights / weights.sum())


def some_missing(rng: np.random.Generator, values: Any, share: float) -> Any:
    return pd.Series(values).mask(rng.random(len(values)) < share)


# -- a hospital ------------------------------------------------------------------------------------------------------

WARDS = ("Emergency", "Cardiology", "Oncology", "Surgery", "Maternity", "Geriatrics", "Paediatrics", "Psychiatry")
CODES = ("I21", "I50", "C34", "C50", "J18", "J44", "E11", "F32", "K35", "O80", "S72", "N39")
CHAPTERS = {"I": "Circulatory", "C": "Neoplasms", "J": "Respiratory", "E": "Endocrine", "F": "Mental", "K": "Digestive"}
CHAPTERS |= {"O": "Pregnancy", "S": "Injury", "N": "Genitourinary"}
DRUGS = ("Aspirin", "Metformin", "Heparin", "Morphine", "Amoxicillin", "Salbutamol", "Insulin", "Sertraline")
CLASSES = (
    "Analgesic",
    "Antidiabetic",
    "Anticoagulant",
    "Opioid",
    "Antibiotic",
    "Bronchodilator",
    "Antidiabetic",
    "Antidepressant",
)
TESTS = ("HbA1c", "Creatinine", "CRP", "Haemoglobin", "Troponin")


def hospital() -> World:
    rng = np.random.default_rng(101)
    n = PEOPLE
    patients = pd.DataFrame(
        {
            "patient_id": np.arange(1, n + 1),
            "sex": rng.choice(["F", "M", "X"], n, p=[0.51, 0.48, 0.01]),
            "birth_date": days(rng, "1930-01-01", 33_000, n),
            "town": rng.choice([f"Town {k}" for k in range(40)], n, p=np.arange(40, 0, -1) / 820),
            "insurance": rng.choice(["public", "private", "none"], n, p=[0.7, 0.25, 0.05]),
            "smoker": rng.random(n) < 0.22,
            "weight_kg": some_missing(rng, np.round(np.clip(rng.normal(76, 15, n), 30, 200), 1), 0.08),
            "height_cm": some_missing(rng, np.round(np.clip(rng.normal(170, 10, n), 100, 220)), 0.08),
        }
    )
    size = 60_000
    admitted = pd.Series(moments(rng, "2023-01-01", 730, size))
    stay = np.minimum(rng.gamma(1.2, 60.0, size), 700)
    visits = pd.DataFrame(
        {
            "visit_id": np.arange(1, size + 1),
            "patient_id": active(rng, size),
            "ward_id": rng.choice(np.arange(1, 9), size, p=[0.3, 0.15, 0.1, 0.15, 0.08, 0.1, 0.07, 0.05]),
            "doctor_id": rng.integers(1, 61, size),
            "admitted_at": admitted,
            "discharged_at": (admitted + pd.to_timedelta(np.round(stay * 60), unit="min")).mask(
                rng.random(size) < 0.02
            ),
            "visit_type": rng.choice(["emergency", "planned", "outpatient"], size, p=[0.4, 0.35, 0.25]),
            "triage": rng.choice([1, 2, 3, 4, 5], size, p=[0.05, 0.15, 0.35, 0.3, 0.15]),
            "cost": np.round(np.minimum(rng.gamma(1.5, 1500.0, size), 20_000), 2),
            "outcome": rng.choice(["home", "transfer", "died"], size, p=[0.9, 0.08, 0.02]),
        }
    )
    visits = within(visits.drop_duplicates(["patient_id", "admitted_at"]), "patient_id", 12)  # so that an order is one
    pick = rng.integers(0, len(visits), 90_000)
    diagnoses = pd.DataFrame(
        {
            "visit_id": visits["visit_id"].to_numpy()[pick],
            "patient_id": visits["patient_id"].to_numpy()[pick],
            "icd_code": rng.choice(CODES, len(pick)),
            "position": rng.choice([1, 2, 3], len(pick), p=[0.6, 0.3, 0.1]),
        }
    ).drop_duplicates(["visit_id", "icd_code"])
    diagnoses = within(diagnoses, "patient_id", 20)
    pick = rng.integers(0, len(visits), 80_000)
    prescriptions = pd.DataFrame(
        {
            "prescription_id": np.arange(1, len(pick) + 1),
            "visit_id": visits["visit_id"].to_numpy()[pick],
            "patient_id": visits["patient_id"].to_numpy()[pick],
            "drug_id": rng.integers(1, 9, len(pick)),
            "dose_mg": np.round(np.minimum(rng.gamma(2, 100, len(pick)), 1000)),
            "days": rng.integers(1, 31, len(pick)),
            "price": np.round(np.minimum(rng.gamma(2, 15, len(pick)), 300), 2),
            "prescribed_on": visits["admitted_at"].to_numpy()[pick].astype("datetime64[D]"),
        }
    )
    prescriptions = within(prescriptions, "patient_id", 20)
    pick = rng.integers(0, len(visits), 100_000)
    labs = pd.DataFrame(
        {
            "lab_id": np.arange(1, len(pick) + 1),
            "visit_id": visits["visit_id"].to_numpy()[pick],
            "patient_id": visits["patient_id"].to_numpy()[pick],
            "test": rng.choice(TESTS, len(pick)),
            "value": some_missing(rng, np.round(np.minimum(rng.gamma(3, 3, len(pick)), 60), 2), 0.03),
            "taken_at": visits["admitted_at"].to_numpy()[pick],
        }
    )
    labs = within(labs, "patient_id", 25)
    first, last = dt.datetime(2023, 1, 1), dt.datetime(2025, 3, 31)
    visit = Domain.integer(1, size, nullable=False)
    return World(
        "patient_id",
        {"patients": patients, "visits": visits, "diagnoses": diagnoses, "prescriptions": prescriptions, "labs": labs},
        {"patients": 1, "visits": 12, "diagnoses": 20, "prescriptions": 20, "labs": 25},
        {
            "patients": {
                "sex": Domain.text("F", "M", "X", nullable=False),
                "birth_date": Domain.date("1930-01-01", "2024-12-31", nullable=False),
                "town": Domain.text(),
                "insurance": Domain.text("public", "private", "none", nullable=False),
                "smoker": Domain.boolean(nullable=False),
                "weight_kg": Domain.real(30, 200),
                "height_cm": Domain.real(100, 220),
            },
            "visits": {
                "visit_id": visit,
                "ward_id": Domain.integer(keys=range(1, 9), nullable=False),
                "doctor_id": Domain.integer(keys=range(1, 61), nullable=False),
                "admitted_at": Domain.timestamp(first, last, nullable=False),
                "discharged_at": Domain.timestamp(first, last),
                "visit_type": Domain.text("emergency", "planned", "outpatient", nullable=False),
                "triage": Domain.integer(keys=range(1, 6), nullable=False),
                "cost": Domain.real(0, 20_000, nullable=False),
                "outcome": Domain.text("home", "transfer", "died", nullable=False),
            },
            "diagnoses": {
                "visit_id": visit,
                "icd_code": Domain.text(keys=CODES, nullable=False),
                "position": Domain.integer(keys=[1, 2, 3], nullable=False),
            },
            "prescriptions": {
                "prescription_id": Domain.integer(1, 80_000, nullable=False),
                "visit_id": visit,
                "drug_id": Domain.integer(keys=range(1, 9), nullable=False),
                "dose_mg": Domain.real(0, 1000, nullable=False),
                "days": Domain.integer(1, 30, nullable=False),
                "price": Domain.real(0, 300, nullable=False),
                "prescribed_on": Domain.date("2023-01-01", "2025-03-31", nullable=False),
            },
            "labs": {
                "lab_id": Domain.integer(1, 100_000, nullable=False),
                "visit_id": visit,
                "test": Domain.text(keys=TESTS, nullable=False),
                "value": Domain.real(0, 60),
                "taken_at": Domain.timestamp(first, last, nullable=False),
            },
            "wards": {
                "ward_id": Domain.integer(keys=range(1, 9), nullable=False),
                "ward": Domain.text(keys=WARDS, nullable=False),
                "building": Domain.text("North", "South", nullable=False),
                "beds": Domain.integer(0, 100, nullable=False),
            },
            "drugs": {
                "drug_id": Domain.integer(keys=range(1, 9), nullable=False),
                "drug": Domain.text(keys=DRUGS, nullable=False),
                "class": Domain.text(keys=sorted(set(CLASSES)), nullable=False),
            },
            "icd": {
                "icd_code": Domain.text(keys=CODES, nullable=False),
                "chapter": Domain.text(keys=sorted(set(CHAPTERS.values())), nullable=False),
            },
        },
        {
            "wards": pd.DataFrame(
                {
                    "ward_id": range(1, 9),
                    "ward": WARDS,
                    "building": ["North", "South"] * 4,
                    "beds": [40, 30, 25, 35, 20, 30, 20, 15],
                }
            ),
            "drugs": pd.DataFrame({"drug_id": range(1, 9), "drug": DRUGS, "class": CLASSES}),
            "icd": pd.DataFrame({"icd_code": CODES, "chapter": [CHAPTERS[code[0]] for code in CODES]}),
        },
        unique={"visits": ["visit_id"]},
    )


# -- a shop ----------------------------------------------------------------------------------------------------------

CATEGORIES = ("Books", "Games", "Garden", "Kitchen", "Music", "Sports", "Toys", "Clothing")
COUNTRIES = ("DE", "FR", "NL", "BE", "ES", "IT", "PL", "SE")


def shop() -> World:
    rng = np.random.default_rng(202)
    n = PEOPLE
    customers = pd.DataFrame(
        {
            "customer_id": np.arange(1, n + 1),
            "country": rng.choice(COUNTRIES, n, p=[0.3, 0.2, 0.12, 0.1, 0.1, 0.08, 0.06, 0.04]),
            "city": rng.choice([f"City {k}" for k in range(60)], n),
            "signup_date": days(rng, "2021-01-01", 1400, n),
            "birth_year": rng.integers(1945, 2007, n),
            "segment": rng.choice(["consumer", "business", "student"], n, p=[0.7, 0.18, 0.12]),
            "newsletter": rng.random(n) < 0.35,
            "email_domain": rng.choice(
                ["gmail.com", "outlook.com", "web.de", "proton.me"], n, p=[0.5, 0.3, 0.15, 0.05]
            ),
        }
    )
    size = 80_000
    ordered = pd.Series(moments(rng, "2023-01-01", 730, size))
    orders = pd.DataFrame(
        {
            "order_id": np.arange(1, size + 1),
            "customer_id": active(rng, size),
            "ordered_at": ordered,
            "shipped_at": (ordered + pd.to_timedelta(rng.integers(1, 240, size), unit="h")).mask(
                rng.random(size) < 0.05
            ),
            "channel": rng.choice(["web", "app", "store", "phone"], size, p=[0.5, 0.35, 0.12, 0.03]),
            "status": rng.choice(["delivered", "returned", "cancelled", "open"], size, p=[0.82, 0.08, 0.06, 0.04]),
            "payment": rng.choice(["card", "paypal", "invoice"], size, p=[0.5, 0.35, 0.15]),
            "coupon": some_missing(rng, rng.choice(["SPRING10", "SUMMER20", "VIP30"], size), 0.8),
            "shipping_fee": np.round(rng.choice([0, 3.9, 4.9, 9.9], size, p=[0.4, 0.3, 0.2, 0.1]), 2),
            "total": np.round(np.minimum(rng.gamma(1.6, 50.0, size), 1500), 2),
        }
    )
    orders = within(orders, "customer_id", 15)
    pick = rng.integers(0, len(orders), 150_000)
    items = pd.DataFrame(
        {
            "order_id": orders["order_id"].to_numpy()[pick],
            "customer_id": orders["customer_id"].to_numpy()[pick],
            "product_id": rng.choice(np.arange(1, 201), len(pick)),
            "quantity": rng.choice([1, 2, 3, 4, 5], len(pick), p=[0.6, 0.2, 0.1, 0.06, 0.04]),
            "unit_price": np.round(np.clip(rng.gamma(1.8, 18.0, len(pick)), 0.5, 400), 2),
            "discount": rng.choice([0.0, 0.05, 0.1, 0.2], len(pick), p=[0.6, 0.2, 0.1, 0.1]),
        }
    ).drop_duplicates(["order_id", "product_id"])
    items = within(items, "customer_id", 40)
    pick = rng.integers(0, len(orders), 8_000)
    returns = pd.DataFrame(
        {
            "return_id": np.arange(1, len(pick) + 1),
            "order_id": orders["order_id"].to_numpy()[pick],
            "customer_id": orders["customer_id"].to_numpy()[pick],
            "returned_on": orders["ordered_at"].to_numpy()[pick].astype("datetime64[D]") + np.timedelta64(9, "D"),
            "reason": rng.choice(["size", "damaged", "late", "other"], len(pick), p=[0.4, 0.2, 0.1, 0.3]),
            "refund": np.round(np.minimum(rng.gamma(1.6, 40.0, len(pick)), 1500), 2),
        }
    ).drop_duplicates(["order_id"])
    returns = within(returns, "customer_id", 5)
    pick = rng.integers(0, n, 20_000)
    reviews = pd.DataFrame(
        {
            "customer_id": pick + 1,
            "product_id": rng.integers(1, 201, len(pick)),
            "stars": rng.choice([1, 2, 3, 4, 5], len(pick), p=[0.05, 0.07, 0.13, 0.3, 0.45]),
            "reviewed_on": days(rng, "2023-01-01", 730, len(pick)),
            "body": rng.choice(
                ["great value", "broke after a week", "as described", "slow delivery, great product"], len(pick)
            ),
        }
    )
    reviews = within(reviews, "customer_id", 6)
    first, last = dt.datetime(2023, 1, 1), dt.datetime(2025, 1, 31)
    order = Domain.integer(1, size, nullable=False)
    product = Domain.integer(keys=range(1, 201), nullable=False)
    return World(
        "customer_id",
        {"customers": customers, "orders": orders, "order_items": items, "returns": returns, "reviews": reviews},
        {"customers": 1, "orders": 15, "order_items": 40, "returns": 5, "reviews": 6},
        {
            "customers": {
                "country": Domain.text(keys=COUNTRIES, nullable=False),
                "city": Domain.text(),
                "signup_date": Domain.date("2021-01-01", "2024-12-31", nullable=False),
                "birth_year": Domain.integer(1940, 2010, nullable=False),
                "segment": Domain.text("consumer", "business", "student", nullable=False),
                "newsletter": Domain.boolean(nullable=False),
                "email_domain": Domain.text(),
            },
            "orders": {
                "order_id": order,
                "ordered_at": Domain.timestamp(first, last, nullable=False),
                "shipped_at": Domain.timestamp(first, last),
                "channel": Domain.text("web", "app", "store", "phone", nullable=False),
                "status": Domain.text("delivered", "returned", "cancelled", "open", nullable=False),
                "payment": Domain.text("card", "paypal", "invoice", nullable=False),
                "coupon": Domain.text("SPRING10", "SUMMER20", "VIP30"),
                "shipping_fee": Domain.real(0, 20, nullable=False),
                "total": Domain.real(0, 1500, nullable=False),
            },
            "order_items": {
                "order_id": order,
                "product_id": product,
                "quantity": Domain.integer(1, 5, nullable=False),
                "unit_price": Domain.real(0, 400, nullable=False),
                "discount": Domain.real(0, 1, nullable=False),
            },
            "returns": {
                "return_id": Domain.integer(1, 8_000, nullable=False),
                "order_id": order,
                "returned_on": Domain.date("2023-01-01", "2025-01-31", nullable=False),
                "reason": Domain.text("size", "damaged", "late", "other", nullable=False),
                "refund": Domain.real(0, 1500, nullable=False),
            },
            "reviews": {
                "product_id": product,
                "stars": Domain.integer(keys=range(1, 6), nullable=False),
                "reviewed_on": Domain.date("2023-01-01", "2024-12-31", nullable=False),
                "body": Domain.text(),
            },
            "products": {
                "product_id": product,
                "category": Domain.text(keys=CATEGORIES, nullable=False),
                "brand": Domain.text(keys=[f"Brand {k}" for k in range(20)], nullable=False),
                "list_price": Domain.real(0, 400, nullable=False),
            },
        },
        {
            "products": pd.DataFrame(
                {
                    "product_id": range(1, 201),
                    "category": [CATEGORIES[k % 8] for k in range(200)],
                    "brand": [f"Brand {k % 20}" for k in range(200)],
                    "list_price": np.round(rng.gamma(2, 20, 200), 2),
                }
            )
        },
        unique={"orders": ["order_id"]},
        owned={"order_items": ["order_id"], "returns": ["order_id"]},
    )


# -- a web site ------------------------------------------------------------------------------------------------------

PATHS = ("/", "/pricing", "/docs", "/docs/start", "/blog", "/blog/launch", "/signup", "/account", "/checkout", "/help")


def site() -> World:
    rng = np.random.default_rng(303)
    n = PEOPLE
    users = pd.DataFrame(
        {
            "user_id": np.arange(1, n + 1),
            "created_at": moments(rng, "2024-01-01", 300, n),
            "plan": rng.choice(["free", "pro", "team"], n, p=[0.8, 0.15, 0.05]),
            "country": rng.choice(["US", "DE", "IN", "BR", "GB", "JP"], n, p=[0.4, 0.2, 0.15, 0.1, 0.1, 0.05]),
            "source": rng.choice(["google", "direct", "newsletter", "ads"], n, p=[0.4, 0.3, 0.1, 0.2]),
            "variant": rng.choice(["control", "treatment"], n),
        }
    )
    size = 60_000
    started = pd.Series(moments(rng, "2024-01-01", 366, size))
    sessions = pd.DataFrame(
        {
            "session_id": np.arange(1, size + 1),
            "user_id": active(rng, size),
            "started_at": started,
            "ended_at": started + pd.to_timedelta(np.round(np.minimum(rng.gamma(1, 400, size), 14_000)), unit="s"),
            "device": rng.choice(["desktop", "mobile", "tablet"], size, p=[0.5, 0.45, 0.05]),
            "browser": rng.choice(["Chrome", "Safari", "Firefox", "Edge"], size, p=[0.6, 0.25, 0.1, 0.05]),
            "landing_page": rng.choice(PATHS, size),
            "utm_campaign": some_missing(rng, rng.choice(["spring", "summer", "autumn", "winter"], size), 0.7),
            "bounced": rng.random(size) < 0.38,
        }
    )
    sessions = within(sessions.drop_duplicates(["user_id", "started_at"]), "user_id", 15)
    pick = rng.integers(0, len(sessions), 180_000)
    began = sessions["started_at"].to_numpy()[pick]
    views = pd.DataFrame(
        {
            "session_id": sessions["session_id"].to_numpy()[pick],
            "user_id": sessions["user_id"].to_numpy()[pick],
            "viewed_at": began + rng.integers(0, 3600, len(pick)).astype("timedelta64[s]"),
            "url": [
                f"https://example.org{PATHS[k]}?ref={r}"
                for k, r in zip(rng.integers(0, 10, len(pick)), rng.integers(0, 3, len(pick)), strict=True)
            ],
            "path": rng.choice(PATHS, len(pick)),
            "load_ms": np.minimum(rng.gamma(2, 400, len(pick)), 10_000).astype(int),
            "status": rng.choice([200, 301, 404, 500], len(pick), p=[0.93, 0.03, 0.03, 0.01]),
        }
    )
    views = within(views, "user_id", 50)
    pick = rng.integers(0, len(sessions), 40_000)
    events = pd.DataFrame(
        {
            "session_id": sessions["session_id"].to_numpy()[pick],
            "user_id": sessions["user_id"].to_numpy()[pick],
            "event": rng.choice(
                ["click", "signup", "add_to_cart", "purchase", "error"], len(pick), p=[0.6, 0.1, 0.15, 0.1, 0.05]
            ),
            "event_at": sessions["started_at"].to_numpy()[pick] + np.timedelta64(60, "s"),
            "revenue": np.round(np.minimum(rng.gamma(1.5, 30, len(pick)), 500), 2),
        }
    )
    events["revenue"] = events["revenue"].where(events["event"] == "purchase")
    events = within(events, "user_id", 20)
    first, last = dt.datetime(2024, 1, 1), dt.datetime(2025, 1, 2)
    visit = Domain.integer(1, size, nullable=False)
    pages = pd.DataFrame(
        {"path": PATHS, "section": ["home", "sales", "docs", "docs", "blog", "blog", "sales", "app", "sales", "docs"]}
    )
    return World(
        "user_id",
        {"users": users, "sessions": sessions, "page_views": views, "events": events},
        {"users": 1, "sessions": 15, "page_views": 50, "events": 20},
        {
            "users": {
                "created_at": Domain.timestamp(first, last, nullable=False),
                "plan": Domain.text("free", "pro", "team", nullable=False),
                "country": Domain.text("US", "DE", "IN", "BR", "GB", "JP", nullable=False),
                "source": Domain.text("google", "direct", "newsletter", "ads", nullable=False),
                "variant": Domain.text("control", "treatment", nullable=False),
            },
            "sessions": {
                "session_id": visit,
                "started_at": Domain.timestamp(first, last, nullable=False),
                "ended_at": Domain.timestamp(first, last, nullable=False),
                "device": Domain.text("desktop", "mobile", "tablet", nullable=False),
                "browser": Domain.text("Chrome", "Safari", "Firefox", "Edge", nullable=False),
                "landing_page": Domain.text(keys=PATHS, nullable=False),
                "utm_campaign": Domain.text(),
                "bounced": Domain.boolean(nullable=False),
            },
            "page_views": {
                "session_id": visit,
                "viewed_at": Domain.timestamp(first, last, nullable=False),
                "url": Domain.text(),
                "path": Domain.text(keys=PATHS, nullable=False),
                "load_ms": Domain.integer(0, 10_000, nullable=False),
                "status": Domain.integer(keys=[200, 301, 404, 500], nullable=False),
            },
            "events": {
                "session_id": visit,
                "event": Domain.text("click", "signup", "add_to_cart", "purchase", "error", nullable=False),
                "event_at": Domain.timestamp(first, last, nullable=False),
                "revenue": Domain.real(0, 500),
            },
            "pages": {
                "path": Domain.text(keys=PATHS, nullable=False),
                "section": Domain.text("home", "sales", "docs", "blog", "app", nullable=False),
            },
        },
        {"pages": pages},
        unique={"sessions": ["session_id"]},
    )
