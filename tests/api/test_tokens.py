"""Tokens: made once, hashed, limited in time, given up."""

import base64
from io import StringIO

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.utils import timezone

from compute_site.core.scopes import Scope
from jobs.billing.models import Account
from jobs.models import Token
from jobs.tokens import make_token
from tests.factories import make_user


def basic(name: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()}


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def make(client, body=None, headers=None):
    return client.post("/api/v1/tokens", body or {}, content_type="application/json", headers=headers)


def test_a_token_is_made_used_and_given_up(user, client):
    response = make(client, headers=basic("ada", "secret"))
    token = response.json()["token"]
    assert (response.status_code, token[:3], response.json()["expiry"]) == (201, "cs_", None)
    assert not Token.objects.filter(digest__contains=token[3:20]).exists()
    assert client.get("/api/v1/jobs", headers=bearer(token)).status_code == 200
    assert client.delete("/api/v1/tokens/current", headers=bearer(token)).status_code == 204
    assert client.get("/api/v1/jobs", headers=bearer(token)).status_code == 401


def test_a_token_has_a_name_and_the_scopes_it_was_made_with(user, client):
    asked = {"name": "nightly", "scopes": ["submit", "read", "submit"], "expires_in": 60}
    answer = make(client, asked, basic("ada", "secret")).json()
    row = Token.objects.get()
    assert (answer["name"], answer["scopes"]) == (row.name, row.scopes) == ("nightly", ["read", "submit"])
    assert make(client, headers=basic("ada", "secret")).json()["scopes"] == ["read", "submit"]


def test_no_token_makes_another(user, client):
    _, token = make_token(user, Scope.values)
    assert make(client, {"scopes": ["admin"]}, bearer(token)).status_code == 401
    assert Token.objects.count() == 1


def test_a_token_ends_at_its_time(user, client):
    token = make(client, {"expires_in": 60}, basic("ada", "secret")).json()["token"]
    assert client.get("/api/v1/jobs", headers=bearer(token)).status_code == 200
    Token.objects.update(expiry=timezone.now())
    assert client.get("/api/v1/jobs", headers=bearer(token)).status_code == 401


@pytest.mark.parametrize(
    "body",
    [
        {"expires_in": 1}, {"expires_in": "60"}, {"expires_in": True}, {"expires_in": 1.5}, {"more": 1}, [],
        {"scopes": []}, {"scopes": ["root"]}, {"scopes": "read"}, {"scopes": [["read"]]}, {"scopes": None},
        {"name": "x" * 101}, {"name": [1]},
    ],
)  # fmt: skip
def test_what_is_no_request_for_a_token(user, client, body):
    response = client.post(
        "/api/v1/tokens", body, content_type="application/json", headers=basic("ada", "secret")
    )
    assert response.status_code == 400 if body != [] else 201
    assert Token.objects.count() == (body == [])


@pytest.mark.parametrize(
    ("name", "password"), [("ada", "wrong"), ("nobody", "secret"), ("a\0", "x"), ("é", "\0")]
)
def test_wrong_names_and_passwords(user, client, name, password):
    assert make(client, headers=basic(name, password)).status_code == 401
    assert not Token.objects.exists()


def test_a_session_makes_one_too_but_not_across_sites(user, client):
    client.force_login(user)
    assert make(client).status_code == 201
    client.handler.enforce_csrf_checks = True
    assert make(client).status_code == 403


def test_somebody_who_was_switched_off_has_no_token(user, client):
    token = make(client, headers=basic("ada", "secret")).json()["token"]
    user.is_active = False
    user.save()
    assert client.get("/api/v1/jobs", headers=bearer(token)).status_code == 401
    assert make(client, headers=basic("ada", "secret")).status_code == 401


def test_the_command_prints_a_token_once(db, client):
    out = StringIO()
    with pytest.raises(CommandError):
        call_command("create_token", "eve")
    call_command("create_token", "eve", "--account", "eve's", "--create", stdout=out)
    call_command("create_token", "eve", "--account", "eve's", stdout=out)
    first, second = out.getvalue().split()
    assert first != second
    assert Token.objects.values_list("scopes", "expiry").distinct().get() == (["read", "submit"], None)
    assert client.get("/api/v1/jobs", headers=bearer(first)).status_code == 200
    assert Account.objects.get().memberships.count() == 1
    assert make_user("other").pk


def test_the_command_names_scopes_and_an_end(user):
    call_command("create_token", "ada", scope=["fleet", "admin"], name="nightly", days=2, stdout=StringIO())
    row = Token.objects.get()
    assert (row.scopes, row.name, (row.expiry - row.created).days) == (["admin", "fleet"], "nightly", 1)
    for wrong in ({"days": 0}, {"days": 3661}, {"scope": ["root"]}, {"name": "x" * 101}):
        with pytest.raises(CommandError):
            call_command("create_token", "eve", create=True, **wrong)
    assert Token.objects.count() == 1
    assert not User.objects.filter(username="eve").exists()


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["a b"], "Enter a valid username"),
        (["x" * 151], "at most 150 characters"),
        (["eve", "--account", "x" * 151], "at most 150 characters"),
        (["eve", "--name", "x" * 101], "at most 100 characters"),
    ],
)
def test_the_command_says_what_is_no_name_and_writes_nothing(arguments, says):
    with pytest.raises(CommandError, match=says):
        call_command("create_token", *arguments, "--create")
    assert not User.objects.exists()
    assert not Account.objects.exists()
    assert not Token.objects.exists()
