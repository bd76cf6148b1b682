"""The operator's pages through the test client: what is refused stands beside its field, and nothing is written."""

from typing import Any

import pytest
from django.contrib.messages import get_messages
from django.db import transaction

from environments import reservations
from environments.admin.rows import PriceListForm, ResourceForm
from environments.editing import drain
from environments.models import Core, Engine, Environment, FreeResource, Host, Price, ResourceDevice
from environments.setup import create_environment
from tests.environments.conftest import give_back, make_engine, take

ADD = "/admin/environments/environment/add/"
EMPTY: dict[
    str, str
] = {}  # what the page for a new environment posts when nothing is typed; the same each time


def page(environment) -> str:
    return f"/admin/environments/environment/{environment.pk}/change/"


def fields_of(response) -> dict[str, Any]:
    """What a browser would post from this page without a change."""
    forms = [response.context_data["adminform"].form]
    data = {}
    for inline in response.context_data["inline_admin_formsets"]:
        formset = inline.formset
        forms += [formset.management_form, *formset.forms]
    for form in forms:
        for name in form.fields:
            value = form[name].value()
            if value is None or value is False:
                continue
            data[form.add_prefix(name)] = [str(one) for one in value] if isinstance(value, list) else value
    return {name: getattr(value, "pk", value) for name, value in data.items()}


def row(data: dict[str, Any], slug: str) -> str:
    """The prefix of the row of this resource."""
    return next(
        name.removesuffix("slug")
        for name, value in data.items()
        if name.startswith("resources-") and value == slug
    )


def add_rows(data: dict[str, Any], prefix: str, **values) -> None:
    number = int(data[f"{prefix}-TOTAL_FORMS"])
    data[f"{prefix}-TOTAL_FORMS"] = number + 1
    data.update({f"{prefix}-{number}-{name}": value for name, value in values.items()})


def errors(response) -> dict[str, list[str]]:
    assert response.status_code == 200
    found = dict(response.context_data["adminform"].form.errors)
    for inline in response.context_data["inline_admin_formsets"]:
        for form in inline.formset.forms:
            found.update({f"{form.instance.slug if hasattr(form.instance, 'slug') else inline.formset.prefix}.{name}": texts
                          for name, texts in form.errors.items()})  # fmt: skip
    return found


def new(browser, engine, **changes) -> dict[str, Any]:
    if not EMPTY:
        EMPTY.update(fields_of(browser.get(ADD)))
    data = EMPTY | {"engine": engine.pk, "slug": "web", "cores": "0-3"}
    data[row(data, "disk") + "total"] = 1000
    add_rows(data, "price_lists", currency="credit", prices="cpu 0.02\nram 0.00001")
    return data | changes


