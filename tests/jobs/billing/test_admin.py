"""An operator sees an account's money and tops it up; nobody changes the ledger by hand."""

from decimal import Decimal

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission
from django.urls import reverse

from jobs.billing.models import Hold, LedgerTransaction
from tests.factories import make_user, submit


@pytest.fixture
def operator(client):
    root = make_user("root")
    root.is_staff = root.is_superuser = True
    root.save()
    client.force_login(root)
    return client


def test_an_accounts_money_is_shown(site, user, account, operator):
    job = submit(user, max_duration=600)
    text = operator.get(f"/admin/billing/account/{account.pk}/change/").content.decode()
    assert "for ada&#x27;s" in text
    assert job.short_id in text
    assert "90" in text
    assert "100 credit" in operator.get("/admin/billing/account/").content.decode()
    hold, posted = Hold.objects.get(), LedgerTransaction.objects.get()
    for path in (
        "hold/",
        f"hold/{hold.pk}/change/",
        "ledgertransaction/",
        f"ledgertransaction/{posted.pk}/change/",
    ):
        assert operator.get(f"/admin/billing/{path}").status_code == 200, path
    for path in ("hold/add/", "ledgertransaction/add/"):
        assert operator.get(f"/admin/billing/{path}").status_code == 403
    for path in (f"hold/{hold.pk}/delete/", f"ledgertransaction/{posted.pk}/delete/"):
        assert operator.post(f"/admin/billing/{path}", {"post": "yes"}).status_code == 403
    assert "0 credit of 10 held" in operator.get(f"/admin/jobs/job/{job.pk}/change/").content.decode()
    assert "0 credit of 10 held" in operator.get("/admin/jobs/job/").content.decode()


def test_a_top_up_is_made_once_and_recorded(account, books, operator):
    url = reverse("admin:billing_account_top_up", args=[account.pk])
    form = {"_form_submitted": "on", "amount": "2.5", "currency": "credit", "reference": "receipt 7"}
    assert operator.get(url).status_code == 200
    for _ in range(2):
        assert operator.post(url, form).status_code == 302
    assert books.now() == (Decimal("102.5"), 0)
    assert LedgerTransaction.objects.get(reference="receipt 7").posted_by == "root"
    assert "receipt 7" in LogEntry.objects.latest("pk").change_message
    operator.post(url, {**form, "amount": "3"})
    for wrong in ("0", "-1", "NaN", "1e-19", ""):
        assert operator.post(url, {**form, "amount": wrong, "reference": "x"}).status_code == 200
    assert books.now() == (Decimal("102.5"), 0)
    books.check()


def test_looking_is_not_topping_up(account, books, client):
    viewer = make_user("viewer")
    viewer.is_staff = True
    viewer.save()
    viewer.user_permissions.set(Permission.objects.filter(codename__in=["view_account", "change_account"]))
    client.force_login(viewer)
    url = reverse("admin:billing_account_top_up", args=[account.pk])
    form = {"_form_submitted": "on", "amount": "2.5", "currency": "credit", "reference": "r"}
    assert client.post(url, form).status_code == 403
    assert books.now() == (100, 0)
