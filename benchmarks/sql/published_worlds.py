"""Small worlds shaped like two public benchmarks: TPC-H, about customers, and ClickBench, about users.

TPC-H's line items name no customer, so a column is added to them, as a warehouse that protects people must: l_custkey.
ClickBench has one table; the columns that its 43 questions read are here, under their names.
"""

from __future__ import annotations

import datetime as dt

import numpy as np
import pandas as pd
from worlds import PEOPLE, World, active, days, moments, within

from deniable import Domain

NATIONS = (
    *("ALGERIA", "ARGENTINA", "BRAZIL", "CANADA", "EGYPT", "ETHIOPIA", "FRANCE", "GERMANY", "INDIA", "INDONESIA"),
    *("IRAN", "IRAQ", "JAPAN", "JORDAN", "KENYA", "MOROCCO", "MOZAMBIQUE", "PERU", "CHINA", "ROMANIA", "SAUDI ARABIA"),
    *("VIETNAM", "RUSSIA", "UNITED KINGDOM", "UNITED STATES"),
)
REGION_OF = (0, 1, 1, 1, 4, 0, 3, 3, 2, 2, 4, 4, 2, 4, 0, 0, 0, 1, 2, 3, 4, 2, 3, 3, 1)
REGIONS = ("AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST")
SEGMENTS = ("AUTOMOBILE", "BUILDING", "FURNITURE", "HOUSEHOLD", "MACHINERY")
PRIORITIES = ("1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW")
MODES = ("AIR", "AIR REG", "FOB", "MAIL", "RAIL", "SHIP", "TRUCK")
INSTRUCTIONS = ("COLLECT COD", "DELIVER IN PERSON", "NONE", "TAKE BACK RETURN")
CONTAINERS = [f"{size} {box}" for size in ("SM", "MED", "LG", "WRAP") for box in ("CASE", "BOX", "PACK", "PKG", "BAG")]
BRANDS = [f"Brand#{a}{b}" for a in range(1, 6) for b in range(1, 6)]
TYPES = [
    f"{a} {b} {c}"
    for a in ("STANDARD", "SMALL", "MEDIUM", "LARGE", "ECONOMY", "PROMO")
    for b in ("ANODIZED", "BURNISHED", "POLISHED")
    for c in ("TIN", "BRASS", "STEEL")
]
PARTS, SUPPLIERS = 400, 50