@pytest.mark.usefixtures("unrendered")
class TestAdd:
    def test_whole_environment(self, browser, engine):
        response = browser.post(ADD, new(browser, engine))
        assert response.status_code == 302, errors(response)
        environment = Environment.objects.get(slug="web")
        assert dict(environment.resources.values_list("slug", "total")) == {
            "cpu": 4,
            "ram": 16_384,
            "disk": 1000,
        }
        assert dict(environment.resources.values_list("slug", "max"))["cpu"] == 4
        assert set(environment.cores.values_list("index", flat=True)) == {0, 1, 2, 3}
        assert [str(price) for price in Price.objects.order_by("pk")] == [
            "cpu 0.020000000000000000", "ram 0.000010000000000000",
        ]  # fmt: skip
        assert take(environment)[1].cores == (0,)

    def test_devices_free_tier_and_lowest_cores(self, browser, engine, host):
        data = new(browser, engine, cores="")
        cpu = row(data, "cpu")
        data |= {cpu + "total": 3, cpu + "free_total": 2, cpu + "free_max": 1}
        add_rows(data, "resources", slug="gpu", kind="device", sharing="shared_exclusive", min=0,
                 chosen_devices=[device.pk for device in host.devices.all()])  # fmt: skip
        add_rows(
            data, "free_tier", min_job_duration=60, max_job_duration=600, max_jobs=3, storage_expiry=604800
        )
        response = browser.post(ADD, data)
        assert response.status_code == 302, errors(response)
        environment = Environment.objects.get(slug="web")
        assert environment.resources.get(slug="gpu").total == 2
        assert environment.resources.get(slug="gpu").devices.count() == 2
        assert set(environment.cores.values_list("index", flat=True)) == {0, 1, 2}
        assert FreeResource.objects.values_list("resource__slug", "total", "max").get() == ("cpu", 2, 1)
        shown = [str(message) for message in get_messages(response.wsgi_request)]
        assert "The free tier lists no ram, disk: free jobs cannot run until it does." in shown

    @pytest.mark.parametrize(
        ("changes", "field", "words"),
        [
            ({"cores": "0-3,99"}, "cores", "rack-a has no core 99; it has 0-7."),
            ({"cores": "3-1"}, "cores", "“3-1” runs backwards; write 1-3."),
            ({"slug": "A b"}, "slug", "Use lower-case letters, digits and hyphens, at most 63 characters."),
            ({"max_job_duration": 700_000}, "storage_expiry", "604800 s is shorter than max_job_duration (700000 s)"),
            ({"min_job_duration": 7000}, "min_job_duration", "7000 s is longer than max_job_duration (3600 s)"),
            ({"max_queue_wait": 0}, "max_queue_wait", "Found 0"),
            ({"max_job_duration": "1.5"}, "max_job_duration", "Found 1.5; enter a whole number, 0 or more."),
            ({"disk.total": 0}, "disk.total", "Found 0; an environment needs disk"),
            ({"disk.total": ""}, "__all__", "There is no disk; add a resource of kind disk"),
            ({"disk.total": "", "disk.min": 5}, "disk.total", "Enter a total"),
            ({"disk.total": 100_001}, "disk.total", "100001 MiB is more than the host's 100000 MiB"),
            ({"disk.min": 9, "disk.max": 5}, "disk.min", "9 is more than the max of 5"),
            ({"disk.max": 2000}, "disk.max", "2000 is more than the total of 1000"),
            ({"disk.sharing": "shared_exclusive"}, "disk.sharing", "disk is exclusive to its environment"),
            ({"disk.free_total": 10}, "disk.free_total", "There is no free tier; add one on its tab"),
            ({"ram.kind": "disk", "ram.slug": "scratch", "ram.total": 5}, "disk.kind", "at most one cpu, one ram and one disk"),
            ({"ram.slug": "disk", "ram.total": 5}, "disk.kind", "Found “ram”, which contradicts the id disk."),
            ({"cpu.total": 9, "cores": ""}, "cores", "9 cores are asked, 8 of the 8 of rack-a are free"),
            ({"price_lists-0-prices": "tpu 1"}, "price_lists.prices", "tpu: There is no resource tpu; there are "),
            ({"price_lists-0-prices": "cpu 1\ncpu 2"}, "price_lists.prices", "cpu has two prices"),
            ({"price_lists-0-prices": "cpu -1"}, "price_lists.prices", "cpu: Found -1; enter a number, 0 or more."),
            ({"price_lists-0-prices": "cpu NaN"}, "price_lists.prices", "cpu: "),
            ({"price_lists-0-prices": "cpu Infinity"}, "price_lists.prices", "cpu: "),
            ({"price_lists-0-prices": "cpu 0." + "0" * 18 + "1"}, "price_lists.prices", "enter at most 18 decimals"),
            ({"price_lists-0-prices": "cpu free"}, "price_lists.prices", "cpu: Found “free”; enter a number"),
            ({"price_lists-TOTAL_FORMS": 0}, "__all__", "Prices: There is neither a price nor"),
        ],
        ids=str,
    )  # fmt: skip
    def test_refusals_stand_beside_their_field(self, browser, engine, changes, field, words):
        data = new(browser, engine)
        rows = {slug: row(data, slug) for slug in ("cpu", "ram", "disk")}
        for name, value in changes.items():
            slug, _, rest = name.partition(".")
            data[rows[slug] + rest if rest else name] = value
        found = errors(browser.post(ADD, data))
        assert words in " ".join(found.get(field, [])), found
        assert not Environment.objects.exists()
        assert not Core.objects.filter(environment__isnull=False).exists()

    def test_labels_are_lines(self, browser, engine):
        response = browser.post(ADD, new(browser, engine, labels="gpu a100\n zone  north hall \n\n"))
        assert response.status_code == 302, errors(response)
        environment = Environment.objects.get(slug="web")
        assert environment.labels == {"gpu": "a100", "zone": "north hall"}
        data = fields_of(browser.get(page(environment)))
        assert data["labels"] == "gpu a100\nzone north hall"
        assert browser.post(page(environment), data | {"labels": "gpu h100"}).status_code == 302
        environment.refresh_from_db()
        assert environment.labels == {"gpu": "h100"}

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("gpu", "gpu: found ''; enter a text of 1 to 255 bytes on one line."),
            ("gpu a\ngpu b", "gpu stands there twice; keep one line."),
            ("-x a", "'-x' is no name of a label"),
        ],
    )
    def test_labels_that_are_none(self, browser, engine, text, words):
        found = errors(browser.post(ADD, new(browser, engine, labels=text)))
        assert found["labels"][0].startswith(words)
        assert not Environment.objects.exists()

    def test_overlap_names_core_and_owner(self, browser, environment, engine):
        found = errors(browser.post(ADD, new(browser, engine, cores="3-5")))
        assert found["cores"] == ["Core 3 belongs to local/main; take it out there first."]
        assert Environment.objects.count() == 1

    def test_same_slug(self, browser, environment, engine):
        found = errors(browser.post(ADD, new(browser, engine, slug="main", cores="4")))
        assert found["__all__"] == ["This engine already has an environment with this slug."]


