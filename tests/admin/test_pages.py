"""Every page of the admin, with rows: it answers, explains its fields, and reads its rows together."""

import html
import re
from collections.abc import Iterator
from functools import partial
from typing import Any

from django.contrib import admin
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.db.models import Model
from django.forms import Form
from django.urls import reverse
from unfold.admin import ModelAdmin
from unfold.templatetags.unfold_list import results

from compute_site.navigation import PLACES
from environments.models import Reservation
from jobs.logs import append_log
from jobs.models import Attempt, Job, Token
from providers.models import Pod
from tests.admin.rows import RUN, make_rows
from tests.factories import client_of, make_user, submit, take
from workers.lifecycle import register
from workers.models import Worker

MOST = 12  # statements of a list
HIDDEN = {"id", "DELETE", "seen_version", "_form_submitted"}


def name_of(model: type[Model]) -> str:
    return f"{model._meta.app_label}_{model._meta.model_name}"


def list_page(model: type[Model]) -> str:
    return reverse(f"admin:{name_of(model)}_changelist")


def one_page(row: Model) -> str:
    return reverse(f"admin:{name_of(type(row))}_change", args=[row.pk])


def pages(browser: Any) -> Iterator[str]:
    """The list of each model, the page of one row, and the one that adds a row."""
    for model in admin.site._registry:
        yield list_page(model)
        if row := model._default_manager.first():
            yield one_page(row)
        address = reverse(f"admin:{name_of(model)}_add")
        if browser.get(address).status_code != 403:
            yield address
    yield from (one_page(job) for job in Job.objects.all()[:3])


def read_list(page: ModelAdmin, request: Any) -> int:
    """Reads every cell of a list, as its page does; the page around it costs too much here. Returns the rows."""
    return len(list(results(page.get_changelist_instance(request))))


def test_lists_read_their_rows_together(operator, rf, statements):
    request = rf.get("/")
    request.user = get_user_model().objects.get(username="root")
    make_rows(0, 2)
    few = {}
    for model, page in admin.site._registry.items():
        rows, few[model] = statements.of(partial(read_list, page, request))
        assert rows >= 2, f"no rows of {model.__name__}"
    make_rows(2, 4)
    for model, count in few.items():
        rows, more = statements.of(partial(read_list, admin.site._registry[model], request))
        assert rows >= 6, model.__name__
        assert more == count <= MOST, f"{model.__name__}: {count} statements for 2 rows, {more} for 6"


def test_every_page_answers_and_every_field_is_explained(operator):
    make_rows(0, 1)
    for address in pages(operator):
        answer = operator.get(address)
        assert answer.status_code == 200, address
        if address.startswith("/admin/fleet/"):
            continue
        text = without_tags(answer)
        for raw in ("{'", '{"', "('", "a.m.", "p.m.", ".000000"):
            assert raw not in text, (address, raw)
        context = answer.context_data
        if "adminform" not in context:
            continue
        forms = [context["adminform"].form]
        forms += [inline.formset.empty_form for inline in context["inline_admin_formsets"]]
        for form in forms:
            assert not bare(form), (address, type(form).__name__, bare(form))


def without_tags(answer: Any) -> str:
    """What a person reads of a page."""
    text = answer.content.decode()
    text = re.sub(r"(?s)<(script|style|textarea|option)\b.*?</\1>", "", text[text.index("<body") :])
    return html.unescape(re.sub(r"(?s)<[a-z/!](\"[^\"]*\"|'[^']*'|[^'\">])*>", "", text))


def test_every_dialog_explains_its_fields(operator):
    make_rows(0, 1)
    for model, page in admin.site._registry.items():
        row: Any = model._default_manager.first()
        for name in getattr(page, "actions_detail", ()):
            if not hasattr(getattr(page, name), "dialog"):
                continue  # a link, not a question
            address = reverse(f"admin:{name_of(model)}_{name}", args=[row.pk])
            answer = operator.get(address)
            assert answer.status_code == 200, address
            assert not bare(answer.context["form"]), address


def bare(form: Form) -> list[str]:
    """Fields without help text."""
    parent = getattr(form, "instance", None)
    links = {field.name for field in parent._meta.fields if field.is_relation} if parent else set()
    return [
        name
        for name, field in form.fields.items()
        if not field.help_text
        and name not in HIDDEN
        and not (name in links and type(field).__name__ == "InlineForeignKeyField")
    ]


