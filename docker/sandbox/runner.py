"""Runs the function of a function job. The site starts it as the main process of the job's container; see README.md.

The parent, which the function cannot read or write to, starts the function in a child of its own (`python -I`), waits
until the child and everything it left behind are dead, and only then writes `result.json` itself. So a result.json of
the function's own making is replaced, and a process that ended without returning is told as just that.
"""

import contextlib
import ctypes
import importlib
import json
import lzma
import math
import os
import posixpath
import signal
import stat
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import traceback
import zipfile
import zlib
from pathlib import Path

JOB_FILE = Path(os.environ.get("JOB_FILE", "/data/job.json"))
CODE = JOB_FILE.parent / "code"
INPUTS = Path(os.environ.get("JOB_INPUTS", "/data/inputs"))
OUTPUTS = Path(os.environ.get("JOB_OUTPUTS", "/data/outputs"))

LARGEST_RESULT = 1 << 20  # bytes of result.json
LONGEST_ERROR = 2000  # characters
LONGEST_TRACEBACK = 16_000
LARGEST_CODE = 64 << 20  # bytes of an unpacked bundle
MOST_MEMBERS = 4096
BROKEN = (
    *(tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError),
    *(EOFError, OSError, RuntimeError, ValueError),
)
LOADED = {"loaded": True}
BAD_CANDIDATE = [0, False]
PR_SET_DUMPABLE = 4
NOT_WRITTEN = 3  # exit code when result.json could not be written


class Unusable(Exception):
    """The bundle, or what it should hold, cannot be used. The message is for whoever sent it."""


# -- the parent


def main():
    """Run the function; exit code 0 with an "ok" in result.json, 1 with an "error", the child's signal, or 3."""
    document = json.loads(JOB_FILE.read_bytes())
    hide()
    reserve = reserved_space()
    envelope = evaluate(document) if document["role"] == "evaluate" else call_once()
    if reserve is not None:
        os.close(reserve)
    try:
        write_envelope(envelope)
    except OSError as error:
        print(f"runner: result.json could not be written: {error}", file=sys.stderr, flush=True)
        return NOT_WRITTEN
    return 0 if envelope["status"] == "ok" else 1


def hide():
    """Undumpable: the child has the same user, and could otherwise write into this process's memory."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "the runner cannot protect itself")


def reserved_space():
    """Room for result.json in a file without a name, so that a function that fills the disk can be told of."""
    try:
        reserve = os.open(OUTPUTS, os.O_TMPFILE | os.O_RDWR, 0o600)
    except OSError:
        return None
    with contextlib.suppress(OSError):
        os.posix_fallocate(reserve, 0, LARGEST_RESULT + 4096)
    return reserve


def call_once():
    """The envelope of one call. A child that died by a signal takes this process along: that outranks any envelope."""
    code, said = run_child("")
    if code < 0:
        die_by(-code)
    return read_report(code, said)[1]


def evaluate(document):
    """Each candidate in a child of its own, so that none can harm or change another's score."""
    scores = {}
    for name in document["args"]["candidates"]:
        code, said = run_child(name)
        loaded, report = read_report(code, said)
        if not loaded:  # the bundle's fault, not the candidate's
            if code < 0:
                die_by(-code)
            return report
        scores[name] = score_of(report)
        if report["status"] == "error":
            print(f"candidate {name}: {report['error']}", file=sys.stderr, flush=True)
    return {"status": "ok", "result": scores}


def score_of(report):
    """[score, eligible] as the function returned it; [0, false] for anything else."""
    found = report.get("result")
    if not isinstance(found, list) or len(found) != 2 or not isinstance(found[1], bool):
        return BAD_CANDIDATE
    if isinstance(found[0], bool) or not isinstance(found[0], (int, float)) or not math.isfinite(found[0]):
        return BAD_CANDIDATE
    return found


def run_child(candidate):
    """Exit code (minus the signal) of a child, and what it said; nothing that it started is alive any more."""
    reading, writing = os.pipe()
    command = [sys.executable, "-I", "-B", __file__, "--child", str(writing), candidate]
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=(writing,))
    os.close(writing)
    said = bytearray()
    reader = threading.Thread(target=read_all, args=(reading, said), daemon=True)
    reader.start()
    code = child.wait()
    kill_others()
    reader.join(10)  # nobody is left who could hold the pipe open
    return code, bytes(said)


def read_all(reading, said):
    """Everything that comes, so that nobody blocks; of too much only so much that this can be told."""
    with os.fdopen(reading, "rb", buffering=0) as pipe:
        while block := pipe.read(1 << 16):
            if len(said) <= 2 * LARGEST_RESULT:
                said += block


def kill_others():
    """Kill every other process of the container but its first, which nobody inside can kill."""
    if os.getuid() == 0 or 1 not in (os.getpid(), os.getppid()):
        return  # not in a sandbox: "all others" would be the machine's
    for _ in range(200):
        try:
            os.kill(-1, signal.SIGKILL)
        except ProcessLookupError:
            return
        time.sleep(0.005)  # until the dead have been taken


def die_by(number):
    signal.signal(number, signal.SIG_DFL) if number not in (signal.SIGKILL, signal.SIGSTOP) else None
    os.kill(os.getpid(), number)
    os._exit(128 + number)  # a signal that did not end us


def read_report(code, said):
    """Whether the function was found, and the envelope that the child's words and its exit code make."""
    *lines, rest = said.split(b"\n")
    reports = [parsed(line) for line in lines]
    loaded = bool(reports) and reports[0] == LOADED
    report = reports[-1] if len(reports) == 1 + loaded and not rest else None
    if code != 0 or not reports or reports == [LOADED]:
        how = f"by the signal {-code}" if code < 0 else f"with exit code {code}"
        return loaded, failure(f"The function's process ended {how}, without returning.")
    if len(said) > LARGEST_RESULT:
        return loaded, failure(f"The result is larger than {LARGEST_RESULT} bytes.")
    if not is_envelope(report):
        return loaded, failure("The function's process did not tell a result in the runner's own form.")
    return loaded, report


