"""A browser without script for tests of the console, names that are attacks, and what no page may run."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import httpx

from tests.server.world import WARDS, World

HOSTILE = '<script>alert("x")</script>'
QUOTES = "\"'><img src=x onerror=alert(1)>"
FORM = {"sql": WARDS, "way": "epsilon", "amount": "0.01"}


class Browser:
    """A browser without script: cookies, forms, and the secret of the last page."""

    def __init__(self, world: World, who: str | None = None) -> None:
        self.world, self.cookies, self.csrf = world, dict[str, str](), ""
        if who is not None:
            self.get("/console/sign-in")
            done = self.post("/console/sign-in", token=world.tokens[who])
            assert done.status_code == 303
            self.get("/console/add")  # a page for some and a refusal for others: both have forms

    def get(self, path: str, **headers: str) -> httpx.Response:
        return self._read("GET", path, None, headers)

    def post(self, path: str, *, headers: dict[str, str] | None = None, **fields: str) -> httpx.Response:
        return self._read("POST", path, {"csrf": self.csrf, **fields}, headers or {})

    def _read(self, method: str, path: str, data: Any, headers: dict[str, str]) -> httpx.Response:
        self.world.client._web.cookies.clear()
        cookie = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        response = self.world.client.request(method, path, data=data, headers={**headers, "cookie": cookie})
        self.cookies |= dict(response.cookies)
        found = re.search(r'name="csrf" value="(\w+)"', response.text)
        self.csrf = found[1] if found else self.csrf
        return response


class Tags(HTMLParser):
    """Every tag of a page with its attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def inert(text: str) -> None:
    """Nothing in the page runs or is loaded but our own two files, and nothing is inline."""
    for tag, attributes in Tags(text).found:
        assert not [name for name in attributes if name.startswith("on") or name == "style"], (tag, attributes)
        assert tag not in {"style", "iframe", "object", "embed", "base"}
        if tag == "script":
            assert attributes["src"] == "/console/static/console.js"
        if tag == "img":
            assert attributes["src"] == "/console/static/icon.svg"
        for name in ("href", "src", "action", "formaction"):
            assert (attributes.get(name) or "/").startswith(("/console/", "/", "#", "?")), attributes
        if tag == "form" and attributes.get("method") == "post":
            assert 'name="csrf"' in text
