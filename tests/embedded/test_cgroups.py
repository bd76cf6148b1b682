import os
from pathlib import Path

from compute_site.embedded.cgroups import Cgroup


def test_unified_hierarchy(tmp_path: Path):
    (tmp_path / "cgroup.controllers").write_text("cpu memory pids")
    group = Cgroup("cs-x", tmp_path)
    group.create()
    assert (tmp_path / "cs-x/daemon").is_dir()
    (tmp_path / "cs-x/cpu.stat").write_text("usage_usec 1234567\nuser_usec 1\n")
    (tmp_path / "cs-x/daemon/cgroup.procs").write_text("0\n")
    assert group.accounting == tmp_path / "cs-x"
    assert group.cpu_ms() == 1234.567
    assert group.processes() == set()
    assert (tmp_path / "cs-x/cpu.weight").read_text() == str(100 * (os.cpu_count() or 1))


def test_one_mount_per_controller_and_linked_ones_once(tmp_path: Path):
    for name in ("cpu,cpuacct", "memory"):
        (tmp_path / name).mkdir()
    for name in ("cpu", "cpuacct"):
        (tmp_path / name).symlink_to("cpu,cpuacct")
    group = Cgroup("cs-x", tmp_path)
    group.create()
    (tmp_path / "cpuacct/cs-x/cpuacct.usage").write_text("2500000\n")
    (tmp_path / "memory/cs-x/jobs/one").mkdir(parents=True)
    (tmp_path / "memory/cs-x/jobs/one/cgroup.procs").write_text("41\n42\n")
    (tmp_path / "cpuacct/cs-x/daemon/cgroup.procs").write_text("43\n")
    assert group.cpu_ms() == 2.5
    assert (tmp_path / "cpu/cs-x/cpu.shares").read_text() == str(1024 * (os.cpu_count() or 1))
    assert group.processes() == {41, 42, 43}
