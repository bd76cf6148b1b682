"""The sandbox: the whole body of the request that creates a job's container.

There is one profile and no way around it: nothing that a client sends can make it weaker. `readback.py` compares what
the engine made of it, field by field, before anything starts.
"""

import posixpath
import re
from collections.abc import Mapping, Sequence
from typing import Any

from compute_site.core.errors import ExecutionFailed
from compute_site.core.paths import is_below
from workers.sandbox import variables
from workers.sandbox.facts import EngineFacts, ImageFacts
from workers.sandbox.spec import CONTROL_PATH, DATA_PATH, LAUNCHER_FOLDER, LAUNCHER_PATH, Spec

MIB = 2**20
PIDS = 256  # processes and threads, or PIDS_PER_CORE for each core where that is more
PIDS_PER_CORE = 32
# An engine without CAP_SYS_RESOURCE cannot give more than it has itself, and then starts nothing.
OPEN_FILES = 16384
LOCKED_MEMORY = 64 * 1024  # bytes
DEADLINE_MARGIN = 5  # seconds after max_duration; the site's own clock comes first
MAX_ARGUMENTS = 96 * 1024  # bytes, all of argv together
MAX_VOLUMES = 16
# NetworkDisabled gives a namespace with only `lo` and halves the start: NetworkMode none alone makes the engine run
# itself again in a hook. Other runtimes refuse a container without Docker's network.
WITHOUT_DOCKER_NETWORK = ("runc", "crun")
# A volume of the image may not lie over, or below, what the sandbox puts there.
KEPT_FROM_VOLUMES = ("/.site", "/proc", "/sys", "/dev", "/etc", f"{DATA_PATH}/inputs", f"{DATA_PATH}/outputs")
DETACHED = (
    "Tty",
    "OpenStdin",
    "StdinOnce",
    "AttachStdin",
    "AttachStdout",
    "AttachStderr",
)  # nobody is at the other end
# runc once resolved a working folder such as /proc/self/fd/7 on the host.
NO_WORKING_DIR = ("/.site", "/proc", "/sys", "/dev")
CONTAINER_ID = re.compile(r"[0-9a-f]{64}\Z")


def build(
    spec: Spec,
    image: ImageFacts,
    mounts: Sequence[Mapping[str, Any]],
    engine: EngineFacts,
    *,
    cgroup_parent: str | None,
) -> dict[str, Any]:
    """The body of `POST /containers/create` for one attempt.

    `mounts` are the workspace's entries; `cgroup_parent` comes from `cgroup.parent`, None where the engine's host
    takes none. Raises ExecutionFailed (image_refused) for what the job or its image may not have; ValueError for a
    spec that no rule of the site can have let through.
    """
    _check(spec, image)
    return {
        **_process(spec, image, mounts),
        "Hostname": "" if spec.gate else "job",  # behind a gate it has the gate's, which is the same
        "Domainname": "",
        "Labels": spec.labels,
        "Healthcheck": {"Test": ["NONE"]},
        "StopSignal": "SIGTERM",
        "StopTimeout": spec.stop_grace,
        **({"NetworkDisabled": True} if not spec.gate and spec.runtime in WITHOUT_DOCKER_NETWORK else {}),
        **dict.fromkeys(DETACHED, False),
        "HostConfig": {
            "Mounts": [dict(mount) for mount in mounts],
            "Tmpfs": _tmpfs(spec, image),
            "LogConfig": {"Type": "none", "Config": {}},  # the launcher's files are the log
            **_network(spec),
            **isolation(spec.runtime),
            **_limits(spec, engine),
            **_devices(spec),
            **({"CgroupParent": cgroup_parent} if cgroup_parent else {}),
        },
    }