def test_the_sidebar_has_every_page_once(operator):
    links = re.findall(r'href="(/admin/[a-z]+/[a-z]+/)"', operator.get("/admin/").content.decode())
    for model in admin.site._registry:
        assert list_page(model) in links
    known = {f"{model._meta.app_label}.{model._meta.model_name}" for model in admin.site._registry}
    assert {name for places in PLACES.values() for name in places} <= known


def test_a_held_core_leads_to_its_job(site, user, account, operator):
    attempt = take(submit(user), *RUN)
    link = reverse("admin:jobs_job_of_attempt", args=[attempt.public_id])
    for row in (site.host, site.environment, Reservation.objects.get()):
        assert link in operator.get(one_page(row)).content.decode()
    assert operator.get(link).url == one_page(attempt.job)
    nobody = reverse("admin:jobs_job_of_attempt", args=[site.host.public_id])
    assert operator.get(nobody).status_code == 404


def test_the_log_of_a_running_job_is_fetched_again(site, user, account, operator, client):
    attempt = take(submit(user), *RUN)
    append_log(attempt, "stdout", 0, b"<b>one</b>")
    address = reverse("admin:jobs_job_log", args=[attempt.job_id, "stdout"])
    assert f'hx-get="{address}"' in operator.get(one_page(attempt.job)).content.decode()
    append_log(attempt, "stdout", 10, b" two")
    assert "&lt;b&gt;one&lt;/b&gt; two" in operator.get(address).content.decode()
    assert operator.get(address.replace("stdout", "other")).status_code == 404
    stranger = make_user("staff without permissions")
    stranger.is_staff = True
    stranger.save()
    client.force_login(stranger)
    assert client.get(address).status_code == 404


def test_a_token_is_revoked(user, operator):
    client = client_of(user)
    token = Token.objects.get()
    address = reverse("admin:jobs_token_revoke_token", args=[token.pk])
    assert operator.get(address).status_code == 200
    assert "admin, fleet, read, submit" in operator.get(list_page(Token)).content.decode()
    assert operator.post(one_page(token), {"name": "x", "scopes": "admin"}).status_code == 403
    assert client.get("/api/v1/accounts").status_code == 200
    assert operator.post(address, {"_form_submitted": "on"}).status_code == 302
    assert client.get("/api/v1/accounts").status_code == 401
    client_of(user)
    token = Token.objects.get()
    operator.post(list_page(type(token)), {"action": "revoke", "_selected_action": [token.pk]})
    assert not Token.objects.exists()


def test_a_worker_is_drained_and_resumed_by_its_engine(site, operator):
    worker = register(site.engine)
    for action, state in (("drain", "draining"), ("resume", "active")):
        address = reverse(f"admin:workers_worker_{action}", args=[worker.pk])
        operator.get(address)
        site.engine.refresh_from_db()
        assert site.engine.state != state
        operator.post(address, {"_form_submitted": "on"})
        site.engine.refresh_from_db()
        assert site.engine.state == state
    Worker.objects.update(status="stopped", ended_at=worker.heartbeat_at)
    operator.post(reverse("admin:workers_worker_drain", args=[worker.pk]), {"_form_submitted": "on"})
    site.engine.refresh_from_db()
    assert site.engine.state == "active"


def test_looking_at_a_worker_is_not_draining_it(site, client):
    worker = register(site.engine)
    viewer = make_user("viewer")
    viewer.is_staff = True
    viewer.save()
    viewer.user_permissions.add(Permission.objects.get(codename="view_worker"))
    client.force_login(viewer)
    assert client.get(one_page(worker)).status_code == 200
    address = reverse("admin:workers_worker_drain", args=[worker.pk])
    assert client.post(address, {"_form_submitted": "on"}).status_code == 403
    site.engine.refresh_from_db()
    assert site.engine.state == "active"


def test_a_pod_says_what_it_costs_before_it_is_terminated(operator):
    make_rows(0, 1)
    pod = Pod.objects.get()
    text = operator.get(reverse("admin:providers_pod_terminate_pod", args=[pod.pk])).content.decode()
    assert "cost at most 3.01 USD so far" in text
    assert "each further hour costs at most 3 USD" in text
    assert Attempt.objects.filter(status="running").count() == 1
    pod.refresh_from_db()
    assert pod.status == "running"


def test_the_address_alone_leads_to_the_admin_and_nothing_leads_back(client, db):
    assert client.get("/").headers["Location"] == reverse("admin:index")
    assert b"Return to site" not in client.get(reverse("admin:login")).content