@pytest.mark.usefixtures("unrendered")
class TestChange:
    def save(self, browser, environment, changes=(), start=None):
        data = start or fields_of(browser.get(page(environment)))
        for name, value in dict(changes).items():
            slug, _, rest = name.partition(".")
            data[row(data, slug) + rest if rest else name] = value
        return browser.post(page(environment), data)

    def test_an_unchanged_form_changes_nothing_but_the_version(self, browser, environment):
        before = snapshot(environment)
        assert self.save(browser, environment).status_code == 302
        assert snapshot(environment) == before

    def test_everything_can_change(self, browser, environment):
        changes = {
            "cores": "2-5", "description": "now larger", "ram.total": 4096, "ram.max": 1024, "cpu.free_total": "",
            "price_lists-0-prices": "ram 0.5", "max_jobs": "7",
        }  # fmt: skip
        response = self.save(browser, environment, changes)
        assert response.status_code == 302, errors(response)
        environment.refresh_from_db()
        assert (environment.description, environment.max_jobs) == ("now larger", 7)
        assert set(environment.cores.values_list("index", flat=True)) == {2, 3, 4, 5}
        assert environment.resources.values_list("total", "max").get(slug="ram") == (4096, 1024)
        assert list(Price.objects.values_list("resource__slug", flat=True)) == ["ram"]
        assert not FreeResource.objects.filter(resource__slug="cpu").exists()

    def test_cpu_total_gives_and_takes_cores(self, browser, environment):
        assert self.save(browser, environment, {"cpu.total": 6, "cpu.max": 6}).status_code == 302
        assert environment.cores.count() == 6
        assert self.save(browser, environment, {"cpu.total": 2, "cpu.max": ""}).status_code == 302
        assert set(environment.cores.values_list("index", flat=True)) == {0, 1}

    def test_a_stale_form_is_refused(self, browser, environment):
        old = fields_of(browser.get(page(environment)))
        assert self.save(browser, environment, {"description": "first"}).status_code == 302
        response = self.save(browser, environment, {"description": "second"}, start=old)
        assert "Somebody else saved this" in str(errors(response)["__all__"])
        environment.refresh_from_db()
        assert environment.description == "first"

    def test_a_form_opened_before_a_button_is_stale(self, browser, environment):
        old = fields_of(browser.get(page(environment)))
        drain(environment)
        assert "Somebody else saved this" in str(
            errors(self.save(browser, environment, start=old))["__all__"]
        )
        environment.refresh_from_db()
        assert environment.state == "draining"

    def test_running_jobs_keep_what_they_hold(self, browser, environment):
        holder, _ = take(environment, cpu=2, ram=4000, gpu=1)
        before = snapshot(environment)
        gpu = [str(pk) for pk in environment.resources.get(slug="gpu").devices.values_list("pk", flat=True)]
        for changes, field in [
            ({"ram.total": 3000, "ram.max": 3000, "ram.free_total": ""}, "ram.total"),
            ({"cores": "2-5"}, "cores"),
            ({"gpu.chosen_devices": gpu[1:], "gpu.total": 1, "gpu.max": 1}, "gpu.chosen_devices"),
        ]:
            found = errors(self.save(browser, environment, changes))
            assert "drain the environment" in " ".join(found.get(field, found.get("__all__", []))), found
            assert snapshot(environment) == before
        give_back(holder)
        assert self.save(browser, environment, {"cores": "2-5"}).status_code == 302

    @pytest.mark.parametrize(("slug", "field"), [("licence", "licence.total"), ("gpu", "gpu.chosen_devices")])
    def test_a_resource_is_taken_out_once_no_job_holds_it(self, browser, environment, slug, field):
        """Old reservations refer to it, so that a row of nothing stays."""
        holder, _ = take(environment, gpu=1, licence=1)
        before = snapshot(environment)
        found = errors(self.save(browser, environment, {f"{slug}.DELETE": "on"}))
        assert "drain the environment and wait" in " ".join(found[field])
        assert snapshot(environment) == before
        give_back(holder)
        assert self.save(browser, environment, {f"{slug}.DELETE": "on"}).status_code == 302
        left = environment.resources.get(slug=slug)
        assert (left.total, left.max, left.devices.count()) == (0, 0, 0)

    def test_a_deleted_memory_is_not_made_again_with_all_of_the_hosts(self, browser, environment):
        """Also where no job ever had any of it; a new environment alone gets it unasked."""
        before = snapshot(environment)
        answer = self.save(browser, environment, {"ram.DELETE": "on"})
        assert errors(answer)["__all__"] == [
            "Resources: There is no ram; add a resource of kind ram with its total."
        ]
        assert snapshot(environment) == before

    def test_an_open_form_does_not_touch_a_job_that_started_meanwhile(self, browser, environment):
        form = fields_of(browser.get(page(environment)))
        holder, _ = take(environment, cpu=2, gpu=1)
        assert self.save(browser, environment, {"description": "x"}, start=form).status_code == 302
        assert environment.reservations.get(holder=holder).status == "held"
        assert environment.reservations.get().reserved_cores.filter(released_at=None).count() == 2

    def test_a_total_above_the_hosts_size_stays_while_it_is_left_alone(self, browser, environment):
        """An import may have written it (ADR 0007); by hand no other comes to be."""
        environment.resources.filter(slug="ram").update(total=20_000)
        assert self.save(browser, environment, {"description": "x"}).status_code == 302
        found = errors(self.save(browser, environment, {"ram.total": 20_001}))
        assert "20001 MiB is more than the host's 16384 MiB" in found["ram.total"][0]
        assert environment.resources.get(slug="ram").total == 20_000

    def test_devices_of_a_resource_must_match_its_total(self, browser, environment):
        gpu = environment.resources.get(slug="gpu").devices.first()
        found = errors(self.save(browser, environment, {"gpu.chosen_devices": [gpu.pk]}))
        assert "The total is 2, but 1 devices are chosen; make both the same." in found["gpu.total"]
        assert ResourceDevice.objects.count() == 2

    def test_deleting_is_for_environments_without_history(self, browser, environment):
        holder, _ = take(environment)
        give_back(holder)
        assert (
            browser.post(
                f"/admin/environments/environment/{environment.pk}/delete/", {"post": "yes"}
            ).status_code
            == 403
        )
        assert Environment.objects.exists()


