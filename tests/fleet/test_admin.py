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


def test_a_worker_s_machine_is_shown_as_it_tells(fleet, operator):
    remote = fleet.worker()
    device = {"uuid": "GPU-a", "model": "<b>H200", "memory_mib": 143_771, "driver_version": "570.1"}
    told = {"version": "7", "devices": [device], "health": {"GPU-b": "A10 has vanished"}}
    remote.client.call("POST", f"/workers/{remote.id}/heartbeat", told)
    page = operator.get(reverse("admin:fleet_remoteworker_change", args=[remote.row.pk])).content.decode()
    for text in ("&lt;b&gt;H200", "140 GiB", "570.1", "GPU-a", "GPU-b", "A10 has vanished"):
        assert text in page
    before = (remote.row.devices, remote.row.health)
    for wrong in ({"devices": [{"uuid": ""}]}, {"devices": [device] * 65}, {"health": {"a\0": "b"}}):
        with pytest.raises(RefusedRequest, match="400"):
            remote.client.call("POST", f"/workers/{remote.id}/heartbeat", wrong)
    assert (remote.row.devices, remote.row.health) == before


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
