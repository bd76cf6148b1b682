"""The fleet in the admin: what an operator does there."""

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.urls import reverse

from workers.fleet.client import RefusedRequest
from workers.fleet.models import Binding

pytestmark = pytest.mark.django_db


@pytest.fixture
def operator(client):
    client.force_login(get_user_model().objects.create_superuser("root"))
    return client


def test_a_binding_is_revoked_once_and_its_worker_is_out(fleet, operator):
    remote = fleet.worker()
    binding = Binding.objects.get()
    address = reverse("admin:fleet_binding_revoke", args=[binding.pk])
    page = operator.get(reverse("admin:fleet_binding_change", args=[binding.pk])).content.decode()
    assert address in page
    assert remote.row.short_id in page
    operator.get(address)
    binding.refresh_from_db()
    assert binding.revoked_at is None  # a question so far
    assert operator.post(address, {"_form_submitted": "on"}).status_code == 302
    binding.refresh_from_db()
    revoked = binding.revoked_at
    assert revoked is not None
    entry = LogEntry.objects.get()
    assert (entry.user.username, entry.change_message, entry.object_id) == (
        "root",
        "revoked",
        str(binding.pk),
    )
    for call in (remote.beat, remote.pull):
        with pytest.raises(RefusedRequest, match="binding_ended"):
            call()
    with pytest.raises(RefusedRequest, match="binding_revoked"):
        remote.register()
    operator.post(address, {"_form_submitted": "on"})
    binding.refresh_from_db()
    assert (binding.revoked_at, LogEntry.objects.count()) == (revoked, 1)
    remote.register(serial="2")  # another one lets it in again
    assert remote.beat()["status"] == "active"


def test_looking_at_a_binding_is_not_revoking_it(fleet, client):
    fleet.worker()
    binding = Binding.objects.get()
    viewer = get_user_model().objects.create_user("viewer", is_staff=True)
    viewer.user_permissions.add(Permission.objects.get(codename="view_binding"))
    client.force_login(viewer)
    address = reverse("admin:fleet_binding_revoke", args=[binding.pk])
    assert client.get(reverse("admin:fleet_binding_change", args=[binding.pk])).status_code == 200
    assert client.post(address, {"_form_submitted": "on"}).status_code == 403
    binding.refresh_from_db()
    assert binding.revoked_at is None
