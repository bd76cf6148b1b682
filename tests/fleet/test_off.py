"""The fleet is off by default: then the site is the same as one that knows no fleet."""

import json
import re

import pytest
from django.apps import apps
from django.db import models, transaction

from compute_site.core.models import new_public_id
from jobs import retention
from jobs.outcome import Outcome, StoredFile
from jobs.results import build_manifest
from jobs.settlement import settle
from tests.factories import take
from workers import lifecycle, reclaim, repair
from workers.fleet.tasks import fleet_pass

pytestmark = pytest.mark.django_db

OURS = ("jobs", "billing", "environments", "workers")
VARIES = re.compile(
    r"[0-9a-f]{8}-[0-9a-f-]{27}|[0-9a-f]{32}|\d{4}-\d\d-\d\d[T ][\d:.]+(\+00:00|Z)?" r'|"id": \d+'
)


class Undo(Exception):
    """Takes back what a story wrote."""


def told(value):
    """As text, without what differs each time: ids and times."""
    return VARIES.sub("*", json.dumps(value, default=str, sort_keys=True))


def story(api):
    """Ordinary jobs through the ordinary doors; every answer."""
    answers = []

    def ask(method, path, body=None):
        answer = getattr(api, method)(f"/api/v1{path}", body, format="json")
        answers.append((path.rsplit("/", 1)[-1][:6], answer.status_code, answer.json()))
        return answer.json()

    def job(**fields):
        return ask("post", "/jobs", {"environment": "local/main", "command": ["true"], **fields}).get("id")

    first, second = job(outputs=["answer.txt"]), job(resources={"cpu": 2})
    job(environment="local/none")
    for path in (f"/jobs/{first}", "/jobs", "/environments", "/accounts"):
        ask("get", path)
    ask("post", f"/jobs/{second}/cancel")
    attempt = take(apps.get_model("jobs.Job").objects.get(public_id=first), *STATES)
    found, digest = build_manifest(0, [StoredFile("answer.txt", 2, "a" * 64)])
    outcome = Outcome("succeeded", exit_code=0, run_seconds=2.0, manifest=found, manifest_sha256=digest)
    assert settle(attempt, attempt.lease, outcome)
    for action in (repair.repair_knocks, lifecycle.mark_lost, reclaim.reclaim_gone_hosts, fleet_pass):
        action()
    retention.expire_queued()
    ask("get", f"/jobs/{first}")
    ask("get", f"/jobs/{first}/events")
    return answers


STATES = ("created", "starting", "running", "collecting")


def tables(*labels):
    """The rows of these apps by table, without keys."""
    return {
        model._meta.label: [
            {
                field.attname: getattr(row, field.attname)
                for field in model._meta.concrete_fields
                if not isinstance(field, models.AutoField | models.ForeignKey)
            }
            for row in model._default_manager.order_by("pk")
        ]
        for label in labels
        for model in apps.get_app_config(label).get_models()
    }


def seen(api, settings, *, enabled):
    """What the story answers and leaves behind; it is taken back afterwards."""
    settings.FLEET_ENABLED = enabled
    try:
        with transaction.atomic():
            answers = story(api)
            left, fleet = tables(*OURS), tables("fleet")
            raise Undo
    except Undo:
        return told(answers), {label: told(rows) for label, rows in left.items()}, fleet


def test_the_same_jobs_have_identical_rows_and_answers(site, client_api, settings):
    on_answers, on_rows, _ = seen(client_api, settings, enabled=True)
    answers, rows, fleet = seen(client_api, settings, enabled=False)
    assert answers == on_answers
    assert rows == on_rows
    assert fleet
    assert not any(fleet.values())  # no table of the fleet has a row
    some = new_public_id()
    for path in ("", "/register", "/active", "/units", f"/{some}/heartbeat", f"/{some}/retire"):
        assert client_api.get(f"/api/v1/workers{path}").status_code == 404
        assert client_api.post(f"/api/v1/workers{path}").status_code == 404
    for path in ("pull", f"{some}/progress", f"{some}/result"):
        assert client_api.post(f"/api/v1/workers/assignments/{path}").status_code == 404
