"""Sign-in and security of the console: a token in a cookie, a secret in every form (CSRF), a strict content policy.

The cookie holds the token itself, so that revoking a token signs the person out at once, and processes share no
sessions. It is HttpOnly (scripts cannot read it) and SameSite=Strict, ends with the browser, and is Secure with https.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Awaitable, Callable
from functools import cache
from hashlib import sha256
from importlib import resources
from typing import Any, Final, final

from fastapi import APIRouter
from pydantic import ValidationError
from starlette.datastructures import FormData
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import Receive, Scope, Send

from deniable.errors import DeniableError
from deniable.server import error_words
from deniable.server.catalogue.catalogue import Person
from deniable.server.console.page_templates import Pages
from deniable.server.curator import Curator
from deniable.server.problems import Problem, problem_of
from deniable.server.requests.request_desk import Desk
from deniable.server.requests.request_gate import Keeper
from deniable.server.roles import MATRIX, may, refusal

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
"""The content security policy: no inline code, nothing from other sites, no frames."""

_STATIC: Final = {"console.css": "text/css", "console.js": "text/javascript", "icon.svg": "image/svg+xml"}
_HOME: Final = "/console/"

Page = Callable[["Visit"], Awaitable[Response]]


@final
class Visit:
    """One request of a person who is signed in."""

    def __init__(self, guard: Guard, request: Request, person: Person, form: FormData, secret: str) -> None:
        self.request, self.person, self.form, self._guard = request, person, form, guard
        self.curator, self.desk = guard.curator, guard.desk
        self._secret = secret

    @property
    def dataset(self) -> str:
        """The dataset in the address."""
        return str(self.request.path_params["name"])

    @property
    def before(self) -> int | None:
        """The query parameter `before` of a paged list, or None."""
        given = self.request.query_params.get("before", "")
        return int(given) if given.isascii() and given.isdigit() and len(given) < 10 else None

    def text(self, name: str, default: str = "") -> str:
        """A text field of the form."""
        found = self.form.get(name, default)
        return found if isinstance(found, str) else default

    def page(self, template: str, *, status: int = 200, **values: Any) -> Response:
        """A page of the console from a template."""
        known = {"person": self.person, "may": lambda verb: may(self.person.role, verb), "csrf": self._secret}
        return _html(self._guard.pages.render(template, **known, path=self.request.url.path, **values), status)

    def go(self, place: str) -> Response:
        """A redirect to another page, after a form was processed."""
        return RedirectResponse(place, 303)


@final
class Guard:
    """Checks every request to the console, and renders its pages."""

    def __init__(self, curator: Curator, desk: Desk, keeper: Keeper) -> None:
        self.curator, self.desk, self._keeper = curator, desk, keeper
        self.pages = Pages()
        self._key = sha256(b"forms of the console" + curator.key.pem()).digest()
        prefix = "__Host-" if curator.settings.https else ""  # browsers accept this prefix only over https
        self._cookie, self._visitor = f"{prefix}deniable", f"{prefix}deniable-visitor"

    # -- routes --------------------------------------------------------------------------------------------------------

    def add(self, routes: APIRouter) -> None:
        """Add the routes for signing in and out, and static files."""
        for path in ("/", "/console"):
            routes.add_route(path, _to_home, methods=["GET"])
        routes.add_route("/console/sign-in", self._sign_in_page, methods=["GET"])
        routes.add_route("/console/sign-in", self._sign_in, methods=["POST"])
        routes.add_route("/console/invitation", self._invitation_page, methods=["GET"])
        routes.add_route("/console/invitation", self._redeem, methods=["POST"])
        self.post(routes, "/console/sign-out", "see oneself", self._sign_out)
        routes.add_route("/console/static/{file}", _static, methods=["GET"])

    def add_last(self, routes: APIRouter) -> None:
        """Add the route for all addresses of the console that no other route has: it answers "not found"."""
        routes.add_route("/console/{anything:path}", self._nothing, methods=["GET"])

    async def _nothing(self, request: Request) -> Response:
        if request.cookies.get(self._cookie) is None:
            return self._broken(None, Problem("not_found"))
        return await self._guarded("see oneself", _no_page)(request)  # with the header of a signed-in person

    def get(self, routes: APIRouter, path: str, verb: str, page: Page) -> None:
        """Add a page for people whose role may do this."""
        routes.add_route(path, self._guarded(verb, page), methods=["GET"])

    def post(self, routes: APIRouter, path: str, verb: str, page: Page) -> None:
        """Add a form for people whose role may do this."""
        routes.add_route(path, self._guarded(verb, page), methods=["POST"])

    def _guarded(self, verb: str, page: Page) -> Callable[[Request], Awaitable[Response]]:
        assert verb in MATRIX, verb

        async def guarded(request: Request) -> Response:
            token = self.token(request.scope)
            if token is None:
                return _to_sign_in()
            try:
                person = await self._keeper.who(token, request.scope)
            except Problem as problem:
                return _to_sign_in("?over=1") if problem.code == "unauthorized" else self._broken(None, problem)
            secret = self._secret(token)
            visit = Visit(self, request, person, FormData(), secret)
            try:
                if request.method == "POST":
                    visit.form = await request.form()
                    self._same(request, secret, visit.form)
                if not may(person.role, verb):
                    raise Problem("forbidden", refusal(person.role, verb))
                return await page(visit)
            except (Problem, DeniableError, ValidationError) as error:
                return self._broken(visit, as_problem(error))
            except HTTPException:  # the body is not a form
                return self._broken(visit, Problem("unreadable"))
            except Exception as error:  # a bug: the page gives no details, and the gate logs its place
                return _Failed(self._broken(visit, problem_of(error)), error)

        guarded.verb = verb  # type: ignore[attr-defined]  # for the test of all pages
        return guarded

    # -- signing in ----------------------------------------------------------------------------------------------------

    async def _sign_in_page(self, request: Request) -> Response:
        over = "over" in request.query_params  # depends on the address only, so it reveals nothing about a token
        return self._asked_in(200, "You are signed out: the token has expired or was revoked." if over else "")

    async def _sign_in(self, request: Request) -> Response:
        form = await request.form()
        token = form.get("token")
        text = token.strip() if isinstance(token, str) else ""
        try:
            self._same(request, self._secret(request.cookies.get(self._visitor, "")), form)
            await self._keeper.who(text, request.scope)
        except Problem as problem:
            words = {
                "unauthorized": "This token is not valid: it may be mistyped, expired or revoked.",
                "rate_limited": "Too many tries. Wait a little, then try again.",
            }
            return self._asked_in(problem.status, words.get(problem.code, "The form was too old. Try again."))
        response = RedirectResponse(_HOME, 303)
        self._set(response, self._cookie, text)
        response.delete_cookie(self._visitor, **self._kept())
        return response

    async def _invitation_page(self, request: Request) -> Response:
        return self._asked_in(200, "", "invitation.html")

    async def _redeem(self, request: Request) -> Response:
        """Exchange an invitation for a token, show it once, and sign its owner in."""
        form = await request.form()
        invitation = form.get("invitation")
        try:
            self._same(request, self._secret(request.cookies.get(self._visitor, "")), form)
            with self._keeper.stranger(request.scope):
                text = invitation if isinstance(invitation, str) else ""
                done = await self.desk.run(self.curator.reception.redeem, text)
        except Problem as problem:
            words = {
                "unauthorized": "This invitation is not valid: it may be mistyped, expired, or redeemed before. "
                "If you did not redeem it yourself, tell an owner or an auditor: the log says when it was.",
                "rate_limited": "Too many tries. Wait a little, then try again.",
            }
            return self._asked_in(problem.status, words.get(problem.code, "Try again."), "invitation.html")
        response = _html(self.pages.render("welcome.html", done=done), 201)
        self._set(response, self._cookie, done["token"])
        response.delete_cookie(self._visitor, **self._kept())
        return response

    async def _sign_out(self, visit: Visit) -> Response:
        response = visit.go("/console/sign-in")
        response.delete_cookie(self._cookie, **self._kept())
        return response

    def _asked_in(self, status: int, problem: str, template: str = "sign_in.html") -> Response:
        nonce = secrets.token_urlsafe(32)
        response = _html(self.pages.render(template, csrf=self._secret(nonce), problem=problem), status)
        self._set(response, self._visitor, nonce)
        return response

    def _set(self, response: Response, name: str, value: str) -> None:
        response.set_cookie(name, value, **self._kept())

    def _kept(self) -> dict[str, Any]:
        return {"path": "/", "httponly": True, "samesite": "strict", "secure": self.curator.settings.https}

    # -- forms ---------------------------------------------------------------------------------------------------------

    def token(self, scope: Scope) -> str | None:
        """The token in the cookie of a request, or None."""
        return Request(scope).cookies.get(self._cookie)

    def _secret(self, cookie: str) -> str:
        """The secret that a form must contain to prove that it comes from a page of the console (CSRF token)."""
        return hmac.new(self._key, cookie.encode(), sha256).hexdigest()

    def _same(self, request: Request, secret: str, form: FormData) -> None:
        given = form.get("csrf")
        site = request.headers.get("sec-fetch-site", "same-origin")
        ours = isinstance(given, str) and hmac.compare_digest(given.encode(), secret.encode())
        if not ours or site not in {"same-origin", "none"}:
            raise Problem("forbidden", "this form does not come from the console; open the page again")

    def _broken(self, visit: Visit | None, problem: Problem) -> Response:
        values = {"problem": problem_values(problem), "status_code": problem.status}
        if visit is None:
            response = _html(self.pages.render("problem.html", person=None, **values), problem.status)
        else:
            response = visit.page("problem.html", status=problem.status, **values)
        response.headers.update({name: value for name, value in problem.headers.items() if name != "WWW-Authenticate"})
        return response

    def shown(self, scope: Scope, problem: Problem) -> Response | None:
        """A problem of the gate or the router as a page, without a person; None if the client does not accept HTML."""

        accepted = b",".join(value for name, value in scope["headers"] if name == b"accept")
        if b"text/html" not in accepted or scope["path"].startswith("/v1/"):
            return None
        return self._broken(None, problem)


def as_problem(error: Exception) -> Problem:
    """The problem for an error, also of a form that does not validate. It never repeats what was typed."""
    if isinstance(error, ValidationError):
        found = error.errors(include_input=False, include_url=False)[:5]
        rules = error_words.wrongs(found)
        return Problem("invalid", "; ".join(f"{each['where']}: {each['rule']}".removeprefix(": ") for each in rules))
    return problem_of(error)


def problem_values(problem: Problem) -> dict[str, Any]:
    """A problem as values for a template."""
    from deniable.server.problems import CODES

    return {"code": problem.code, "title": CODES[problem.code][1], "detail": problem.detail, **problem.facts}


@final
class _Failed(Response):
    """Sends an error page, then raises the error again, so that the gate logs its place."""

    def __init__(self, page: Response, error: Exception) -> None:
        super().__init__(page.body, page.status_code, dict(page.headers))
        self._error = error

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await super().__call__(scope, receive, send)
        raise self._error


async def _no_page(visit: Visit) -> Response:
    raise Problem("not_found")


async def _to_home(request: Request) -> Response:
    return RedirectResponse(_HOME, 303)


def _to_sign_in(why: str = "") -> Response:
    return RedirectResponse(f"/console/sign-in{why}", 303)


async def _static(request: Request) -> Response:
    name = request.path_params["file"]
    if name not in _STATIC:
        raise Problem("not_found")
    body, mark = _file(name)
    headers = {"Cache-Control": "no-cache", "ETag": mark}
    if request.headers.get("if-none-match") == mark:
        return Response(status_code=304, headers=headers)
    return Response(body, media_type=_STATIC[name], headers=headers)


@cache
def _file(name: str) -> tuple[bytes, str]:
    """A static file and its ETag."""
    body = (resources.files(__package__) / "static" / name).read_bytes()
    return body, f'"{sha256(body).hexdigest()[:16]}"'


def _html(body: str, status: int) -> Response:
    headers = {
        "Content-Security-Policy": POLICY,
        "X-Frame-Options": "DENY",
        "Cross-Origin-Opener-Policy": "same-origin",
    }
    return Response(body, status, headers, "text/html")
