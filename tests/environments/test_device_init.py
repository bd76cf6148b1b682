"""The init of a device: a closed form, the same words at every door, known to operators alone, kept while jobs run."""

import json
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.test import Client

from compute_site.core.db import constraint_name
from compute_site.core.models import save_clean
from environments.device_init import init_of, needs_of, write_init
from environments.history import Author
from environments.importing import as_json, export_engine
from environments.models import Device, DeviceInit, Edit, Environment
from environments.reservations import lock_host
from environments.reverting import revert
from tests.environments.conftest import give_back, make_engine, make_host, take
from tests.environments.doors_files import IMPORT
from tests.environments.importing.conftest import everything, nested, offer, refused, run
from tests.environments.test_admin import errors, fields_of
from tests.factories import client_of

KFD, RENDER = "/dev/kfd", "/dev/dri/renderD128"
HELD = "is held by a running job, whose container has its init as it is; drain the environment"


@pytest.fixture
def device(host) -> Device:
    """A device of AMD with all that it needs."""
    made = Device.objects.create(host=host, uuid="amd-0", platform="amd", model="MI300X")
    for kind, name, value in [("path", KFD, ""), ("path", RENDER, "rw"), ("group", "44", "")]:
        save_clean(DeviceInit(device=made, kind=kind, name=name, value=value))
    return made


@pytest.fixture
def second(host) -> Device:
    made = Device.objects.create(host=host, uuid="amd-1", platform="amd", model="MI300X")
    save_clean(DeviceInit(device=made, name="/dev/dri/renderD129", value="r"))
    return made


def amd(*devices: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"id": "gpu", "type": "gpu", "platform": "amd", "init": {"devices": list(devices)}, **more}


def with_gpu(*devices: dict[str, Any], **init: Any) -> list[dict[str, Any]]:
    one = offer()
    one["resources"].append(amd(*devices) | ({"init": init} if init else {}))
    return nested(one)


def by_row(device: Device, kind: str, name: str, value: str) -> str:
    with pytest.raises(ValidationError) as error:
        save_clean(DeviceInit(device=device, kind=kind, name=name, value=value))
    (text,) = error.value.messages
    return str(text)


def by_page(browser: Any, device: Device, kind: str, name: str, value: str) -> str:
    path = f"/admin/environments/device/{device.pk}/change/"
    data = fields_of(browser.get(path))
    number = data["init-TOTAL_FORMS"]
    data |= {f"init-{number}-{key}": text for key, text in (("kind", kind), ("name", name), ("value", value))}
    found = errors(browser.post(path, data | {"init-TOTAL_FORMS": number + 1}))
    ((_, (text,)),) = found.items()
    return str(text)


def in_file(device: Device, kind: str, name: str, value: str) -> list[dict[str, Any]]:
    entry: dict[str, Any] = {"id": device.uuid}
    if kind == "path":
        entry["Devices"] = [f"{name}:{value}" if value else name]
    elif kind == "group":
        entry["GroupAdd"] = [name]
    else:
        entry["Env"] = {name: value}
    return with_gpu(entry)


def by_file(configuration: Any) -> str:
    with pytest.raises(ValidationError) as error:
        run(configuration)
    found = [(path, text) for path, texts in error.value.message_dict.items() for text in texts]
    ((path, text),) = [one for one in found if "enter one" not in one[1]]
    entry = "[0].environments[0].resources[3].init" + (
        "" if "of amd-0 on this host" in text else ".devices[0]."
    )
    assert path.startswith(entry), path
    return str(text)


def refused_at_init(configuration: Any) -> str:
    with pytest.raises(ValidationError) as error:
        run(configuration)
    (text,) = error.value.message_dict["[0].environments[0].resources[3].init"]
    return str(text)


def by_rest(client: Any, configuration: Any) -> str:
    answer = client.post(IMPORT, {"configuration": configuration}, format="json")
    assert answer.status_code == 400
    return str(next(each["detail"] for each in answer.json()["errors"] if "enter one" not in each["detail"]))


