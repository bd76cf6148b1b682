"""Runs inside a container and tries to get out, up, or at others: prints one JSON object, probe name to verdict.

A verdict is "ok" with what was reached, or the name of the error that stopped it.
"""

import ctypes
import errno
import json
import os
import resource
import signal
import socket
import struct
import sys
import time

libc = ctypes.CDLL(None, use_errno=True)
CALL = {
    "x86_64": {
        "mount": 165, "umount2": 166, "pivot_root": 155, "chroot": 161, "unshare": 272,
        "ptrace": 101, "process_vm_readv": 310, "add_key": 248, "keyctl": 250, "bpf": 321,
        "perf_event_open": 298, "userfaultfd": 323, "init_module": 175, "kexec_load": 246, "reboot": 169,
        "settimeofday": 164, "swapon": 167, "open_by_handle_at": 304, "quotactl": 179, "iopl": 172,
        "sethostname": 170, "syslog": 103, "acct": 163, "setuid": 105, "setgid": 106, "setgroups": 116,
        "fsopen": 430, "move_mount": 429, "fanotify_init": 300,
        "lookup_dcookie": 212, "kcmp": 312, "move_pages": 279, "vhangup": 153,
        "clock_settime": 227, "personality": 135,
    },
    "aarch64": {
        "mount": 40, "umount2": 39, "pivot_root": 41, "chroot": 51, "unshare": 97,
        "ptrace": 117, "process_vm_readv": 270, "add_key": 217, "keyctl": 219, "bpf": 280,
        "perf_event_open": 241, "userfaultfd": 282, "init_module": 105, "kexec_load": 104, "reboot": 142,
        "settimeofday": 170, "swapon": 224, "open_by_handle_at": 265, "quotactl": 60,
        "sethostname": 161, "syslog": 116, "acct": 89, "setuid": 146, "setgid": 144, "setgroups": 159,
        "fsopen": 430, "move_mount": 429, "fanotify_init": 262,
        "lookup_dcookie": 18, "kcmp": 272, "move_pages": 239, "vhangup": 58,
        "clock_settime": 112, "personality": 92,
    },
}[os.uname().machine]  # fmt: skip
BUFFER = ctypes.create_string_buffer(256)
NEWNS, NEWUSER, NEWNET, NEWCGROUP = 0x20000, 0x10000000, 0x40000000, 0x2000000

PROBES: dict = {}


def probe(function):
    PROBES[function.__name__] = function
    return function


def call(name, *arguments):
    """A raw system call; raises OSError."""
    if libc.syscall(CALL[name], *arguments) == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return "done"


def calls(name, *arguments):
    if name in CALL:
        label = f"call {name} {arguments[0]}" if name == "unshare" else f"call {name}"
        PROBES[label] = lambda: call(name, *arguments)


calls("mount", b"none", b"/tmp", b"tmpfs", 0, None)
calls("umount2", b"/tmp", 2)
calls("pivot_root", b"/tmp", b"/tmp")
calls("chroot", b"/tmp")
for flag in (NEWNS, NEWUSER, NEWNET, NEWCGROUP):
    calls("unshare", flag)
calls("ptrace", 16, 1, 0, 0)
calls("add_key", b"user", b"x", b"y", 1, -2)
calls("keyctl", 0, -3, 0)
calls("bpf", 0, BUFFER, 48)
calls("perf_event_open", BUFFER, 0, -1, -1, 0)
calls("init_module", BUFFER, 1, b"")
calls("kexec_load", 0, 0, 0, 0)
calls("reboot", 0xFEE1DEAD, 672274793, 0, 0)
calls("settimeofday", BUFFER, 0)
calls("clock_settime", 0, BUFFER)
calls("swapon", b"/tmp/x", 0)
calls("open_by_handle_at", -100, BUFFER, 0)
calls("quotactl", 0, 0, 0, 0)
calls("iopl", 3)
calls("sethostname", b"evil", 4)
calls("syslog", 3, BUFFER, 100)
calls("acct", b"/tmp/x")
calls("setuid", 0)
calls("setgid", 0)
calls("setgroups", 1, BUFFER)
calls("fsopen", b"tmpfs", 0)
calls("move_mount", -100, b"/tmp", -100, b"/tmp", 0)
calls("fanotify_init", 0, 0)
calls("lookup_dcookie", 0, BUFFER, 8)
calls("kcmp", 1, os.getpid(), 0, 0, 0)
calls("move_pages", 1, 0, 0, 0, 0, 0)
calls("vhangup")
calls("personality", 0x0010000)
calls("userfaultfd", 0)


