"""Public configurations with the verdict that the import must give; skipped where the folder of cases is not there."""

import json
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ValidationError

from environments.amounts import fill
from environments.importing import as_json, export_engine
from environments.models import Core, Device, Engine, Environment
from tests.environments.importing.conftest import everything, run, told

ROOT = Path(__file__).parents[3]
CASES = next(
    (
        found
        for folder in ROOT.parents[:2]
        if (found := folder / "shared" / "cases" / "ocean_configs").is_dir()
    ),
    None,
)
VERDICTS: dict[str, Any] = json.loads((CASES / "verdicts.json").read_text()) if CASES else {}
needs_cases = pytest.mark.skipif(
    not VERDICTS, reason="the folder of cases (ocean_configs) is not on this machine"
)


def text_of(name: str) -> str:
    assert CASES is not None
    return (CASES / f"{name}.json").read_text()


@needs_cases
@pytest.mark.parametrize("name", [name for name, told in VERDICTS.items() if told["verdict"] == "refuse"])
def test_refused_whole(large: Engine, name: str):
    before = everything()
    with pytest.raises(ValidationError) as error:
        run(text_of(name))
    assert all(path.startswith("[0]") for path in error.value.message_dict), error.value.message_dict
    assert everything() == before


@needs_cases
@pytest.mark.parametrize("name", [name for name, told in VERDICTS.items() if told["verdict"] == "import"])
def test_imported_and_then_nothing_changes(large: Engine, name: str):
    planned = run(text_of(name), dry_run=True)
    assert not Environment.objects.exists()
    done = run(text_of(name))
    assert list(done.lines()) == list(planned.lines())
    assert done.changes_anything
    rows = everything()
    assert not run(text_of(name)).changes_anything
    large.refresh_from_db()
    assert not run(as_json([export_engine(large)])).changes_anything
    assert everything() == rows


@needs_cases
@pytest.mark.parametrize(
    ("name", "path", "words"),
    [
        ("flat_env_md_1", "[0].free.access.accessLists[0]", "mapping from chain id"),
        ("flat_gpu_md_2", "[0].fees.1[0].prices[1].id", "nyGPU; there are cpu, disk, myGPU, ram"),
        ("flat_gpu_md_2", "[0].resources[0].init.advanced.SecurityOpt", "open the sandbox"),
        ("flat_gpu_md_2", "[0].resources[0].init.advanced.IpcMode", "open the sandbox"),
        ("pool_test_invalid_unknown_ref", "[0].environments[0].resources[0].id", "unknown-gpu is not among"),
        ("pool_test_invalid_cpu_total_and_cpulist", "[0].resources[0]", "exclude each other"),
        ("pool_test_invalid_cpulist_descending", "[0].resources[0].cpuList", "must ascend"),
        ("probes/no_environments", "[0].environments", "The engine has no environment"),
        ("probes/no_disk", "[0].environments[0].resources", "There is no disk"),
        ("probes/disk_total_zero", "[0].environments[0].resources[2].total", "Found 0"),
        ("probes/no_fees_no_free", "[0].environments[0].fees", "neither a price nor a free tier"),
        ("probes/expiry_lt_duration", "[0].environments[0].storageExpiry", "60 s is shorter"),
        ("probes/retention_zero", "[0].imageRetentionDays", "Found 0; enter at least 1"),
        ("probes/min_gt_max", "[0].environments[0].resources[0].min", "3 is more than the max of 2"),
        ("probes/negative_total", "[0].environments[0].resources[0].total", "Found -4"),
        (
            "probes/fractional_cpu_total",
            "[0].environments[0].resources[0].total",
            "Found 2.5; enter a whole number",
        ),
        (
            "probes/duplicate_resource_id",
            "[0].environments[0].resources[3].id",
            "already has a resource with this slug",
        ),
        ("probes/dangling_price", "[0].environments[0].fees.1[0].prices[0].id", "no resource nope"),
        ("probes/overlapping_cpuCores", "[0].environments[1].cpuCores", "Core 1 is named by another"),
    ],
)
def test_the_refusal_names_the_value(large: Engine, name: str, path: str, words: str):
    with pytest.raises(ValidationError) as error:
        run(text_of(name))
    found = error.value.message_dict
    assert path in found, found
    assert words in " ".join(found[path]), found


@needs_cases
@pytest.mark.parametrize(
    ("name", "note"),
    [
        ("nested_ci_yml", "[0].environments[0].fees.8996[0]: dropped: it has no feeToken"),
        ("nested_env_example_gpu0", "“0x123” is no address"),
        ("nested_env_example_gpu0", "not seen by detection yet"),
        ("nested_quickstart", "free jobs may run 360000 s, paid ones 36000 s"),
        ("flat_setupNodeEnv_sh", "[0]: the older form"),
        ("pool_test_valid_cpulist", "no disk is named"),
        (
            "probes/unknown_env_field",
            "[0].environments[0].storageExpirySecs: unknown key, ignored (is storageExpiry meant?)",
        ),
        ("probes/unknown_env_field", "4 cores, but 2 are named"),
    ],
)
def test_the_import_tells_what_should_be_known(large: Engine, name: str, note: str):
    notes = told(run(text_of(name)))
    assert any(note in line for line in notes), notes


@needs_cases
def test_what_some_of_them_come_to(large: Engine):
    def cores(slug: str) -> list[int]:
        return list(Core.objects.filter(environment__slug=slug).values_list("index", flat=True))

    run(text_of("nested_cpuCores_env_example"))
    assert cores("enva") == [0, 1, 2, 3]
    Environment.objects.all().delete()
    run(text_of("pool_test_valid_cpulist"))
    assert cores("environment-1") == [0, 1, 3]
    run(text_of("nested_quickstart_2xH100_1xA10"))
    made = Environment.objects.get(slug="environment-1")
    assert made.resources.values_list("total", "max").get(slug="nvidia-h100-80gb-hbm3") == (2, 2)
    assert Device.objects.filter(uuid__in=["GPU-aaaa", "GPU-bbbb"], memory_mib=81_559).count() == 2
    run(text_of("probes/same_device_two_ids"), replace=True)
    assert Device.objects.get(uuid="uuid-a").resource_devices.count() == 2
    run(text_of("pool_compute_md_1"))
    asked = fill(Environment.objects.get(slug="gpu-env"), "paid", {"gpu0": 1})
    assert asked == {"cpu": 1, "ram": 2048, "disk": 1024, "gpu0": 1}