WRONG = [
    ("path", "/etc/passwd", "", "write one device file below /dev"),
    ("path", "/dev/dri/../sda", "", "write one device file below /dev"),
    ("path", "/dev//kfd", "", "write one device file below /dev"),
    ("path", "/dev", "", "write one device file below /dev"),
    ("path", "/dev/dri/", "", "write one device file below /dev"),
    ("path", "/dev/kfd\n", "", "write one device file below /dev"),
    ("path", "dev/kfd", "", "write one device file below /dev"),
    ("path", "/dev/mem", "", "the machine's or another driver's"),
    ("path", "/dev/sda1", "", "the machine's or another driver's"),
    ("path", "/dev/nvme0n1", "r", "the machine's or another driver's"),
    ("path", "/dev/mapper/root", "", "the machine's or another driver's"),
    ("path", "/dev/nvidia0", "", "the machine's or another driver's"),
    ("path", "/dev/null", "", "the machine's or another driver's"),
    ("path", "/dev/ng0n1", "", "the machine's or another driver's"),
    ("path", "/dev/zfs", "", "the machine's or another driver's"),
    ("path", "/dev/root", "", "the machine's or another driver's"),
    ("path", "/dev/vg0/root", "", "in a folder, device files are taken from dri, dri/by-path, accel"),
    ("path", "/dev/dri/", "", "write one device file below /dev"),
    ("path", "/dev/dri", "", "a folder; name each device file"),
    ("path", "/dev/kfd", "rwm", "Found “rwm”; the permissions of a device file are rw, r or w."),
    ("group", "0", "", "1 to 65535 (getent group video render); names are the image's to say"),
    ("group", "video", "", "names are the image's to say, and 0 is root's."),
    ("group", "044", "", "1 to 65535"),
    ("group", "65536", "", "1 to 65535"),
    ("group", "30005", "", "the numbers from 30000 to 30999 are those of jobs."),
    ("variable", "LD_PRELOAD", "/x.so", "only variables of accelerators are passed"),
    ("variable", "PATH", "/x", "only variables of accelerators are passed"),
    ("variable", "HSA_X", "a\nb", "write 1 to 255 characters of ASCII on one line."),
    ("path", "/dev/dri/renderD128", "", "is of amd-0 on this host; a device file belongs to one device."),
]  # fmt: skip


@pytest.mark.usefixtures("unrendered")
@pytest.mark.parametrize("of_kind", ["path", "group", "variable"])
def test_every_door_says_the_same(device, second, engine, browser, settings, of_kind):
    settings.UID_RANGE = (30_000, 1000)
    before = everything()
    client = client_of(get_user_model().objects.get())
    for kind, name, value, says in WRONG:
        if kind == of_kind:
            said = {"row": by_row(second, kind, name, value)}
            if "\n" not in name + value:  # a form's field is one line
                said["page"] = by_page(browser, second, kind, name, value)
            configuration = in_file(second, kind, name, value)
            said |= {"file": by_file(configuration), "rest": by_rest(client, configuration)}
            assert says in said["row"]
            assert said == dict.fromkeys(said, said["row"])
    assert everything() == before


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        *[
            ("path", "/etc/passwd", "r"),
            ("path", "/dev/a/../b", "r"),
            ("path", KFD, "rwm"),
            ("path", KFD, ""),
        ],
        *[("group", "0", ""), ("group", "video", ""), ("group", "44", "x"), ("variable", "LD_PRELOAD", "x")],
        *[("variable", "HSA_X", ""), ("bind", "/dev/kfd", "rw"), ("path", "/dev/kfd\n", "rw")],
    ],
)
def test_the_database_says_so_too(second, kind, name, value):
    with pytest.raises(IntegrityError) as error, transaction.atomic():
        DeviceInit.objects.create(device=second, kind=kind, name=name, value=value)
    assert constraint_name(error.value) in ("device_init_shape", "device_init_kind_known")


@pytest.mark.parametrize(
    "name",
    [
        *["/dev/kfd", "/dev/dxg", "/dev/dri/card0", "/dev/dri/by-path/pci-0000:03:00.0-render"],
        *[
            "/dev/accel/accel0",
            "/dev/tenstorrent/0",
            "/dev/davinci0",
            "/dev/neuron0",
            "/dev/hl0",
            "/dev/apex_0",
        ],
        *["/dev/infiniband/uverbs0", "/dev/dma_heap/system", "/dev/video0"],
    ],
)
def test_files_of_accelerators(second, name):
    save_clean(DeviceInit(device=second, kind="path", name=name))