@probe
def memory_of_the_launcher():
    pid1 = struct.pack("QQ", ctypes.addressof(BUFFER), 8)
    return call("process_vm_readv", 1, pid1, 1, pid1, 1, 0)


def tries_to_open(label, *paths, flags=os.O_RDWR):
    """Fails with the last error only when every one of the paths refuses."""

    def attempt():
        last = OSError(errno.ENOENT, "")
        for path in paths:
            try:
                os.close(os.open(path, flags))
                return path
            except OSError as error:
                last = error
        raise last

    PROBES[f"open {label}"] = attempt


tries_to_open(
    "root", "/evil", "/etc/evil", "/usr/evil", "/.site/evil", "/data/evil", flags=os.O_RDWR | os.O_CREAT
)
tries_to_open("passwd", "/etc/passwd", "/etc/hosts", "/etc/hostname", "/.site/launcher", "/data/job.json")
tries_to_open(
    "proc",
    "/proc/sys/kernel/hostname",
    "/proc/sys/kernel/core_pattern",
    "/proc/sys/vm/overcommit_memory",
    "/proc/sys/net/ipv4/ip_forward",
    "/proc/sysrq-trigger",
    "/proc/1/oom_score_adj",
    "/proc/1/mem",
    "/proc/irq/default_smp_affinity",
)
tries_to_open("sys", "/sys/kernel/mm/ksm/run", "/sys/power/state", "/sys/kernel/uevent_helper")
tries_to_open(
    "cgroup",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
    "/sys/fs/cgroup/memory/cgroup.procs",
    "/sys/fs/cgroup/memory/release_agent",
    "/sys/fs/cgroup/devices/devices.allow",
    "/sys/fs/cgroup/cgroup.procs",
    "/sys/fs/cgroup/memory.max",
    flags=os.O_WRONLY,
)
tries_to_open(
    "device",
    *(
        f"/dev/{name}"
        for name in ("mem", "kmem", "kmsg", "port", "vda", "sda", "loop0", "loop-control", "fuse")
    ),
    *(f"/dev/{name}" for name in ("kvm", "net/tun", "vhost-net", "nvidia0", "nvidiactl", "dri/card0", "ppp")),
)
tries_to_open(
    "launcher", "/proc/1/fd", "/proc/1/root", "/proc/1/cwd", "/proc/1/environ", "/proc/1/maps", flags=0
)
tries_to_open("host", "/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock")


@probe
def kernel_memory():
    with open("/proc/kcore", "rb") as file:
        return file.read(1) or "nothing"


@probe
def keys_and_timers():
    found = [path for path in ("/proc/keys", "/proc/timer_list", "/proc/sched_debug") if _content(path)]
    return found or "nothing"


def _content(path):
    try:
        with open(path) as file:
            return file.read(1)
    except OSError:
        return ""


@probe
def device_node():
    os.mknod("/data/outputs/vda", 0o600 | 0o060000, os.makedev(254, 0))


@probe
def setuid_file():
    with open("/data/outputs/shell", "wb") as file:
        file.write(b"#!/usr/bin/python3\nimport os\nprint(os.geteuid())\n")
    os.chmod("/data/outputs/shell", 0o4755)
    os.chown("/data/outputs/shell", 0, 0)


@probe
def run_from_tmp():
    with open("/tmp/program", "w") as file:
        file.write("#!/usr/bin/python3\n")
    os.chmod("/tmp/program", 0o755)
    if os.fork() == 0:
        try:
            os.execv("/tmp/program", ["program"])
        except OSError as error:
            os._exit(error.errno or 0)
    code = os.waitstatus_to_exitcode(os.wait()[1])
    raise OSError(code, os.strerror(code)) if code else SystemError("it ran")


