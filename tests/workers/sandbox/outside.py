"""A machine outside, as jobs see it: a network namespace behind the host, with addresses that are not private."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PORT = 7777
ECHO = """
import selectors, socket, sys
wait = selectors.DefaultSelector()
for address in sys.argv[1:]:
    for port in (7777, 53):
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            sock = socket.socket(socket.AF_INET, kind)
            sock.bind((address, port))
            if kind == socket.SOCK_STREAM:
                sock.listen()
            wait.register(sock, selectors.EVENT_READ)
print("ready", flush=True)
while True:
    for key, _ in wait.select():
        sock = key.fileobj
        if sock.type == socket.SOCK_DGRAM:
            data, sender = sock.recvfrom(99)
            sock.sendto(data, sender)
        else:
            made, _ = sock.accept()
            with made:
                made.sendall(made.recv(99))
"""


@dataclass(frozen=True)
class Outside:
    """Two machines outside in one (`peer`, `other`), and the address of the host on their side."""

    peer: str
    other: str
    host: str
    interface: str


def command(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)


def let_through(interface: str) -> None:
    """The host routes what comes in there; an engine that gives jobs a network does that for its bridges."""
    Path(f"/proc/sys/net/ipv4/conf/{interface}/forwarding").write_text("1")


@contextmanager
def outside() -> Iterator[Outside]:
    """Made, and gone afterwards. Every test process has a network of its own, so that several run side by side."""
    name, third = f"cs-o{os.getpid()}", os.getpid() % 250
    there = Outside(f"11.77.{third}.2", f"11.77.{third}.3", f"11.77.{third}.1", name)
    command("ip", "netns", "add", name)
    inside = ("ip", "-n", name)
    server = None
    try:
        command("ip", "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
        command("ip", "addr", "add", f"{there.host}/24", "dev", name)
        command("ip", "link", "set", name, "up")
        for address in (there.peer, there.other):
            command(*inside, "addr", "add", f"{address}/24", "dev", "eth0")
        command(*inside, "link", "set", "eth0", "up")
        command(*inside, "route", "add", "default", "via", there.host)
        let_through(name)
        started = [
            *("ip", "netns", "exec", name),
            *(sys.executable, "-I", "-c", ECHO, there.peer, there.other),
        ]
        server = subprocess.Popen(started, stdout=subprocess.PIPE)
        assert server.stdout is not None
        assert server.stdout.readline() == b"ready\n"
        yield there
    finally:
        if server is not None:
            server.kill()
            server.communicate()
        subprocess.run(["ip", "link", "del", name], check=False, capture_output=True)
        command("ip", "netns", "del", name)