def snapshot(environment) -> tuple:
    fresh = Environment.objects.values().get(pk=environment.pk)
    return (
        {name: value for name, value in fresh.items() if name != "version"},
        list(environment.resources.values()),
        list(environment.cores.values_list("index", flat=True)),
        list(ResourceDevice.objects.values()),
        list(FreeResource.objects.values()),
        list(Price.objects.values()),
        list(environment.reservations.values()),
    )


class TestButtons:
    def press(self, browser, model, obj, name, **headers):
        path = f"/admin/environments/{model}/{obj.pk}/{name}/"
        if name in ("retire", "disable"):
            path = f"/admin/fleet/fleetpolicy/{name}/{obj.pk}/"
        return browser.post(path, {"_form_submitted": "on"}, **headers)

    def test_nothing_happens_on_get(self, browser, environment):
        for name in ("drain", "resume"):
            assert browser.get(f"/admin/environments/environment/{environment.pk}/{name}/").status_code == 200
        retiring = browser.get(f"/admin/environments/environment/{environment.pk}/retire/", follow=True)
        assert retiring.redirect_chain == [(f"/admin/fleet/fleetpolicy/retire/{environment.pk}/", 302)]
        assert browser.get(f"/admin/environments/host/{environment.host.pk}/declare_gone/").status_code == 200
        environment.refresh_from_db()
        assert environment.state == "active"
        assert Host.objects.get().declared_gone_at is None

    def test_drain_resume_retire(self, browser, environment):
        for name, state in [("drain", "draining"), ("resume", "active"), ("retire", "retired")]:
            assert self.press(browser, "environment", environment, name).status_code == 302
            environment.refresh_from_db()
            assert environment.state == state
        assert not environment.cores.exists()
        self.press(browser, "environment", environment, "resume")
        environment.refresh_from_db()
        assert environment.state == "retired"

    def test_retire_with_jobs_is_refused_with_the_number(self, browser, environment):
        holder, _ = take(environment)
        response = self.press(browser, "environment", environment, "retire")
        assert "1 jobs still hold resources of local/main; drain the environment" in response.content.decode()
        environment.refresh_from_db()
        assert environment.state == "active"
        with transaction.atomic():
            assert reservations.release_rest(holder, never_started=True)

    def test_engine(self, browser, environment, engine):
        for name, state in [("activate", "active"), ("drain", "draining"), ("disable", "disabled")]:
            self.press(browser, "engine", engine, name)
            assert Engine.objects.get().state == state

    def test_engine_without_environment_is_not_activated(self, browser, host):
        bare = make_engine(host, "bare")
        self.press(browser, "engine", bare, "activate")
        bare.refresh_from_db()
        assert bare.state == "disabled"

    def test_declare_gone_is_kept_in_the_history(self, browser, host):
        response = self.press(browser, "host", host, "declare_gone", headers={"HX-Request": "true"})
        assert response.headers["HX-Redirect"] == f"/admin/environments/host/{host.pk}/change/"
        host.refresh_from_db()
        assert host.declared_gone_at
        history = browser.get(f"/admin/environments/host/{host.pk}/history/").content.decode()
        assert "declared gone" in history
        assert "olga" in history


