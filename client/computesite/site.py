"""One site, spoken to with one token, or with name and password where a token is made. Every refusal becomes `Refused` with the site's own words."""

import os
import uuid
from typing import Any

import httpx

TIMEOUT_SECONDS = 30.0
URL, TOKEN = "COMPUTESITE_URL", "COMPUTESITE_TOKEN"


class Refused(Exception):
    """The site said no (`status` is its answer's), or nothing at all (0)."""

    def __init__(self, words: str, status: int = 0) -> None:
        super().__init__(words)
        self.status = status


class Site:
    """The REST API below /api/v1."""

    def __init__(self, url: str, token: str = "", *, login: tuple[str, str] | None = None) -> None:
        self.url = url.rstrip("/")
        headers = {"Accept": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        self._client = httpx.Client(
            base_url=self.url + "/api/v1", headers=headers, auth=login, timeout=TIMEOUT_SECONDS
        )

    @classmethod
    def from_environment(cls) -> "Site":
        """Raises Refused when a variable is missing."""
        return cls(*_set(URL, TOKEN))

    @classmethod
    def with_password(cls, user: str, password: str) -> "Site":
        """The same site, asked as this user. Raises Refused when its variable is missing."""
        return cls(*_set(URL), login=(user, password))

    def get(self, path: str, **query: str | None) -> Any:
        """A GET; empty parts of the query are left out."""
        return self._call("GET", path, params={name: value for name, value in query.items() if value})

    def post(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """A POST; its key makes a repeated send harmless."""
        return self._call("POST", path, json=body, headers={"Idempotency-Key": str(uuid.uuid4())})

    def delete(self, path: str) -> None:
        """A DELETE, which answers with nothing."""
        self._call("DELETE", path)

    def _call(self, method: str, path: str, **options: Any) -> Any:
        try:
            response = self._client.request(method, path, **options)
        except httpx.HTTPError as error:
            raise Refused(f"{self.url} does not answer ({type(error).__name__}): is {URL} right?") from None
        if response.is_success:
            return response.json() if response.content else None
        raise Refused(_problem(response), response.status_code)


def _set(*names: str) -> list[str]:
    """What these variables say. Raises Refused."""
    values = {name: os.environ.get(name, "") for name in names}
    if missing := [name for name, value in values.items() if not value]:
        raise Refused(f"Set {' and '.join(missing)}.")
    return list(values.values())


def _problem(response: httpx.Response) -> str:
    """The readable part of an application/problem+json body."""
    try:
        problem = response.json()
        errors = [f"{one.get('pointer', '')}: {one.get('detail', '')}" for one in problem.get("errors", [])]
        return " ".join([problem.get("detail") or problem.get("title", ""), *errors]).strip()
    except (ValueError, AttributeError):
        return f"The site answered {response.status_code}."
