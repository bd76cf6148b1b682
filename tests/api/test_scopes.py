"""Scopes: each route names the one that a token needs; without it nothing happens, with it only what its user may."""

from collections.abc import Iterator
from importlib import import_module
from typing import Any
from uuid import UUID

import pytest
from django.apps import apps
from django.contrib.auth.models import Group, Permission
from django.contrib.contenttypes.models import ContentType
from django.core.exceptions import ValidationError
from django.db import IntegrityError, connection, transaction
from django.urls import URLPattern, URLResolver, get_resolver

from compute_site.core.authentication import BearerAuthentication, HasScope, scope_of
from compute_site.core.db import constraint_name
from compute_site.core.scopes import ANY, Scope
from jobs.models import Job, Token
from jobs.tokens import make_token
from tests.factories import client_of, make_user, submit

PUBLIC = {
    f"api/v1/{name}" for name in ("schema", "docs", "docs/redoc")
}  # the description of the API is for everybody
METHODS = ("get", "post", "put", "patch", "delete")
NOBODY = UUID(int=1)


def routes() -> Iterator[tuple[str, Any]]:
    """Each address below /api/v1/ with its view."""

    def walk(patterns: Any, path: str) -> Iterator[tuple[str, Any]]:
        for one in patterns:
            here = path + str(one.pattern)
            if isinstance(one, URLResolver):
                yield from walk(one.url_patterns, here)
            elif isinstance(one, URLPattern) and here.startswith("api/v1/"):
                yield here, one.callback.cls  # type: ignore[attr-defined]

    yield from walk(get_resolver().url_patterns, "")


def for_tokens() -> Iterator[tuple[str, Any, str, str]]:
    """Address, view, method and scope of all that a token is good for."""
    for name, view in routes():
        if BearerAuthentication in view.authentication_classes and name not in PUBLIC:
            for method in METHODS:
                if hasattr(view, method):
                    yield name, view, method, scope_of(view, method.upper())


def call(client: Any, address: str, method: str) -> Any:
    """With something for each part of the address."""
    path = address.replace("<uuid:public_id>", str(NOBODY)).replace("<path:path>", "x")
    return getattr(client, method)(f"/{path}")


def test_every_route_that_takes_tokens_names_their_scope():
    assert len(list(routes())) > 30
    assert {name for name, _ in routes()} >= PUBLIC
    for name, view, method, scope in for_tokens():
        assert HasScope in view.permission_classes, name
        assert scope in Scope.values or (scope == ANY and name == "api/v1/tokens/current"), (name, method)


def test_each_scope_opens_what_it_is_for():
    found: dict[str, set[str]] = {scope: set() for scope in (ANY, *Scope.values)}
    for name, _, method, scope in for_tokens():
        found[scope].add(f"{method} {name.removeprefix('api/v1/')}")
    assert found["submit"] == {"post jobs", "post jobs/<uuid:public_id>/cancel"}
    assert found["fleet"] == {"get workers", "post workers/<uuid:public_id>/retire"}
    assert found["admin"] >= {"post admin/import", "get admin/export", "post providers/pods"}
    assert {one.split()[0] for one in found["read"]} == {"get", "post"}
    assert {one for one in found["read"] if one.startswith("post")} == {"post jobs/quote"}


@pytest.fixture
def operator(db: None) -> Any:
    olga = make_user("olga")
    olga.is_staff = olga.is_superuser = True
    olga.save()
    return olga


def test_without_its_scope_a_token_opens_nothing_and_with_it_the_route(operator, settings):
    settings.FLEET_ENABLED = True
    for name, _, method, scope in for_tokens():
        if scope == ANY:
            continue
        others = sorted(set(Scope.values) - {scope})
        answer = call(client_of(operator, *others), name, method)
        problem = answer.json()
        assert (answer.status_code, problem["code"]) == (403, "scope_missing"), (name, method)
        needs = f"This needs a token with the scope {scope}; this one has {', '.join(others)}."
        assert problem["detail"] == needs
        assert answer["WWW-Authenticate"] == f'Bearer error="insufficient_scope", scope="{scope}"'
        assert call(client_of(operator, scope), name, method).status_code != 403, (name, method)