def test_a_refusal_is_shown_on_the_page(browser, environment, engine):
    html = browser.post(ADD, new(browser, engine, cores="3-5")).content.decode()
    assert "Core 3 belongs to local/main; take it out there first." in html
    assert 'name="seen_version"' in browser.get(page(environment)).content.decode()


class TestMachines:
    def test_a_host_by_hand_gets_its_cores(self, browser):
        data = {"name": "rack-b", "cpu_count": 4, "memory_mib": 1000, "disk_mib": 1000, "reserve_memory_mib": 0, "reserve_disk_mib": 0}  # fmt: skip
        assert browser.post("/admin/environments/host/add/", data).status_code == 302
        assert Core.objects.filter(host__name="rack-b").count() == 4

    def test_cores_in_use_do_not_go_by_a_number_that_was_entered(self, browser, environment, host):
        path = f"/admin/environments/host/{host.pk}/change/"
        found = errors(browser.post(path, fields_of(browser.get(path)) | {"cpu_count": 2}))
        told = "It cannot become 2: cores 2-3 belong to an environment or a running job"
        assert found["cpu_count"] == [f"{told}; take them out of the environment first."]
        assert (Host.objects.get().cpu_count, host.cores.count()) == (8, 8)

    def test_a_host_that_is_overcommitted_by_an_edit_says_so(self, browser, environment, engine, host):
        create_environment(engine, "b", cpu=1, disk_mib=64, ram_mib=8192, prices={"cpu": 1})
        path = f"/admin/environments/host/{host.pk}/change/"
        answer = browser.post(path, fields_of(browser.get(path)) | {"reserve_memory_mib": 2048})
        assert answer.status_code == 302
        (told,) = [str(one) for one in get_messages(answer.wsgi_request) if one.level_tag == "warning"]
        assert told.startswith(
            "ram: all environments on rack-a together offer 16384 MiB, the host has 15360 MiB"
        )

    def test_a_reserve_may_not_take_what_is_offered(self, browser, environment, host):
        response = browser.get(f"/admin/environments/host/{host.pk}/change/")
        data = fields_of(response) | {"reserve_memory_mib": 12_000}
        found = errors(browser.post(f"/admin/environments/host/{host.pk}/change/", data))
        assert found["memory_mib"] == ["main offers 8192 MiB of ram, 5408 would be left; lower that first."]
        assert Host.objects.get().reserve_memory_mib == 1024

    @pytest.mark.parametrize(
        ("changes", "field"),
        [
            ({"endpoint": ""}, "endpoint"),
            ({"endpoint": "/var/run/docker.sock"}, "endpoint"),
            ({"endpoint": "tcp://host"}, "endpoint"),
            ({"endpoint": "tcp://host:2376", "tls_ca": "/ca.pem"}, "tls_key"),
            ({"tls_ca": "/ca.pem"}, "tls_ca"),
            ({"host": ""}, "host"),
            ({"image_retention_days": 0}, "image_retention_days"),
        ],
    )
    def test_engine_rules(self, browser, host, changes, field):
        data = {
            "name": "x", "host": host.pk, "kind": "docker", "endpoint": "unix:///run/docker.sock",
            "image_retention_days": 7, "image_cleanup_interval": 86400, "payment_claim_interval": 3600,
            "scan_policy": "off",
        }  # fmt: skip
        assert field in errors(browser.post("/admin/environments/engine/add/", data | changes))
        assert not Engine.objects.exists()
        assert browser.post("/admin/environments/engine/add/", data).status_code == 302

    def test_pages_open(self, browser, environment):
        take(environment, gpu=1)
        for name in ("host", "engine", "device", "environment", "reservation"):
            assert browser.get(f"/admin/environments/{name}/").status_code == 200
        for obj in (environment, environment.engine, environment.host, environment.host.devices.first()):
            assert (
                browser.get(f"/admin/environments/{obj._meta.model_name}/{obj.pk}/change/").status_code == 200
            )
        assert browser.get("/admin/environments/reservation/add/").status_code == 403