def test_a_device_of_nvidia_keeps_its_drivers_request(device, host):
    nvidia = Device.objects.get(uuid="GPU-rack-a-0")
    assert "comes with its driver's own request" in by_row(nvidia, "group", "44", "")
    device.platform = "NVIDIA "
    with pytest.raises(ValidationError) as error:
        device.full_clean()
    assert "take its init out first" in error.value.message_dict["platform"][0]


def test_one_value_of_a_variable_on_a_host(device, second):
    save_clean(DeviceInit(device=device, kind="variable", name="HSA_X", value="1"))
    assert by_row(second, "variable", "HSA_X", "2").startswith("It is “1” for amd-0; one job may hold both")
    save_clean(DeviceInit(device=second, kind="variable", name="HSA_X", value="1"))


def test_what_a_job_gets_is_of_its_devices_alone(device, second):
    save_clean(DeviceInit(device=second, kind="path", name=KFD, value="r"))
    save_clean(DeviceInit(device=device, kind="variable", name="HSA_X", value="1"))
    one, other = needs_of(["amd-0", "GPU-rack-a-0"]), needs_of(["amd-1"])
    assert (one.by_driver, one.groups, one.variables) == (("GPU-rack-a-0",), (44,), {"HSA_X": "1"})
    assert one.files == ((RENDER, "rw"), (KFD, "rw"))
    assert (other.by_driver, other.groups, other.variables) == ((), (), {})
    assert other.files == (("/dev/dri/renderD129", "r"), (KFD, "r"))
    assert needs_of(["amd-0", "amd-1"]).files == ((RENDER, "rw"), ("/dev/dri/renderD129", "r"), (KFD, "rw"))
    assert needs_of([]) == needs_of(["nobody's"])


def test_an_offer_without_a_device_file_is_refused(device, engine):
    DeviceInit.objects.filter(device=device, kind="path").delete()
    path = "[0].environments[0].resources[3].init.devices"
    refused(with_gpu({"id": "amd-0"}), path, "amd-0 is of platform amd, and no device file is entered")


class TestInAFile:
    def test_out_and_back(self, device, second, engine):
        first: dict[str, Any] = {"id": "amd-0", "Devices": [KFD, f"{RENDER}:r"], "GroupAdd": [44, "110"]}
        new: dict[str, Any] = {"id": "new-0", "Devices": ["/dev/dxg"]}
        run(with_gpu(first, new | {"Env": {"HSA_OVERRIDE_GFX_VERSION": "10.3.0"}}))
        assert init_of(device) == [
            *(("group", "110", ""), ("group", "44", "")),
            *(("path", RENDER, "r"), ("path", KFD, "rw")),
        ]
        assert Device.objects.get(uuid="new-0").platform == "amd"
        told = as_json([export_engine(engine)])
        rows = everything()
        assert not run(told).changes_anything
        assert everything() == rows
        DeviceInit.objects.all().delete()
        run(told)
        assert as_json([export_engine(engine)]) == told

    def test_the_form_of_ocean_without_ids(self, engine):
        """What is safe of it is kept; the device is known by its own file."""
        init = {"Devices": [KFD, RENDER], "GroupAdd": ["44"], "ShmSize": 1, "Binds": []}
        plan = run(with_gpu(advanced=init))
        device = Device.objects.get(platform="amd")
        assert "render" not in device.uuid  # jobs' events tell the ids of devices
        assert init_of(device) == [("group", "44", ""), ("path", RENDER, "rw"), ("path", KFD, "rw")]
        assert "[0].environments[0].resources[3].init.advanced.ShmSize" in {note.path for note in plan.notes}
        assert not run(with_gpu(advanced=init)).changes_anything
        assert not run(as_json([export_engine(engine)])).changes_anything

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            *[("Binds", ["/:/host"]), ("Privileged", True), ("CapAdd", ["SYS_ADMIN"]), ("IpcMode", "host")],
            *[
                ("SecurityOpt", {"seccomp": "unconfined"}),
                ("Runtime", "runsc"),
                ("Ulimits", [{"Name": "core"}]),
            ],
            *[("DeviceCgroupRules", ["a *:* rwm"]), ("Mounts", [{}]), ("NetworkMode", "host")],
        ],
    )
    def test_all_else_is_refused(self, engine, key, value):
        path = f"[0].environments[0].resources[3].init.advanced.{key}"
        refused(with_gpu(advanced={"Devices": [KFD], key: value}), path, "they would open the sandbox")

    def test_the_word_for_all_devices_is_no_device(self, engine):
        refused(
            with_gpu(deviceRequests={"DeviceIDs": ["all"]}),
            "[0].environments[0].resources[3].init.deviceRequests.DeviceIDs",
            "write the id of one device",
        )

    def test_a_platform_that_is_too_long_is_refused_where_it_stands(self, engine):
        one = with_gpu({"id": "amd-0", "Devices": [KFD]})
        one[0]["environments"][0]["resources"][3]["platform"] = "İ" * 17
        refused(one, "[0].environments[0].resources[3].platform", "at most 32 characters")

    def test_silence_keeps_it(self, device, engine):
        run(with_gpu({"id": "amd-0", "Devices": [RENDER]}))
        DeviceInit.objects.create(device=device, kind="group", name="110")
        run(with_gpu(deviceRequests={"DeviceIDs": ["amd-0"]}))
        assert ("group", "110", "") in init_of(device)

    def test_two_places_of_a_file_may_not_contradict_each_other(self, device, engine):
        """The later one won without a word, and the same file again was refused while a job held the device."""
        first, second = (
            with_gpu({"id": "amd-0", "Devices": [KFD, name]}) for name in (RENDER, "/dev/dri/renderD129")
        )
        (one,), (other,) = first[0]["environments"], second[0]["environments"]
        one["resources"][3]["sharing"] = other["resources"][3]["sharing"] = "shared_exclusive"
        both = [{**first[0], "environments": [one, {**other, "id": "other"}]}]
        before = everything()
        path = "[0].environments[1].resources[3].init.devices[0].id"
        refused(
            both, path, "amd-0 needs something else at [0].environments[0].resources[3].init.devices[0].id"
        )
        assert everything() == before

    def test_a_revert_brings_it_back(self, device, engine):
        run(with_gpu({"id": "amd-0", "Devices": [KFD]}))
        run(with_gpu({"id": "amd-0", "Devices": [KFD, RENDER], "GroupAdd": [44]}))
        environment = Environment.objects.get()
        new, old = environment.edits.all()
        assert "renderD128" in new.configuration
        assert revert(old, Author("olga", "revert")).applied
        assert init_of(device) == [("path", KFD, "rw")]