def tpch() -> World:
    rng = np.random.default_rng(404)
    n = PEOPLE
    customer = pd.DataFrame(
        {
            "c_custkey": np.arange(1, n + 1),
            "c_name": [f"Customer#{k:09d}" for k in range(1, n + 1)],
            "c_nationkey": rng.integers(0, 25, n),
            "c_phone": [
                f"{10 + k}-{p}" for k, p in zip(rng.integers(0, 25, n), rng.integers(100, 999, n), strict=True)
            ],
            "c_acctbal": np.round(rng.uniform(-999, 9999, n), 2),
            "c_mktsegment": rng.choice(SEGMENTS, n),
            "c_comment": rng.choice(["furiously ironic", "special requests sleep", "pending deposits"], n),
        }
    )
    size = 50_000
    orders = pd.DataFrame(
        {
            "o_orderkey": np.arange(1, size + 1),
            "o_custkey": active(rng, size),
            "o_orderstatus": rng.choice(["F", "O", "P"], size, p=[0.48, 0.48, 0.04]),
            "o_totalprice": np.round(rng.uniform(900, 500_000, size), 2),
            "o_orderdate": days(rng, "1992-01-01", 2400, size),
            "o_orderpriority": rng.choice(PRIORITIES, size),
            "o_shippriority": np.zeros(size, dtype=int),
            "o_comment": rng.choice(["special packages requests", "carefully final deposits", "quick ideas"], size),
        }
    )
    orders = within(orders, "o_custkey", 15)
    lines = rng.integers(1, 5, len(orders))
    of = np.repeat(np.arange(len(orders)), lines)
    number = np.concatenate([np.arange(1, k + 1) for k in lines])
    m = len(of)
    ordered = orders["o_orderdate"].to_numpy()[of].astype("datetime64[D]")
    shipped = ordered + rng.integers(1, 122, m).astype("timedelta64[D]")
    quantity = rng.integers(1, 51, m)
    lineitem = pd.DataFrame(
        {
            "l_orderkey": orders["o_orderkey"].to_numpy()[of],
            "l_custkey": orders["o_custkey"].to_numpy()[of],
            "l_partkey": rng.integers(1, PARTS + 1, m),
            "l_suppkey": rng.integers(1, SUPPLIERS + 1, m),
            "l_linenumber": number,
            "l_quantity": quantity,
            "l_extendedprice": np.round(quantity * rng.uniform(900, 2000, m), 2),
            "l_discount": rng.integers(0, 11, m) / 100,
            "l_tax": rng.integers(0, 9, m) / 100,
            "l_returnflag": np.where(shipped > np.datetime64("1995-06-17"), "N", rng.choice(["A", "R"], m)),
            "l_linestatus": np.where(shipped > np.datetime64("1995-06-17"), "O", "F"),
            "l_shipdate": shipped,
            "l_commitdate": ordered + rng.integers(30, 91, m).astype("timedelta64[D]"),
            "l_receiptdate": shipped + rng.integers(1, 31, m).astype("timedelta64[D]"),
            "l_shipinstruct": rng.choice(INSTRUCTIONS, m),
            "l_shipmode": rng.choice(MODES, m),
        }
    )
    lineitem = within(lineitem, "l_custkey", 60)
    part = pd.DataFrame(
        {
            "p_partkey": np.arange(1, PARTS + 1),
            "p_name": [
                f"{a} {b}"
                for a, b in zip(
                    rng.choice(["green", "forest", "azure", "plum"], PARTS),
                    rng.choice(["lace", "linen"], PARTS),
                    strict=True,
                )
            ],
            "p_mfgr": [f"Manufacturer#{1 + k % 5}" for k in range(PARTS)],
            "p_brand": [BRANDS[k % 25] for k in range(PARTS)],
            "p_type": rng.choice(TYPES, PARTS),
            "p_size": rng.integers(1, 51, PARTS),
            "p_container": rng.choice(CONTAINERS, PARTS),
            "p_retailprice": np.round(rng.uniform(900, 2000, PARTS), 2),
        }
    )
    supplier = pd.DataFrame(
        {
            "s_suppkey": np.arange(1, SUPPLIERS + 1),
            "s_name": [f"Supplier#{k:09d}" for k in range(1, SUPPLIERS + 1)],
            "s_nationkey": np.arange(SUPPLIERS) % 25,
            "s_acctbal": np.round(rng.uniform(-999, 9999, SUPPLIERS), 2),
            "s_comment": rng.choice(["blithely", "Customer slow Complaints"], SUPPLIERS, p=[0.9, 0.1]),
        }
    )
    partsupp = pd.DataFrame(
        {
            "ps_partkey": np.repeat(np.arange(1, PARTS + 1), 4),
            "ps_suppkey": np.concatenate([(k + np.arange(4) * 12) % SUPPLIERS + 1 for k in range(PARTS)]),
            "ps_availqty": rng.integers(1, 10_000, PARTS * 4),
            "ps_supplycost": np.round(rng.uniform(1, 1000, PARTS * 4), 2),
        }
    )
    nation = pd.DataFrame({"n_nationkey": range(25), "n_name": NATIONS, "n_regionkey": REGION_OF})
    region = pd.DataFrame({"r_regionkey": range(5), "r_name": REGIONS})
    key = Domain.integer(1, size, nullable=False)
    nations = Domain.integer(keys=range(25), nullable=False)
    day = Domain.date("1992-01-01", "1999-06-30", nullable=False)
    a_part, a_supplier = (
        Domain.integer(1, PARTS, nullable=False),
        Domain.integer(keys=range(1, SUPPLIERS + 1), nullable=False),
    )
    return World(
        "c_custkey",
        {"customer": customer, "orders": orders, "lineitem": lineitem},
        {"customer": 1, "orders": 15, "lineitem": 60},
        {
            "customer": {
                "c_name": Domain.text(),
                "c_nationkey": nations,
                "c_phone": Domain.text(),
                "c_acctbal": Domain.real(-1000, 10_000, nullable=False),
                "c_mktsegment": Domain.text(keys=SEGMENTS, nullable=False),
                "c_comment": Domain.text(),
            },
            "orders": {
                "o_orderkey": key,
                "o_orderstatus": Domain.text("F", "O", "P", nullable=False),
                "o_totalprice": Domain.real(0, 500_000, nullable=False),
                "o_orderdate": Domain.date("1992-01-01", "1998-12-31", nullable=False),
                "o_orderpriority": Domain.text(keys=PRIORITIES, nullable=False),
                "o_shippriority": Domain.integer(keys=[0], nullable=False),
                "o_comment": Domain.text(),
            },
            "lineitem": {
                "l_orderkey": key,
                "l_partkey": a_part,
                "l_suppkey": a_supplier,
                "l_linenumber": Domain.integer(keys=range(1, 8), nullable=False),
                "l_quantity": Domain.integer(1, 50, nullable=False),
                "l_extendedprice": Domain.real(0, 100_000, nullable=False),
                "l_discount": Domain.real(0, 0.1, nullable=False),
                "l_tax": Domain.real(0, 0.08, nullable=False),
                "l_returnflag": Domain.text("A", "N", "R", nullable=False),
                "l_linestatus": Domain.text("F", "O", nullable=False),
                "l_shipdate": day,
                "l_commitdate": day,
                "l_receiptdate": day,
                "l_shipinstruct": Domain.text(keys=INSTRUCTIONS, nullable=False),
                "l_shipmode": Domain.text(keys=MODES, nullable=False),
            },
            "part": {
                "p_partkey": a_part,
                "p_name": Domain.text(),
                "p_mfgr": Domain.text(keys=[f"Manufacturer#{k}" for k in range(1, 6)], nullable=False),
                "p_brand": Domain.text(keys=BRANDS, nullable=False),
                "p_type": Domain.text(keys=TYPES, nullable=False),
                "p_size": Domain.integer(keys=range(1, 51), nullable=False),
                "p_container": Domain.text(keys=CONTAINERS, nullable=False),
                "p_retailprice": Domain.real(900, 2000, nullable=False),
            },
            "supplier": {
                "s_suppkey": a_supplier,
                "s_name": Domain.text(keys=supplier["s_name"], nullable=False),
                "s_nationkey": nations,
                "s_acctbal": Domain.real(-1000, 10_000, nullable=False),
                "s_comment": Domain.text(),
            },
            "partsupp": {
                "ps_partkey": a_part,
                "ps_suppkey": a_supplier,
                "ps_availqty": Domain.integer(1, 10_000, nullable=False),
                "ps_supplycost": Domain.real(1, 1000, nullable=False),
            },
            "nation": {
                "n_nationkey": nations,
                "n_name": Domain.text(keys=NATIONS, nullable=False),
                "n_regionkey": Domain.integer(keys=range(5), nullable=False),
            },
            "region": {
                "r_regionkey": Domain.integer(keys=range(5), nullable=False),
                "r_name": Domain.text(keys=REGIONS, nullable=False),
            },
        },
        {"part": part, "supplier": supplier, "partsupp": partsupp, "nation": nation, "region": region},
        {"orders": "o_custkey", "lineitem": "l_custkey"},
        {"orders": ["o_orderkey"]},
        {"lineitem": ["l_orderkey"]},
    )


