"""Hostile outputs through a whole job: refused one by one, never followed, and the good ones beside them are taken."""

import inspect

from tests.faults.site import FaultSite
from tests.workers.sandbox import hostile

# The tree that the sandbox's own tests use, planted by a job; without what a job has no right to make.
PLANT = inspect.getsource(hostile)
for cannot, instead in (
    ('os.mknod(outputs / "device"', "(lambda *_: None)(outputs"),
    ("file.truncate(GIANT)", "too_large(file)"),
):
    assert cannot in PLANT
    PLANT = PLANT.replace(cannot, instead)
PLANTED = f"""
{PLANT}
def too_large(file):
    os.unlink(file.name)
    try:
        file.truncate(GIANT)
    except OSError as error:
        print("no giant", error.errno)
outputs = Path("/data/outputs")
outside = Path("/tmp/outside")
outside.write_bytes(SECRET)
try:
    os.mknod("/tmp/device", stat.S_IFCHR | 0o666, os.makedev(1, 5))
except PermissionError:
    print("no device")
os.link = lambda source, target, real=os.link: None if "link-out" in str(target) else real(source, target)
plant(outputs, outside)
try:
    open("/data/outputs/../outputs/../escaped", "w")
except OSError as error:
    print(type(error).__name__)
"""


def test_a_hostile_tree_costs_nothing_but_itself(site: FaultSite) -> None:
    place = site.place(disk=2048)
    site.worker(place)
    job = site.submit(
        place, "python3", "-c", PLANTED, resources={"cpu": 1, "ram": 256, "disk": 1024}, image=None
    )
    site.wait_clean(job)
    found = site.detail(job)
    assert (found["status"], found["end_reason"]) == ("succeeded", "succeeded"), site.log(
        job, "stderr"
    ).content
    assert site.log(job).content == b"no device\nno giant 27\nPermissionError\n"
    taken = {file["path"]: file["sha256"] for file in found["manifest"]["files"]}
    assert taken == {path: hostile.sha256(content) for path, content in hostile.GOOD.items()}
    refused = {row["path"]: row["reason"] for row in found["refused_outputs"]}
    wanted = {path: reason for path, reason in hostile.REFUSED.items() if path not in ("device", "~giant")}
    assert refused == wanted | {"socket": "socket"}


def test_a_sparse_file_within_the_disk_is_taken_and_one_beyond_it_cannot_be_made(site: FaultSite) -> None:
    place = site.place()
    site.worker(place)
    job = site.shell(
        place, "cd /data/outputs; truncate -s 40M sparse; echo good > good; truncate -s 1T giant"
    )
    site.wait_clean(job)
    found = site.detail(job)
    assert found["end_reason"] == "exit_nonzero"
    sizes = {file["path"]: file["size"] for file in found["manifest"]["files"]}
    assert sizes["sparse"] == 40 << 20
    assert sizes["good"] == 5
    assert sizes.get("giant", 0) == 0


def test_too_many_files_end_the_reading_and_are_told(site: FaultSite) -> None:
    place = site.place(disk=2048)
    site.worker(place)
    script = "import os\nfor n in range(100_000): os.close(os.open(f'/data/outputs/{n:06}', os.O_CREAT))"
    job = site.submit(
        place, "python3", "-c", script, resources={"cpu": 1, "ram": 256, "disk": 1024}, image=None
    )
    site.wait_clean(job)
    found = site.detail(job)
    assert found["end_reason"] in ("output_too_large", "exit_nonzero"), found["end_detail"]
    assert len(found["manifest"]["files"]) <= 10_000
    after = site.shell(place, "echo x > /data/outputs/x")
    site.wait_clean(after)
    assert site.detail(after)["end_reason"] == "succeeded"