@pytest.mark.usefixtures("unrendered")
class TestWhileAJobHoldsIt:
    @pytest.fixture
    def holder(self, device, engine):
        run(with_gpu({"id": "amd-0", "Devices": [KFD, RENDER]}))
        holder, claim = take(Environment.objects.get(), cpu=1, ram=128, disk=128, gpu=1)
        assert claim.devices == ("amd-0",)
        return holder

    def test_no_door_changes_it(self, device, browser, holder):
        before = everything()
        said = {
            "code": refusal(lambda: write_init(device, [])),
            "page": by_page_whole(browser, device, **{"init-0-DELETE": "on"}),
            "platform": by_page_whole(browser, device, platform="intel", **{"init-0-value": "r"}),
            "file": refused_at_init(with_gpu({"id": "amd-0", "Devices": [KFD]})),
            "rest": by_rest(
                client_of(get_user_model().objects.get()), with_gpu({"id": "amd-0", "Devices": [KFD]})
            ),
        }
        assert all(HELD in text for text in said.values()), said
        assert everything() == before
        give_back(holder)
        run(with_gpu({"id": "amd-0", "Devices": [KFD]}))
        assert init_of(device) == [("path", KFD, "rw")]

    def test_what_does_not_concern_the_container_can_be_edited(self, device, browser, holder):
        path = f"/admin/environments/device/{device.pk}/change/"
        data = fields_of(browser.get(path)) | {"health": "unhealthy"}
        assert browser.post(path, data).status_code == 302


def refusal(action: Any) -> str:
    with pytest.raises(ValidationError) as error, transaction.atomic():
        action()
    return str(error.value.messages[0])


def by_page_whole(browser: Any, device: Device, **changes: Any) -> str:
    path = f"/admin/environments/device/{device.pk}/change/"
    answer = browser.post(path, fields_of(browser.get(path)) | changes)
    return " ".join(text for texts in errors(answer).values() for text in texts)