def _process(spec: Spec, image: ImageFacts, mounts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What the first process is: whose, of which image, started how and where."""
    return {
        "Image": spec.image_id,
        "User": f"{spec.uid}:{spec.uid}",  # a group given by number keeps the image's groups out
        "Env": _environment(spec, image),
        "Entrypoint": [launcher_in(mounts)],
        "Cmd": _arguments(spec),
        "WorkingDir": _working_dir(image),
    }


def launcher_in(mounts: Sequence[Mapping[str, Any]]) -> str:
    """The launcher's path in a container with these mounts."""
    in_volume = any(mount["Target"] == LAUNCHER_FOLDER for mount in mounts)
    return f"{LAUNCHER_FOLDER}/launcher" if in_volume else LAUNCHER_PATH


def _network(spec: Spec) -> dict[str, Any]:
    """None at all, or that of its gate: the id, since another container could get the name."""
    if spec.gate:
        return {"NetworkMode": f"container:{spec.gate}"}
    return {
        "NetworkMode": "none",
        **({} if spec.runtime in WITHOUT_DOCKER_NETWORK else {"Dns": ["127.0.0.1"]}),
    }


def isolation(runtime: str) -> dict[str, Any]:
    """What every container of ours has, a gate too."""
    return {
        "Runtime": runtime,
        "Init": False,  # the launcher is the first process
        "Privileged": False,
        "ReadonlyRootfs": True,
        "AutoRemove": False,
        "RestartPolicy": {"Name": "no", "MaximumRetryCount": 0},
        "CapDrop": ["ALL"],
        "SecurityOpt": [
            "no-new-privileges"
        ],  # and the engine's seccomp profile, which any entry here would replace
        "IpcMode": "none",  # an IPC namespace of its own; /dev/shm is ours below, with inodes capped too
        "PidMode": "",
        "UTSMode": "",
        "UsernsMode": "",
        "CgroupnsMode": "private",
        "PublishAllPorts": False,
    }


def _limits(spec: Spec, engine: EngineFacts) -> dict[str, Any]:
    memory = spec.memory_mib * MIB
    limits = {"core": 0, "nofile": OPEN_FILES, "memlock": LOCKED_MEMORY, "fsize": _largest_file(spec)}
    return {
        "NanoCpus": len(spec.cores) * 10**9,
        "CpusetCpus": ",".join(map(str, sorted(spec.cores))),
        "Memory": memory,
        "MemorySwap": memory,
        **({"MemorySwappiness": 0} if engine.cgroup_version == 1 else {}),  # version 2 has none
        "OomKillDisable": False,
        "OomScoreAdj": 500,
        "PidsLimit": max(PIDS, PIDS_PER_CORE * len(spec.cores)),
        "Ulimits": [{"Name": name, "Soft": value, "Hard": value} for name, value in limits.items()],
    }


def _largest_file(spec: Spec) -> int:
    """Bytes: no file is larger than the disk, nor than a log that the launcher writes under the same limit."""
    return max(spec.disk_mib * MIB, spec.log_cap + MIB)


def _devices(spec: Spec) -> dict[str, Any]:
    """Exactly the reserved ones: by NVIDIA's request, or file by file with the groups that may open them."""
    files = [
        {"PathOnHost": path, "PathInContainer": path, "CgroupPermissions": permissions}
        for path, permissions in spec.device_files
    ]
    given: dict[str, Any] = {"Devices": files} if files else {}
    given |= {"GroupAdd": [str(group) for group in spec.groups]} if spec.groups else {}
    return given | _requested(spec)


def _requested(spec: Spec) -> dict[str, Any]:
    if not spec.device_uuids:
        return {}
    capabilities = [["gpu", "compute", "utility"]]
    request = {
        "Driver": "nvidia",
        "Count": 0,
        "DeviceIDs": list(spec.device_uuids),
        "Capabilities": capabilities,
    }
    return {"DeviceRequests": [request]}


def _tmpfs(spec: Spec, image: ImageFacts) -> dict[str, str]:
    """Small writable folders in the job's own memory, and a read-only nothing over each volume of the image."""
    owner = f"nosuid,nodev,noexec,uid={spec.uid},gid={spec.uid}"
    quarter = max(1, spec.memory_mib // 4)
    own = {
        "/tmp": f"size={min(1024, quarter)}m,nr_inodes=65536,mode=0700,{owner}",
        "/run": f"size={min(16, quarter)}m,nr_inodes=1024,mode=0700,{owner}",
        "/dev/shm": f"size={min(64, quarter)}m,nr_inodes=1024,mode=0700,{owner}",
    }
    covered = (posixpath.normpath(path) for path in image.volumes)
    nothing = "ro,size=4k,nr_inodes=1,mode=0555,nosuid,nodev,noexec"
    return {path: nothing for path in covered if path != DATA_PATH} | own


def _arguments(spec: Spec) -> list[str]:
    deadline = spec.max_duration + DEADLINE_MARGIN
    gated = ["--gated"] if spec.gate else []  # the launcher starts nothing unless the rules stand
    return [*gated, CONTROL_PATH, str(deadline), str(spec.log_cap), str(spec.stop_grace), "--", *spec.argv]


def _environment(spec: Spec, image: ImageFacts) -> list[str]:
    """`NAME=value` lines, the same for the same spec; a bare NAME takes the image's variable away."""
    own = {
        "JOB_ID": spec.job,
        "JOB_INPUTS": f"{DATA_PATH}/inputs",
        "JOB_OUTPUTS": f"{DATA_PATH}/outputs",
        "JOB_FILE": f"{DATA_PATH}/job.json",
    }
    if not spec.device_uuids:
        own["NVIDIA_VISIBLE_DEVICES"] = "void"  # a runtime with GPU hooks reads "all" into its absence
    given = {"HOME": "/tmp", "TMPDIR": "/tmp", **dict(sorted(spec.env.items()))}
    given |= {**dict(sorted(spec.device_env.items())), **own}
    bare = [name for name in variables.taken_away(image.env) if name not in given]
    return [f"{name}={value}" for name, value in given.items()] + bare


def _working_dir(image: ImageFacts) -> str:
    folder = posixpath.normpath(image.working_dir or "/")
    return folder if folder.startswith("/") and not is_below(folder, NO_WORKING_DIR) else "/"


def _check(spec: Spec, image: ImageFacts) -> None:
    if spec.gate and not CONTAINER_ID.match(spec.gate):
        raise ValueError("a gate is named by the full id of its container")
    if spec.image_id != image.id or min(spec.uid, spec.memory_mib, spec.disk_mib) <= 0 or not spec.cores:
        raise ValueError(
            "a spec names its image by id, a uid that is not root's, and more than nothing of everything"
        )
    if not all(path.startswith("/dev/") and set(may) <= {"r", "w"} for path, may in spec.device_files):
        raise ValueError("device files are below /dev, to be read and written at most")
    if 0 in spec.groups:
        raise ValueError("no container is in root's group")
    problems = variables.problems(spec.env)
    if not spec.argv or not all(variables.is_text(part, MAX_ARGUMENTS) for part in spec.argv):
        problems.append("the command is empty, too long, or no text without NUL")
    elif sum(len(part.encode()) + 1 for part in spec.argv) > MAX_ARGUMENTS:
        problems.append(f"the command takes more than {MAX_ARGUMENTS} bytes")
    if len(image.volumes) > MAX_VOLUMES:
        problems.append(f"the image declares more than {MAX_VOLUMES} volumes")
    for path in map(posixpath.normpath, image.volumes):
        if path == "/" or not path.startswith("/") or is_below(path, KEPT_FROM_VOLUMES):
            problems.append(
                f"the image declares a volume at {path!r:.200}, which the sandbox keeps for itself"
            )
    if problems:
        raise ExecutionFailed("image_refused", "; ".join(problems[:10]))
