"""What the engine made of a container's configuration, compared with what was asked: any difference is a refusal."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from workers.sandbox import variables

# Fields of an image that pass into a container and change nothing in this sandbox: no port is published, its volumes
# are covered (see Mounts), nothing is built, and the shell is only for a Dockerfile's own lines.
FROM_IMAGE = frozenset({"ExposedPorts", "Volumes", "OnBuild", "Shell", "ArgsEscaped"})
MASKED = frozenset(
    {
        "/proc/acpi",
        "/proc/kcore",
        "/proc/keys",
        "/proc/latency_stats",
        "/proc/timer_list",
        "/proc/sched_debug",
        "/proc/scsi",
        "/sys/firmware",
    }
)
READ_ONLY = frozenset({"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"})
OPERATORS_ONLY = frozenset({"Devices", "GroupAdd"})  # of a device's init; the attempt has the devices' UUIDs
# What an engine fills in by itself. Everything else that was not asked for must be empty, false or zero.
FILLED_IN: dict[str, Callable[[Any], bool]] = {
    "MaskedPaths": lambda paths: MASKED.issubset(paths or ()),
    "ReadonlyPaths": lambda paths: READ_ONLY.issubset(paths or ()),
    "ShmSize": lambda size: True,  # of the /dev/shm that IpcMode none does not have
    "ConsoleSize": lambda size: not any(size or ()),
    "Isolation": lambda name: name in ("", "default"),
    "MemorySwappiness": lambda value: value in (None, 0, -1),
}


def differences(config: Mapping[str, Any], inspected: Mapping[str, Any]) -> list[str]:
    """Every field in which a created container differs from the policy; empty when it may be started.

    `config` is the body it was created with, `inspected` the engine's answer to an inspect of it.
    """
    found = [] if inspected["Image"] == config["Image"] else ["Image: the engine resolved another image"]
    found += _container(config, inspected["Config"])
    found += _host(config["HostConfig"], inspected["HostConfig"])
    found += _mounts(config["HostConfig"]["Mounts"], inspected["Mounts"])
    if inspected.get("ExecIDs"):
        found.append("ExecIDs: somebody runs something else in it")
    return found


def _container(asked: Mapping[str, Any], made: Mapping[str, Any]) -> list[str]:
    special = {"HostConfig", "Env", "Labels", "Healthcheck"}
    if not asked["Hostname"]:  # left to the engine: behind a gate, the gate's
        special.add("Hostname")
    found = _fields(
        "Config", {key: asked[key] for key in asked if key not in special}, made, special | FROM_IMAGE
    )
    if (made.get("Healthcheck") or {}).get("Test") != asked["Healthcheck"][
        "Test"
    ]:  # an image's times come along
        found.append(f"Config.Healthcheck: {made.get('Healthcheck')!r:.200}")
    wrong = [name for name, value in asked["Labels"].items() if (made.get("Labels") or {}).get(name) != value]
    return (
        found
        + [f"Config.Labels: {name}" for name in wrong]
        + _environment(asked["Env"], made.get("Env") or [])
    )


def _environment(asked: list[str], made: list[str]) -> list[str]:
    """Ours come first and unchanged; behind them only variables of the image that it may set."""
    found = [] if made[: len(asked)] == asked else ["Config.Env: not what was asked"]
    seen = {entry.partition("=")[0] for entry in asked}
    for name in (entry.partition("=")[0] for entry in made[len(asked) :]):
        if name in seen or name.startswith(variables.TAKEN_FROM_IMAGES):
            found.append(f"Config.Env: {name}")
        seen.add(name)
    return found


def _host(asked: Mapping[str, Any], made: Mapping[str, Any]) -> list[str]:
    found = _fields("HostConfig", asked, made, set(FILLED_IN))
    return found + [
        f"HostConfig.{key}: {made.get(key)!r:.200}"
        for key, allowed in FILLED_IN.items()
        if key not in asked and not allowed(made.get(key))
    ]


def _fields(
    place: str, asked: Mapping[str, Any], made: Mapping[str, Any], special: set[str] | frozenset[str]
) -> list[str]:
    wrong = [key for key, value in asked.items() if not _same(value, made.get(key))]
    extra = [
        key for key, value in made.items() if key not in asked and key not in special and not _empty(value)
    ]
    return [
        f"{place}.{key}: " + ("not as asked" if key in OPERATORS_ONLY else f"{made.get(key)!r:.200}")
        for key in wrong + extra
    ]


def _mounts(asked: list[dict[str, Any]], made: list[dict[str, Any]]) -> list[str]:
    """The mount points that exist are those asked for: no volume of the image, nothing writable that should not be."""
    want = sorted((m["Target"], m["Type"], m["Source"], not m.get("ReadOnly", False)) for m in asked)
    have = sorted((m["Destination"], m["Type"], _source(m), m["RW"]) for m in made)
    shared = [
        m["Destination"]
        for m in made
        if m["Type"] == "bind" and m["Propagation"] not in ("rprivate", "private")
    ]
    found = [
        f"Mounts: {mount[0]}"
        for mount in [*(m for m in have if m not in want), *(m for m in want if m not in have)]
    ]
    return found + [f"Mounts: {place} is not private" for place in shared]


def _source(mount: Mapping[str, Any]) -> str:
    return str(mount["Name"] if mount["Type"] == "volume" else mount["Source"])


def _same(asked: Any, made: Any) -> bool:
    """Equal, where an empty list, map or text counts as absent; so do False and 0 inside a map that leaves them out."""
    if isinstance(asked, Mapping) and isinstance(made, Mapping):
        both = set(asked) & set(made)
        alone = [value for tree in (asked, made) for key, value in tree.items() if key not in both]
        return all(_same(asked[key], made[key]) for key in both) and all(map(_empty, alone))
    if isinstance(asked, list) and isinstance(made, list):
        return len(asked) == len(made) and all(map(_same, asked, made))
    nothing: tuple[Any, ...] = (None, "", [], {})
    return (asked == made and type(asked) is type(made)) or (asked in nothing and made in nothing)


def _empty(value: Any) -> bool:
    """Empty through and through, so that a structure full of zeros counts as nothing."""
    if isinstance(value, Mapping):
        return all(map(_empty, value.values()))
    if isinstance(value, list):
        return all(map(_empty, value))
    return not value


def effective(inspected: Mapping[str, Any], hidden: Collection[str] = ()) -> dict[str, Any]:
    """What is stored with the attempt as part of its receipt: everything that is set, without the variables' values, and
    without what only operators know: device files, groups, and the names of `hidden` variables."""
    config = {key: value for key, value in inspected["Config"].items() if not _empty(value) and key != "Env"}
    return {
        "id": inspected["Id"],
        "name": inspected["Name"].lstrip("/"),
        "image": inspected["Image"],
        "created": inspected["Created"],
        "config": config
        | {"Env": [name for name in _names(inspected["Config"].get("Env")) if name not in hidden]},
        "host": {
            key: value
            for key, value in inspected["HostConfig"].items()
            if not _empty(value) and key not in OPERATORS_ONLY
        },
        "mounts": inspected["Mounts"],
        "apparmor": inspected.get("AppArmorProfile", ""),
    }


def _names(env: list[str] | None) -> list[str]:
    return [entry.partition("=")[0] for entry in env or ()]
