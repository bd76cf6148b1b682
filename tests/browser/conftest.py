"""One Chromium for all tests of the pages, and an administrator who is logged in."""

import os
from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings as site_settings
from django.test import Client
from playwright.sync_api import Browser, Page, sync_playwright

from tests.factories import make_user

ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
NONE = "CHROMIUM is not set: the pages are not tested in a browser (./run test sets it)"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Skips without CHROMIUM, and fails where CI is set. Ends with its file: its loop is in the way of asyncio."""
    path = os.environ.get("CHROMIUM")
    if not path:
        if os.environ.get("CI"):
            pytest.fail(NONE)
        pytest.skip(NONE)
    # Playwright's loop runs in this thread, which Django takes for asynchronous code; nothing here is.
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield browser
        browser.close()
    del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]


@pytest.fixture
def operator(transactional_db: None) -> Any:
    """An administrator, olga."""
    olga = make_user("olga")
    olga.is_staff = olga.is_superuser = True
    olga.save()
    return olga


@pytest.fixture
def page(chromium: Browser, operator: Any, live_server: Any) -> Iterator[Page]:
    """A page of the site, logged in; it fails a test whose pages threw an error in a script."""
    client = Client()
    client.force_login(operator)
    context = chromium.new_context(base_url=live_server.url, viewport={"width": 1280, "height": 900})
    name = site_settings.SESSION_COOKIE_NAME
    context.add_cookies([{"name": name, "value": client.cookies[name].value, "url": live_server.url}])
    context.set_default_timeout(10_000)
    found = context.new_page()
    thrown: list[str] = []
    found.on("pageerror", lambda error: thrown.append(str(error)))
    yield found
    context.close()
    assert not thrown
