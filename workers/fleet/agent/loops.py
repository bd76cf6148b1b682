"""The agent at work: register, then two loops beside each other, signs of life and work; one thread for each replica."""

import base64
import hashlib
import logging
import random
import threading
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, Protocol

from workers.fleet import manifest
from workers.fleet.agent.config import Config
from workers.fleet.agent.health import Health
from workers.fleet.agent.running import Finished, NotWanted, Progress
from workers.fleet.agent.spool import Spool
from workers.fleet.client import RefusedRequest, SignedClient, Unreachable, result_body

log = logging.getLogger("agent")

VERSION = "1"
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
ALTERATION = b"?"
LOST = {HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT}
NEVER_TAKEN = LOST | {HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_ENTITY_TOO_LARGE}


class Runs(Protocol):
    """What carries an assignment out."""

    def run(self, assignment: Mapping[str, Any], slot: int, progress: Progress) -> Finished: ...


class Agent:
    """One worker key at one site. `code` is the exit status once it has stopped."""

    def __init__(
        self, config: Config, client: SignedClient, sandbox: Runs, health: Health | None = None
    ) -> None:
        self.config = config
        self.client = client
        self.sandbox = sandbox
        self.health = health or Health()
        self.spool = Spool(config.state_dir / "results")
        self.id = ""
        self.ttl = 120.0
        self.code = 0
        self.why = ""
        self.stopping = threading.Event()
        self._slots = set(range(config.slots))
        self._lock = threading.Lock()
        self._reporting = threading.Lock()
        self._threads: list[threading.Thread] = []

    def work(self) -> int:
        """Until `stop`, a retirement or a refusal; returns the exit status. Replicas at work are left to their end."""
        if self._again(self.register):
            beats = threading.Thread(target=self._beats, name="heartbeat", daemon=True)
            beats.start()
            while not self.stopping.is_set():
                self._again(self.pass_once)
                self.stopping.wait(self.config.poll)
            for thread in self._threads:
                thread.join()
            beats.join()
        log.info("stopped%s", f": {self.why}" if self.why else "")
        return self.code

    def stop(self, code: int = 0, why: str = "") -> None:
        """Take nothing new and end."""
        if not self.stopping.is_set():
            self.code, self.why = code, why
            self.stopping.set()

    def register(self) -> None:
        """Tell the site who we are; then the first heartbeat. Raises Unreachable, RefusedRequest."""
        told = self.client.call("POST", "/workers/register", {**self.config.binding(), "version": VERSION})
        self.id, self.ttl = told["id"], float(told["ttl"])
        self.beat()
        log.info("registered as %s, active", self.id)

    def beat(self) -> None:
        """One heartbeat, with what this machine has. Raises as `register`."""
        self.client.call("POST", f"/workers/{self.id}/heartbeat", {"version": VERSION, **self.health.told()})

    def pass_once(self) -> None:
        """Report what has ended, then take as much as there are free slots. Raises as `register`."""
        self.report_all()
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        with self._lock:
            free = len(self._slots)
        if not free:
            return
        for assignment in self.client.call("POST", "/workers/assignments/pull", {"limit": free}):
            with self._lock:
                slot = self._slots.pop()
            thread = threading.Thread(target=self._carry_out, args=(assignment, slot), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _carry_out(self, assignment: Mapping[str, Any], slot: int) -> None:
        log.info("unit %s: running", assignment["unit"])
        try:
            finished = self.sandbox.run(assignment, slot, lambda tail: self._progress(assignment, tail))
        except NotWanted:
            log.info("unit %s: not ours any more", assignment["unit"])
            return
        except Exception as error:  # whatever it is, the agent goes on and the site hears of it
            log.exception("unit %s: a fault of the agent", assignment["unit"])
            finished = Finished(reason="internal_error", detail=f"{type(error).__name__}: {error}"[:1000])
        finally:
            with self._lock:
                self._slots.add(slot)
        self.spool.put(assignment, finished.as_json())
        self._again(self.report_all)

    def report_all(self) -> None:
        """Send every result that the site has not acknowledged, one after the other. Raises as `register`."""
        with self._reporting:
            for kept in self.spool.waiting():
                self.report(kept)

    def _progress(self, assignment: Mapping[str, Any], tail: str) -> bool:
        """False when the assignment is not ours any more; neither silence nor another refusal is a reason to stop."""
        body = {"token": assignment["token"], "log": tail}
        try:
            self.client.call("POST", f"/workers/assignments/{assignment['id']}/progress", body)
        except Unreachable as error:
            log.warning("no answer: %s", error)
        except RefusedRequest as error:
            log.warning("unit %s: %s", assignment["unit"], error)
            return error.status not in LOST and error.code != "retired"
        return True

    def report(self, kept: Mapping[str, Any]) -> None:
        """Send one result; forget it once the site has it, or says that it will never take it.

        Whatever else it answers (our clock is wrong, the binding is over) the result is kept. Raises as `register`.
        """
        assignment = kept["assignment"]
        body = self._body(assignment, kept["finished"])
        try:
            told = self.client.call("POST", f"/workers/assignments/{assignment['id']}/result", body)
            log.info("unit %s: %s", assignment["unit"], told["status"])
        except RefusedRequest as error:
            log.warning("unit %s: its result was refused: %s", assignment["unit"], error)
            if error.status not in NEVER_TAKEN and error.code != "proof_invalid":
                raise
        self.spool.drop(assignment["id"])

    def _body(self, assignment: Mapping[str, Any], finished: Mapping[str, Any]) -> dict[str, Any]:
        if finished["reason"]:
            failure = {"reason": finished["reason"], "detail": finished["detail"]}
            return {"token": assignment["token"], "success": False, **failure}
        contents = {digest: base64.b64decode(text) for digest, text in finished["contents"].items()}
        files = [(path, size, digest) for path, size, digest in finished["files"]]
        if self.config.alter_outputs and files:
            files, contents = _altered(files, contents)
        found, sha256 = manifest.build(finished["exit_code"], files)
        return result_body(
            self.client,
            assignment,
            manifest=found,
            sha256=sha256,
            contents=contents,
            run_seconds=finished["run_seconds"],
            log=finished.get("log", {}),  # none in what an older agent has kept
        )

    def _beats(self) -> None:
        while not self.stopping.wait(self.ttl / 2):
            self._again(self.beat)

    def _again(self, call: Callable[[], None]) -> bool:
        """Until it is done: silence is waited out with growing pauses, a refusal decides. False when we stop."""
        pause = FIRST_PAUSE
        while not self.stopping.is_set():
            try:
                call()
                return True
            except Unreachable as error:
                log.warning("no answer: %s", error)
                self.stopping.wait(random.uniform(0, pause))  # full jitter
                pause = min(LONGEST_PAUSE, 2 * pause)
            except RefusedRequest as error:
                if not self._repair(error):
                    return False
        return False

    def _repair(self, error: RefusedRequest) -> bool:
        """What a refusal means: unknown → register again, stale → a heartbeat; anything else ends the agent."""
        try:
            if error.code == "retired":
                self.stop(0, "the site has retired this worker")
            elif error.status == HTTPStatus.NOT_FOUND and self.id:
                self.register()
            elif error.code == "not_active":
                self.beat()
            else:
                self.stop(1, str(error))
        except Unreachable as unreachable:
            log.warning("no answer: %s", unreachable)
        except RefusedRequest as again:
            self.stop(0 if again.code == "retired" else 1, str(again))
        return not self.stopping.is_set()


def _altered(
    files: list[tuple[str, int, str]], contents: Mapping[str, bytes]
) -> tuple[list[tuple[str, int, str]], dict[str, bytes]]:
    """The lie: the first output gets one byte more, with everything else in good order."""
    (path, _, sha256), *rest = sorted(files)
    data = contents[sha256] + ALTERATION
    digest = hashlib.sha256(data).hexdigest()
    return [(path, len(data), digest), *rest], {**contents, digest: data}
