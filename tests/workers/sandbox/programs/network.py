"""A job with a network tries what it is not to reach; one JSON object on stdout: name of the try, and what came of it.

`argv[1]` is JSON: `closed` (name to address), `peer`, `other` (addresses outside), `port` (that all of them listen on).
"""

import ctypes
import errno
import fcntl
import json
import socket
import struct
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

ASKED = json.loads(sys.argv[1])
PORT = ASKED["port"]
PKTINFO, OPTIONS = 8, 4  # of level IP
LOOSE_ROUTE = bytes([131, 7, 4]) + socket.inet_aton(ASKED["other"]) + b"\0"


def tcp(address, port=PORT, interface=""):
    with socket.socket() as sock:
        sock.settimeout(1)
        if interface:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface.encode())
        sock.connect((address, port))
        sock.sendall(b"tcp")
        return sock.recv(9).decode()


def udp(address, port=PORT, interface="", options=b""):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(1)
        if interface:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface.encode())
        if options:
            sock.setsockopt(socket.SOL_IP, OPTIONS, options)
        sock.sendto(b"udp", (address, port))
        return sock.recv(9).decode()


def by_interface(address):
    """The interface of one datagram, named beside it."""
    info = struct.pack("=I4s4s", socket.if_nametoindex("eth0"), b"\0" * 4, b"\0" * 4)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(1)
        sock.sendmsg([b"udp"], [(socket.SOL_IP, PKTINFO, info)], 0, (address, PORT))
        return sock.recv(9).decode()


def broadcast():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        return sock.sendto(b"all", ("255.255.255.255", PORT))


def ipv6(address):
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sock:
        scope = socket.if_nametoindex("eth0") if address.startswith(("fe80", "ff02")) else 0
        return sock.sendto(b"six", (address, PORT, 0, scope))


def own_socket(family, kind, protocol):
    socket.socket(family, kind, protocol).close()
    return "made"


def ask_the_kernel(message_type, body):
    """One message about routes and addresses; the kernel's answer as an error."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as sock:
        sock.settimeout(2)
        sock.send(struct.pack("=IHHII", 16 + len(body), message_type, 0x605, 1, 0) + body)
        answer = sock.recv(4096)
    error = -struct.unpack("=i", answer[16:20])[0]
    if error:
        raise OSError(error, errno.errorcode[error])
    return "changed"


def interface_down():
    with socket.socket() as sock:
        fcntl.ioctl(sock, 0x8914, struct.pack("16sH14x", b"eth0", 0))
    return "down"


def new_namespace():
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(0x40000000 | 0x10000000) < 0:
        raise OSError(ctypes.get_errno(), "unshare")
    return "made"


def write(path):
    with open(path, "w") as file:
        file.write("1")
    return "written"


def route():
    """A route of its own to everything: family 2, table 254, scope link, by the interface."""
    attribute = struct.pack("=HHI", 8, 4, socket.if_nametoindex("eth0"))
    return struct.pack("=BBBBBBBBI", 2, 0, 0, 0, 254, 3, 253, 1, 0) + attribute


TRIES = {
    "peer tcp": lambda: tcp(ASKED["peer"]),
    "peer udp": lambda: udp(ASKED["peer"]),
    "other tcp": lambda: tcp(ASKED["other"]),
    "peer, by its device": lambda: tcp(ASKED["peer"], interface="eth0"),
    "names of the resolver, udp": lambda: udp(ASKED["peer"], 53),
    "names of the resolver, tcp": lambda: tcp(ASKED["peer"], 53),
    "names of another, udp": lambda: udp(ASKED["other"], 53),
    "names of another, tcp": lambda: tcp(ASKED["other"], 53),
    "a way round, in the header": lambda: udp(ASKED["peer"], options=LOOSE_ROUTE),
    "broadcast": broadcast,
    "all hosts": lambda: udp("224.0.0.1"),
    "ipv6 outside": lambda: ipv6("2001:4860:4860::8888"),
    "ipv6 beside": lambda: ipv6("ff02::1"),
    "ipv6 link": lambda: ipv6("fe80::1"),
    "ipv6 in ipv4": lambda: udp("192.88.99.1"),
    "raw socket": lambda: own_socket(socket.AF_INET, socket.SOCK_RAW, 255),
    "icmp socket": lambda: own_socket(socket.AF_INET, socket.SOCK_DGRAM, 1),
    "packet socket": lambda: own_socket(socket.AF_PACKET, socket.SOCK_RAW, 0x300),
    "packet socket, cooked": lambda: own_socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0x300),
    "rules": lambda: own_socket(socket.AF_NETLINK, socket.SOCK_RAW, 12),
    "a route of its own": lambda: ask_the_kernel(24, route()),
    "interface down": interface_down,
    "a namespace of its own": new_namespace,
    "forwarding": lambda: write("/proc/sys/net/ipv4/ip_forward"),
    "ipv6 on": lambda: write("/proc/sys/net/ipv6/conf/all/disable_ipv6"),
    "resolvers of its own": lambda: write("/etc/resolv.conf"),
}
for name, address in ASKED["closed"].items():
    TRIES[f"{name} tcp"] = partial(tcp, address)
    TRIES[f"{name} udp"] = partial(udp, address)
    TRIES[f"{name} tcp, by its device"] = partial(tcp, address, interface="eth0")
    TRIES[f"{name} udp, by its device"] = partial(udp, address, interface="eth0")
    TRIES[f"{name} udp, with its device"] = partial(by_interface, address)


def outcome(tried):
    try:
        return ["ok", tried()]
    except TimeoutError:
        return ["no answer", None]
    except OSError as error:
        return ["refused", errno.errorcode.get(error.errno or 0, str(error))]


with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own, ThreadPoolExecutor(64) as pool:
    own.bind(("127.0.0.1", 0))
    found = {name: pool.submit(outcome, tried) for name, tried in TRIES.items()}
    sent = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sent.sendto(b"own", own.getsockname())
    told = {name: result.result() for name, result in found.items()}
    told["own loopback"] = ["ok", own.recv(9).decode()]
    told["/etc/resolv.conf"] = ["ok", Path("/etc/resolv.conf").read_text()]
    told["localhost"] = ["ok", socket.gethostbyname("localhost")]
    told["hostname"] = ["ok", socket.gethostname()]
print(json.dumps(told), flush=True)