@pytest.mark.usefixtures("unrendered")
def test_the_page_of_a_device(device, engine, browser):
    """Its rows are edited there, each edit is in the history of who offers it, and an offer keeps a device file."""
    run(with_gpu({"id": "amd-0", "Devices": [RENDER]}))
    (environment,) = Environment.objects.all()
    path = f"/admin/environments/device/{device.pk}/change/"
    data = fields_of(browser.get(path)) | {"init-0-name": "/dev/dri/renderD130", "init-0-value": ""}
    assert browser.post(path, data).status_code == 302
    assert init_of(device) == [("path", "/dev/dri/renderD130", "rw")]
    edit = Edit.objects.all()[0]
    assert (edit.environment, edit.by, edit.door) == (environment, "olga", "page")
    assert "renderD130" in edit.configuration
    before = everything()
    assert "offers it: amd-0 is of platform amd" in by_page_whole(browser, device, **{"init-0-DELETE": "on"})
    assert everything() == before


def test_no_client_is_told(device, engine, api_client_of):
    run(with_gpu({"id": "amd-0", "Devices": [KFD, RENDER], "GroupAdd": [44], "Env": {"HSA_X": "1"}}))
    engine.state = "active"
    engine.save()
    told = json.dumps(api_client_of("ada").get("/api/v1/environments").json())
    assert "gpu" in told
    assert not [word for word in ("/dev/", "HSA_X", "amd-0", "init") if word in told]


@pytest.mark.parametrize(
    ("names", "hidden", "shown"),
    [
        ((), ("renderD128", "HSA_X", "nora"), ()),
        (("view_device",), ("renderD128", "HSA_X", "nora"), ()),
        (("view_device", "view_deviceinit"), ("nora",), ("renderD128", "HSA_X")),
        (("change_device", "view_deviceinit", "view_accessrule"), (), ("renderD128", "HSA_X", "nora")),
        (("view_accessrule",), ("renderD128", "HSA_X"), ("nora",)),
    ],
)
def test_who_may_not_look_at_rows_is_not_told_by_a_history_or_plan(device, engine, names, hidden, shown):
    """That something changed, and not what."""
    run(with_gpu({"id": "amd-0", "Devices": [KFD]}))
    then = with_gpu({"id": "amd-0", "Devices": [KFD, RENDER], "Env": {"HSA_X": "1"}})
    then[0]["environments"][0]["access"] = {"users": ["nora"]}
    run(then)
    environment = Environment.objects.get()
    user = get_user_model().objects.create_user("ivan", is_staff=True)
    codes = [f"delete_{model}" for model in ("deviceinit", "accessrule")]
    user.user_permissions.set(Permission.objects.filter(codename__in=[*codes, "view_environment", *names]))
    client = Client()
    client.force_login(user)
    page = client.get(f"/admin/environments/environment/{environment.pk}/change/").content.decode()
    by = Author("ivan", "revert", user=user)
    plan = revert(environment.edits.all()[1], by, dry_run=True)
    for told in (page, "\n".join(plan.lines())):
        assert ("(not shown to you)" in told) == bool(hidden)
        assert [word for word in (*hidden, *shown) if word in told] == list(shown)


@pytest.fixture
def api_client_of(db):
    return lambda name: client_of(get_user_model().objects.create_user(name))


def test_two_hosts_may_have_the_same_files(device, db):
    other = make_host("rack-b")
    make_engine(other, "other")
    twin = Device.objects.create(host=other, uuid="amd-b", platform="amd")
    save_clean(DeviceInit(device=twin, name=RENDER, value="rw"))


@pytest.mark.usefixtures("unrendered")
def test_of_two_devices_that_are_given_the_same_file_at_once_one_gets_it(
    device, second, browser, monkeypatch
):
    """The forms of both were checked before either was saved."""

    def other_first(host: int) -> Any:
        DeviceInit.objects.create(device=device, kind="path", name="/dev/dri/renderD131", value="rw")
        return lock_host(host)

    path = f"/admin/environments/device/{second.pk}/change/"
    data = fields_of(browser.get(path)) | {"init-0-name": "/dev/dri/renderD131"}
    monkeypatch.setattr("environments.device_init.lock_host", other_first)
    said = {text for texts in errors(browser.post(path, data)).values() for text in texts}
    assert said == {"/dev/dri/renderD131 is of amd-0 on this host; a device file belongs to one device."}
    assert init_of(second) == [("path", "/dev/dri/renderD129", "r")]