def parsed(line):
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def is_envelope(report):
    if not isinstance(report, dict):
        return False
    if report.get("status") == "ok":
        return set(report) == {"status", "result"}
    texts = (report.get("error"), report.get("traceback"))
    return report.get("status") == "error" and len(report) == 3 and all(isinstance(t, str) for t in texts)


def failure(error, told=""):
    return {
        "status": "error",
        "error": clean(error[:LONGEST_ERROR]),
        "traceback": clean(told[-LONGEST_TRACEBACK:]),
    }


def clean(text):
    """Without what is no character, so that the site can keep it."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")


def write_envelope(envelope):
    """Replace whatever the function left under that name. Nobody else is alive to interfere."""
    OUTPUTS.chmod(0o700)
    target = OUTPUTS / "result.json"
    descriptor, part = tempfile.mkstemp(prefix=".result-", dir=OUTPUTS)
    with os.fdopen(descriptor, "wb") as file:
        file.write(json.dumps(envelope).encode())
    if target.is_dir() and not target.is_symlink():
        os.rename(target, f"{part}.folder")
    os.replace(part, target)


# -- the child


def child(channel, candidate):
    """Load the bundle, call the function, tell the parent; prints go to the job's log."""
    document = json.loads(JOB_FILE.read_bytes())
    try:
        function = load(document["function"])
    except Unusable as error:
        return tell(channel, failure(str(error)))
    except BaseException as error:  # noqa: BLE001 - a module may raise anything while it is imported
        return tell(channel, told(error))
    tell(channel, LOADED)
    inputs = {entry["name"]: INPUTS / entry["name"] for entry in document["inputs"]}
    first = [inputs[candidate]] if document["role"] == "evaluate" else []
    try:
        result = function(*first, inputs, OUTPUTS, document["args"])
        report = {"status": "ok", "result": result}
        text = json.dumps(report, allow_nan=False)
    except BaseException as error:  # noqa: BLE001 - sys.exit() included: it is no return
        report = told(error)
        text = json.dumps(report)
    if len(text) > LARGEST_RESULT - 64:
        text = json.dumps(failure(f"The result is larger than {LARGEST_RESULT} bytes."))
    return write_all(channel, text)


def tell(channel, report):
    write_all(channel, json.dumps(report))


def write_all(channel, text):
    rest = memoryview(text.encode() + b"\n")
    while rest:
        rest = rest[os.write(channel, rest) :]


def told(error):
    """An exception as an envelope, without the runner's own frames."""
    try:
        inner = error.__traceback__.tb_next if error.__traceback__ else None
        lines = traceback.format_exception(type(error), error, inner)
        return failure(traceback.format_exception_only(type(error), error)[-1].strip(), "".join(lines))
    except Exception:  # noqa: BLE001 - its own words cannot be had
        return failure(type(error).__name__)


def load(entry):
    """The function that `entry` ("module:function") names in the bundle. Raises Unusable, or what the module raises."""
    folder = tempfile.mkdtemp(prefix="code-")
    unpack(CODE / "bundle", Path(folder))
    sys.path.insert(0, folder)
    module_name, _, name = entry.partition(":")
    function = getattr(importlib.import_module(module_name), name, None)
    if function is None:
        raise Unusable(f"The module {module_name} has no {name}.")
    if not callable(function):
        raise Unusable(f"{entry} is not callable.")
    return function


def unpack(bundle, folder):
    """Write the bundle's files below `folder`: plain files and folders with plain names, nothing else. Raises Unusable."""
    try:
        members = zip_members(bundle) if zipfile.is_zipfile(bundle) else tar_members(bundle)
        room = LARGEST_CODE
        for count, (name, kind, content) in enumerate(members, 1):
            if count > MOST_MEMBERS:
                raise Unusable(f"The bundle has more than {MOST_MEMBERS} members.")
            target = folder.joinpath(*plain_parts(name))
            if kind == "folder":
                target.mkdir(parents=True, exist_ok=True)
            elif kind == "file":
                target.parent.mkdir(parents=True, exist_ok=True)
                room -= write_file(target, content, room)
            else:
                raise Unusable(f"The bundle holds {name!r:.200}, which is no plain file.")
    except BROKEN as error:
        raise Unusable(f"The bundle cannot be unpacked: {error}") from error


def zip_members(bundle):
    with zipfile.ZipFile(bundle) as archive:
        for info in archive.infolist():
            mode = info.external_attr >> 16
            special = stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR)
            kind = "special" if special else "folder" if info.is_dir() else "file"
            with archive.open(info) as content:
                yield info.filename, kind, content


def tar_members(bundle):
    with tarfile.open(bundle, "r:gz") as archive:
        for info in archive:
            kind = "folder" if info.isdir() else "file" if info.isreg() and not info.issparse() else "special"
            yield info.name, kind, archive.extractfile(info) if kind == "file" else None


def plain_parts(name):
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if posixpath.isabs(name) or ".." in parts or "\\" in name or not name.isprintable():
        raise Unusable(f"The bundle holds {name!r:.200}, which is no plain path below it.")
    return parts


def write_file(target, content, room):
    size = 0
    with target.open("xb") as file:
        while block := content.read(1 << 16):
            size += len(block)
            if size > room:
                raise Unusable(f"The bundle is larger than {LARGEST_CODE} bytes when unpacked.")
            file.write(block)
    return size


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(int(sys.argv[2]), sys.argv[3])
    else:
        sys.exit(main())