def clickbench() -> World:
    rng = np.random.default_rng(505)
    size = 150_000
    when = moments(rng, "2013-07-01", 31, size)
    words = ["", "buy a car", "weather", "cheap flights", "news", "pizza", "football", "recipes"]
    host = rng.choice(["google.com", "yandex.ru", "example.org", "shop.example"], size)
    page = rng.integers(0, 30, size)
    known = rng.random(size) < 0.6
    hits = pd.DataFrame(
        {
            "WatchID": rng.integers(1, 10**9, size),
            "UserID": active(rng, size),
            "EventTime": when,
            "EventDate": when.astype("datetime64[D]"),
            "CounterID": rng.choice([62, 100, 200, 300, 400], size, p=[0.4, 0.2, 0.2, 0.1, 0.1]),
            "RegionID": rng.integers(1, 101, size),
            "AdvEngineID": rng.choice([0, 2, 3, 4], size, p=[0.9, 0.05, 0.03, 0.02]),
            "ResolutionWidth": rng.choice([1024, 1280, 1366, 1600, 1920], size),
            "SearchPhrase": rng.choice(words, size, p=[0.6, 0.1, 0.1, 0.05, 0.05, 0.05, 0.03, 0.02]),
            "SearchEngineID": rng.choice([0, 2, 3, 4], size, p=[0.6, 0.2, 0.1, 0.1]),
            "MobilePhone": rng.choice([0, 1, 2, 3], size, p=[0.8, 0.1, 0.06, 0.04]),
            "MobilePhoneModel": rng.choice(["", "iPhone 5", "Galaxy S4", "Nexus 4"], size, p=[0.8, 0.1, 0.06, 0.04]),
            "URL": [f"http://{h}/page{p}" for h, p in zip(host, page, strict=True)],
            "URLHash": page * 1_000 + 7,
            "Title": [f"{h.split('.')[0].title()} page {p}" for h, p in zip(host, page, strict=True)],
            "Referer": np.where(known, [f"https://www.{h}/search" for h in host], ""),
            "RefererHash": page * 77 + 5,
            "ClientIP": rng.integers(1, 5_000, size),
            "IsRefresh": rng.choice([0, 1], size, p=[0.9, 0.1]),
            "IsLink": rng.choice([0, 1], size, p=[0.8, 0.2]),
            "IsDownload": rng.choice([0, 1], size, p=[0.95, 0.05]),
            "DontCountHits": rng.choice([0, 1], size, p=[0.9, 0.1]),
            "TraficSourceID": rng.choice([-1, 1, 2, 3, 6], size),
            "WindowClientWidth": rng.choice([1000, 1300, 1600, 1900], size),
            "WindowClientHeight": rng.choice([600, 800, 1000], size),
        }
    )
    hits = within(hits, "UserID", 40)
    flag = Domain.integer(keys=[0, 1], nullable=False)
    return World(
        "UserID",
        {"hits": hits},
        {"hits": 40},
        {
            "hits": {
                "WatchID": Domain.integer(1, 10**9, nullable=False),
                "EventTime": Domain.timestamp(
                    dt.datetime(2013, 7, 1), dt.datetime(2013, 7, 31, 23, 59, 59), nullable=False
                ),
                "EventDate": Domain.date("2013-07-01", "2013-07-31", nullable=False),
                "CounterID": Domain.integer(keys=[62, 100, 200, 300, 400], nullable=False),
                "RegionID": Domain.integer(keys=range(1, 101), nullable=False),
                "AdvEngineID": Domain.integer(keys=[0, 2, 3, 4], nullable=False),
                "ResolutionWidth": Domain.integer(0, 2000, nullable=False),
                "SearchPhrase": Domain.text(nullable=False),
                "SearchEngineID": Domain.integer(keys=[0, 2, 3, 4], nullable=False),
                "MobilePhone": Domain.integer(keys=[0, 1, 2, 3], nullable=False),
                "MobilePhoneModel": Domain.text(nullable=False),
                "URL": Domain.text(nullable=False),
                "URLHash": Domain.integer(0, 10**6, nullable=False),
                "Title": Domain.text(nullable=False),
                "Referer": Domain.text(nullable=False),
                "RefererHash": Domain.integer(0, 10**6, nullable=False),
                "ClientIP": Domain.integer(0, 10**6, nullable=False),
                "IsRefresh": flag,
                "IsLink": flag,
                "IsDownload": flag,
                "DontCountHits": flag,
                "TraficSourceID": Domain.integer(keys=[-1, 1, 2, 3, 6], nullable=False),
                "WindowClientWidth": Domain.integer(0, 3000, nullable=False),
                "WindowClientHeight": Domain.integer(0, 2000, nullable=False),
            }
        },
    )