def test_nothing_happens_without_it(site, user, account):
    job = submit(user)
    before = list(Job.objects.values())
    reader = client_of(user, "read")
    body = {"environment": "local/main", "command": ["true"]}
    assert reader.post("/api/v1/jobs", body, headers={"Idempotency-Key": "k"}).status_code == 403
    assert reader.post(f"/api/v1/jobs/{job.public_id}/cancel").status_code == 403
    assert list(Job.objects.values()) == before
    submitter = client_of(user, "submit")
    assert submitter.get(f"/api/v1/jobs/{job.public_id}").status_code == 403
    assert submitter.head("/api/v1/jobs").status_code == 403
    assert submitter.put("/api/v1/jobs").status_code == 405
    assert submitter.options("/api/v1/jobs").status_code == 200
    assert submitter.post("/api/v1/jobs", body, headers={"Idempotency-Key": "k"}).status_code == 201


def test_the_scope_gives_no_right_that_its_user_does_not_have(user, db):
    client = client_of(user, "admin")
    for name, _, method, scope in for_tokens():
        if scope == Scope.ADMIN:
            answer = call(client, name, method)
            assert (answer.status_code, answer.json()["code"]) == (403, "permission_denied"), name


def test_a_session_needs_none(site, client, user, account, operator):
    client.force_login(user)
    assert client.get("/api/v1/jobs").status_code == 200
    body = {"environment": "local/main", "command": ["true"]}
    assert client.post("/api/v1/jobs", body, content_type="application/json").status_code == 201
    client.force_login(operator)
    assert client.get("/api/v1/admin/export").status_code == 200


@pytest.mark.parametrize("scopes", [[], ["root"], ["read", "root"]])
def test_what_is_no_list_of_scopes(user, scopes):
    with pytest.raises(ValidationError) as error:
        make_token(user, scopes)
    assert list(error.value.message_dict) == ["scopes"]
    with pytest.raises(IntegrityError) as broken, transaction.atomic():
        Token.objects.create(user=user, scopes=scopes)
    assert constraint_name(broken.value) == "token_scopes_known"
    assert not Token.objects.exists()


def test_tokens_of_before_keep_what_they_could_do(user, operator):
    """The statements of the migration, on rows as knox kept them."""
    migration = import_module("jobs.migrations.0007_tokens")
    insert = "INSERT INTO knox_authtoken (digest, token_key, user_id, created) VALUES (%s, 'cs_x', %s, '2026-01-02')"
    revoker = Group.objects.create(name="revokers")
    kind, _ = ContentType.objects.get_or_create(app_label="knox", model="authtoken")
    old, _ = Permission.objects.get_or_create(content_type=kind, codename="delete_authtoken")
    revoker.permissions.add(old)
    with connection.cursor() as cursor:
        cursor.execute(insert, ["a", user.pk])
        cursor.execute(insert, ["b", operator.pk])
        cursor.execute(migration.SCOPED)
        cursor.execute("DELETE FROM knox_authtoken")
    migration.keep_permissions(apps, None)
    assert {token.digest: token.scopes for token in Token.objects.all()} == {
        "a": ["fleet", "read", "submit"],
        "b": ["admin", "fleet", "read", "submit"],
    }
    assert {(token.created.year, token.token_key) for token in Token.objects.all()} == {(2026, "cs_x")}
    assert [one.codename for one in revoker.permissions.filter(content_type__app_label="jobs")] == [
        "delete_token"
    ]
    with connection.cursor() as cursor:
        cursor.execute(migration.UNSCOPED)
        cursor.execute("SELECT digest, user_id, token_key FROM knox_authtoken ORDER BY digest")
        assert cursor.fetchall() == [("a", user.pk, "cs_x"), ("b", operator.pk, "cs_x")]