@probe
def raise_limits():
    resource.setrlimit(resource.RLIMIT_NOFILE, (1 << 20, 1 << 20))


@probe
def core_dumps():
    resource.setrlimit(resource.RLIMIT_CORE, (1, 1))


@probe
def real_time_priority():
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))


@probe
def be_first():
    os.nice(-5)


@probe
def less_likely_killed():
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write("-500")


@probe
def other_cores():
    os.sched_setaffinity(0, range(64))
    return sorted(os.sched_getaffinity(0))


@probe
def locked_memory():
    size = 1 << 20
    if libc.mlock(ctypes.create_string_buffer(size), ctypes.c_size_t(size)):
        raise OSError(ctypes.get_errno(), "")


@probe
def huge_file():
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with open("/data/outputs/huge", "wb") as file:
        file.truncate(1 << 40)


def opens_socket(label, *arguments):
    PROBES[f"socket {label}"] = lambda: socket.socket(*arguments).close()


opens_socket("packet", 17, socket.SOCK_RAW, 0)
opens_socket("raw", socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
opens_socket("vsock", 40, socket.SOCK_STREAM)
opens_socket("alg", 38, socket.SOCK_SEQPACKET)
opens_socket("netfilter", 16, socket.SOCK_RAW, 12)


def connects(label, address):
    PROBES[f"connect {label}"] = lambda: socket.create_connection(address, timeout=2).close()


connects("metadata", ("169.254.169.254", 80))
connects("internet", ("1.1.1.1", 53))
connects("name", ("example.com", 80))
connects("bridge", ("172.17.0.1", 22))


@probe
def docker_by_abstract_socket():
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect("\0/containerd-shim/x.sock")


@probe
def sockets_of_the_host():
    with open("/proc/net/unix") as file:
        return len(file.readlines()) - 1


@probe
def kill_the_launcher():
    for number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM):
        os.kill(1, number)
    time.sleep(0.05)
    with open("/proc/1/stat") as file:
        return file.read().rpartition(")")[2].split()[0]


@probe
def kill_others():
    os.kill(2**20, 9)


@probe
def forge_the_marker():
    with open("/.site/control/marker", "wb") as file:
        file.write(b'{"v":1,"status":"exited","code":0}' * 100)
    os.unlink("/.site/control/marker")


@probe
def replace_the_log():
    os.rename("/.site/control/stdout", "/.site/control/stderr")


def fills(label, folder):
    def attempt():
        written = 0
        path = f"{folder}/fill"
        try:
            with open(path, "wb", buffering=0) as file:
                while written < 1 << 30:
                    written += file.write(bytes(1 << 16))
        except OSError:
            return written
        finally:
            os.unlink(path)

    PROBES[f"fill {label}"] = attempt


fills("tmp", "/tmp")
fills("run", "/run")
fills("shm", "/dev/shm")


@probe
def inodes():
    made = 0
    try:
        while made < 5000:
            os.close(os.open(f"/run/{made}", os.O_CREAT | os.O_WRONLY))
            made += 1
    except OSError as error:
        return [errno.errorcode[error.errno or 0], made]
    finally:
        for number in range(made):
            os.unlink(f"/run/{number}")
    return ["none", made]


@probe
def fork_bomb():
    children: list[int] = []
    try:
        while len(children) < 5000:
            child = os.fork()
            if child == 0:
                signal.pause()
            children.append(child)
    except OSError as error:
        return [errno.errorcode[error.errno or 0], len(children)]
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    return ["none", len(children)]


@probe
def memory_of_the_host():
    child = os.fork()
    if child == 0:
        hog = [bytes(1 << 20) + b"x" for _ in range(4096)]
        os._exit(len(hog) % 255)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def verdict(function):
    try:
        return ["ok", function()]
    except OSError as error:
        return [errno.errorcode.get(error.errno or 0, type(error).__name__), None]
    except (ValueError, AttributeError, SystemError, MemoryError) as error:
        return [type(error).__name__, str(error)]


json.dump({name: verdict(function) for name, function in PROBES.items()}, sys.stdout, default=str)
sys.stdout.flush()
