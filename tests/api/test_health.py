"""Alive, ready, and what is told when the database is down: on a real closed port."""

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest
from django.conf import settings as django_settings
from django.core.management import call_command
from django.db import OperationalError
from django.test import RequestFactory

from compute_site import urls
from compute_site.core.middleware import DatabaseDownMiddleware


def test_alive_and_ready(site, client):
    assert client.get("/healthz").json() == {"status": "ok"}
    response = client.get("/readyz")
    assert (response.status_code, response.json()["engines"]) == (200, {"local": "ok"})
    site.engine.worker_seen_at = None
    site.engine.save()
    response = client.get("/readyz")
    assert (response.status_code, response.json()["engines"]) == (
        503,
        {"local": "no live worker for engine local"},
    )


def test_a_view_or_a_middleware_that_loses_the_database_says_so():
    request = RequestFactory().get("/admin/")
    middleware = DatabaseDownMiddleware(lambda request: None)  # type: ignore[arg-type,return-value]
    response = middleware.process_exception(request, OperationalError("gone"))
    assert response is not None
    assert (response.status_code, response["Retry-After"]) == (503, "5")
    assert middleware.process_exception(request, ValueError()) is None
    try:
        raise OperationalError("gone")
    except OperationalError:
        assert urls.fault(request).status_code == 503
    assert urls.fault(RequestFactory().get("/api/v1/x")).status_code == 500


def ask(url: str, **request) -> tuple[int, dict, dict]:
    try:
        answer = urllib.request.urlopen(urllib.request.Request(url, **request), timeout=30)
    except urllib.error.HTTPError as error:
        answer = error
    return answer.status, dict(answer.headers), json.loads(answer.read())


@pytest.fixture
def address_without_database(tmp_path):
    """A server process whose database is a port where nobody listens."""
    environment = {
        **os.environ,
        "DATABASE_URL": "postgres://nobody@127.0.0.1:1/nothing",
        "DATABASE_POOL_TIMEOUT": "1",
        "DJANGO_SETTINGS_MODULE": "compute_site.settings",
    }
    program = (
        "from wsgiref.simple_server import make_server; from compute_site.wsgi import application;"
        "server = make_server('127.0.0.1', 0, application); print(server.server_port, flush=True); server.serve_forever()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        env=environment,
        cwd=django_settings.BASE_DIR,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    process.kill()
    process.wait()


def test_without_a_database_nothing_is_admitted_and_the_client_may_come_again(address_without_database):
    headers = {"Authorization": "Bearer cs_" + "0" * 64, "Content-Type": "application/json"}
    began = time.monotonic()
    status, answered, body = ask(
        f"{address_without_database}/api/v1/jobs", data=b'{"environment": "local/main"}', headers=headers
    )
    assert (status, body["code"], answered["Retry-After"]) == (503, "database_unavailable", "5")
    assert answered["Content-Type"] == "application/problem+json"
    assert time.monotonic() - began < 5
    status, _, _ = ask(
        f"{address_without_database}/admin/", headers={"Cookie": "sessionid=abcdefghijklmnopqrstuvwx"}
    )
    assert status == 503
    assert ask(f"{address_without_database}/healthz")[0] == 200
    status, _, body = ask(f"{address_without_database}/readyz")
    assert (status, body["database"]) == (503, "does not answer")


def test_the_schema_is_committed_as_it_is(tmp_path):
    call_command("spectacular", "--file", str(tmp_path / "now.yaml"), "--validate", "--fail-on-warn")
    committed = django_settings.BASE_DIR / "docs" / "openapi.yaml"
    assert (tmp_path / "now.yaml").read_text() == committed.read_text()


def test_the_schema_and_its_pages_need_no_network(client_api):
    schema = client_api.get("/api/v1/schema", headers={"Accept": "application/json"})
    assert schema.status_code == 200
    for path in ("/api/v1/docs", "/api/v1/docs/redoc"):
        page = client_api.get(path, headers={"Accept": "text/html"})
        assert page.status_code == 200
        assert b"https://" not in page.content
