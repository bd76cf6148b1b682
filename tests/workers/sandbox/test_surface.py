"""The site's own seccomp list, over the engine's: what is closed, and that ordinary programs do not notice."""

import json

import pytest

from tests.workers.sandbox.conftest import PROGRAMS, Maker

pytestmark = pytest.mark.engine

ORDINARY = """
import asyncio, ctypes, hashlib, multiprocessing, os, select, socket, sqlite3, subprocess, sys, tempfile, threading

async def echo():
    async def serve(reader, writer):
        writer.write(await reader.read(5))
        await writer.drain()
        writer.close()
    server = await asyncio.start_server(serve, '127.0.0.1', 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    writer.write(b'hello')
    assert await reader.read(5) == b'hello'
    process = await asyncio.create_subprocess_exec(sys.executable, '-c', 'print(6 * 7)', stdout=subprocess.PIPE)
    assert await process.stdout.read() == b'42\\n'
    await process.wait()
    server.close()

def square(x):
    return x * x

asyncio.run(echo())
with multiprocessing.get_context('fork').Pool(3) as pool:
    assert pool.map(square, range(9)) == [x * x for x in range(9)]
lock = multiprocessing.Lock()
assert lock.acquire(timeout=1)
threads = [threading.Thread(target=hashlib.sha256, args=(b'x',)) for _ in range(20)]
for thread in threads: thread.start()
for thread in threads: thread.join()
base = sqlite3.connect('/data/outputs/base.sqlite')
base.execute('create table t (x)')
base.commit()
with tempfile.TemporaryFile() as file:
    os.sendfile(file.fileno(), os.open('/data/job.json', os.O_RDONLY), 0, 2)
assert [name for _, name in socket.if_nameindex()] == ['lo']
select.epoll().close()
os.memfd_create('x')
print('well')
"""


def test_what_computing_does_not_need_is_closed(make: Maker, sandbox_image: str) -> None:
    program = (PROGRAMS / "surface.py").read_text()
    run = make(sandbox_image, argv=("python3", "-c", program)).whole()
    assert run.errors == b""
    seen = json.loads(run.log)
    assert {name for name, said in seen["closed"].items() if said == "ok"} == set()
    # Whichever of the two lists answers, each of these is refused by one of them and not by chance.
    assert set(seen["closed"].values()) <= {"ENOSYS", "EPERM", "EAFNOSUPPORT", "EPROTONOSUPPORT"}
    assert len(seen["closed"]) >= 33
    assert set(seen["open"].values()) == {"ok"}


def test_the_list_is_on_top_of_the_engines(make: Maker, sandbox_image: str) -> None:
    program = (
        "print(next(l for l in open('/proc/self/status') if l.startswith('Seccomp_filters')).split()[1])"
    )
    run = make(sandbox_image, argv=("python3", "-c", program)).whole()
    assert int(run.log) >= 2


def test_ordinary_programs_do_not_notice(make: Maker, sandbox_image: str) -> None:
    run = make(
        sandbox_image, argv=("python3", "/data/inputs/p.py"), inputs={"p.py": ORDINARY.encode()}
    ).whole()
    assert (run.log, run.errors) == (b"well\n", b"")