def test_every_field_has_help_text(browser, environment):
    addresses = [
        ADD,
        page(environment),
        *(f"/admin/environments/{name}/add/" for name in ("host", "engine", "device")),
        *(f"/admin/environments/{name}/add/" for name in ("accesslist", "walletaddress")),
    ]
    for address in addresses:
        context = browser.get(address).context_data
        forms = [context["adminform"].form]
        forms += [inline.formset.empty_form for inline in context["inline_admin_formsets"]]
        for form in forms:
            hidden = {"id", "environment", "device", "access_list", "DELETE"}
            bare = [name for name, field in form.fields.items() if not field.help_text and name not in hidden]
            assert not bare, (address, type(form).__name__, bare)
    assert ResourceForm.base_fields
    assert PriceListForm.base_fields


def test_access_rules_are_kept_with_the_environment(browser, environment):
    data = fields_of(browser.get(page(environment)))
    add_rows(data, "access_rules", tier="paid", kind="address", value="0xAB")
    assert browser.post(page(environment), data).status_code == 302
    assert str(environment.access_rules.get()) == "paid: address 0xab"
    data = fields_of(browser.get(page(environment)))
    add_rows(data, "access_rules", tier="paid", kind="address", value="0xaB")
    answer = browser.post(page(environment), data)
    assert "already has this access rule" in answer.content.decode()
    assert environment.access_rules.count() == 1


def test_the_switch_of_an_engine_makes_a_benchmark_environment_that_is_to_be_read_only(
    browser, engine, environment, settings
):
    page = f"/admin/environments/engine/{engine.pk}/change/"
    values = {"name": "local", "host": engine.host.pk, "kind": "docker", "endpoint": engine.endpoint}
    values |= {"image_retention_days": 7, "image_cleanup_interval": 86_400, "payment_claim_interval": 3_600}
    values["scan_policy"] = "off"
    answer = browser.post(
        page, {**values, "seen_version": engine.version, "enable_benchmark": "on"}, follow=True
    )
    assert "BENCHMARK_USERS or BENCHMARK_ADDRESSES" in answer.content.decode()
    assert Environment.objects.get() == environment
    settings.BENCHMARK_SECONDS, settings.BENCHMARK_CURRENCY = 120, "credit"
    settings.BENCHMARK_CORE_PRICE, settings.BENCHMARK_USERS = "0", ["monitor"]
    engine.refresh_from_db()
    browser.post(page, {**values, "seen_version": engine.version, "enable_benchmark": "on"})
    row = Environment.objects.get(benchmark=True)
    listed = browser.get("/admin/environments/environment/").content.decode()
    assert "measures its host" in listed
    shown = browser.get(f"/admin/environments/environment/{row.pk}/change/").content.decode()
    assert "not an offer" in shown
    assert 'name="_save"' not in shown
    assert browser.post(f"/admin/environments/environment/{row.pk}/change/", {"slug": "x"}).status_code == 403
    engine.refresh_from_db()
    browser.post(page, {**values, "seen_version": engine.version})
    assert Environment.objects.get(pk=row.pk).state == "retired"
