"""Counters that outlive the container; names for both drivers; both versions of the kernel's tree."""

import os
from pathlib import Path

import pytest

from tests.workers.sandbox.conftest import SITE, Maker
from workers.sandbox import cgroup

MIB = 2**20
BUSY = (
    "import time\nx = bytearray(60 << 20)\nwhile time.process_time() < 0.2: pass\nprint('done', flush=True)\n"
)


@pytest.mark.engine
def test_peak_memory_and_cpu_stay_readable_until_removed(make: Maker, sandbox_image: str) -> None:
    run = make(sandbox_image, argv=("python3", "-c", BUSY)).whole()
    used = cgroup.usage(run.cgroup)
    assert used.cpu_ns is not None
    assert 200e6 <= used.cpu_ns < 5e9
    assert used.peak_bytes is not None
    assert 60 * MIB <= used.peak_bytes <= 130 * MIB
    assert run.cgroup in cgroup.existing(SITE)
    assert run.client.remove(run.id)
    assert cgroup.usage(run.cgroup) == used
    assert cgroup.remove(run.cgroup)
    assert cgroup.remove(run.cgroup)
    assert cgroup.usage(run.cgroup) == cgroup.Usage(None, None, None)
    assert run.cgroup not in cgroup.existing(SITE)


@pytest.mark.engine
def test_living_processes_are_found_and_keep_the_cgroup(make: Maker, sandbox_image: str) -> None:
    run = make(sandbox_image, argv=("python3", "-c", "import time; time.sleep(60)"))
    run.create()
    assert cgroup.processes(run.cgroup) == set()
    run.start()
    facts = run.client.inspect(run.id)
    assert facts is not None
    assert facts.pid in cgroup.processes(run.cgroup)
    assert not cgroup.remove(run.cgroup)
    assert facts.pid in cgroup.processes(run.cgroup)


def test_names_for_both_drivers() -> None:
    attempt = "01890a5d-ac96-774b-bcce-b302099a8057"
    assert cgroup.parent("s1", attempt) == "/compute-site-s1/01890a5dac96774bbcceb302099a8057"
    assert cgroup.parent("s1", attempt, "systemd") == "compute_site_s1-01890a5dac96774bbcceb302099a8057.slice"


def test_a_tree_of_version_2_is_read_by_its_own_files(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu memory pids\n")
    name = cgroup.parent("s1", "ab-cd", "systemd")
    folder = tmp_path / "compute_site_s1.slice" / "compute_site_s1-abcd.slice"
    folder.mkdir(parents=True)
    (folder / "cpu.stat").write_text("usage_usec 1500\nuser_usec 1000\nsystem_usec 500\n")
    (folder / "memory.peak").write_text("4096\n")
    (folder / "memory.events").write_text("low 0\nhigh 0\nmax 7\noom 2\noom_kill 1\n")
    (folder / "cgroup.procs").write_text(f"{os.getpid()}\n")
    assert cgroup.usage(name, tmp_path) == cgroup.Usage(1_500_000, 4096, 1)
    assert cgroup.processes(name, tmp_path) == {os.getpid()}
