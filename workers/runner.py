"""What a knock does: claim steps and take jobs until there is nothing to do. One natural path, one room per step."""

import logging
from collections.abc import Callable
from contextlib import suppress

from django.db import InterfaceError, OperationalError, close_old_connections

from compute_site.core.errors import AttemptFailed, ExecutionFailed, InfrastructureFailed, StaleToken
from environments.models import Engine
from environments.reservations import revoke
from jobs.models import Attempt, AttemptStatus, Job
from jobs.models.attempt import FINAL
from jobs.outcome import Outcome
from jobs.settlement import abandon, settle
from workers import beside, granting, images, scanning
from workers.checkpoint import checkpoint
from workers.claims import LOST_TRIES, claim_step, give_back, load
from workers.cleaning import NotClean, clean, hold_name
from workers.collection import collect_and_settle
from workers.engines import Connection, WrongEngine, connect
from workers.gates import NoGate
from workers.hands import nudge
from workers.lifecycle import at_work
from workers.models import Worker
from workers.sandbox.docker import EngineUnreachable
from workers.scheduling import take
from workers.steps import Cancelled, Run, Vanished, prepare_and_start

log = logging.getLogger(__name__)

PATIENCE = 2.0  # seconds before a step is tried again when the engine was silent
STORE_TRIES = 5
DATABASE_DOWN = (
    OperationalError,
    InterfaceError,
)  # nothing can be written about it; the lease lapses by itself


def work(engine: Engine, worker: Worker) -> bool:
    """Find one thing to do on the engine and do it; False when there is nothing, or nothing that fits.

    As soon as it is found somebody else is asked to look, so that one thing does not wait for another.
    """
    try:
        link = connect(engine)
    except (EngineUnreachable, WrongEngine) as error:
        log.warning("engine %s: %s", engine.name, error)
        return False
    run = claim_step(link, worker) or _take(link, worker)
    if run is None:
        return False
    nudge(engine)
    advance(run)
    return True


def advance(run: Run) -> None:
    """Carry one claimed attempt as far as it goes: to running, or from its end to clean."""
    with at_work(run.lease):
        _advance_or_give_back(run)


def _advance_or_give_back(run: Run) -> None:
    try:
        _advance(run)
    except (StaleToken, Attempt.DoesNotExist) as error:
        log.info("attempt %s: dropped, %s", run.attempt.short_id, error)
        give_back(run)  # changes nothing when the step is somebody else's
        nudge(run.connection.engine)  # whoever looked for its next step meanwhile found it held
    except EngineUnreachable as error:
        log.warning("attempt %s: the engine is silent, waiting: %s", run.attempt.short_id, error)
        give_back(run, after=PATIENCE)
    except NotClean as error:
        log.warning("attempt %s: leftover, %s", run.attempt.short_id, error)
        give_back(run, after=PATIENCE, leftover=str(error))
    except DATABASE_DOWN as error:
        log.warning("attempt %s: the database is silent: %s", run.attempt.short_id, error)
        close_old_connections()
        with suppress(*DATABASE_DOWN):  # else the lease lapses
            give_back(run, after=PATIENCE)


def _take(link: Connection, worker: Worker) -> Run | None:
    taken = take(link.engine, worker)
    if taken is None:
        return None
    assert taken.attempt.lease is not None
    log.info(
        "job %s: taken, attempt %d on cores %s", taken.attempt.job, taken.attempt.number, taken.attempt.cores
    )
    return Run(taken.attempt, taken.attempt.job, taken.attempt.lease, link)


def _advance(run: Run) -> None:
    if run.attempt.status in (AttemptStatus.PREPARING, AttemptStatus.CREATED, AttemptStatus.STARTING):
        if not _begin(run):
            return
    elif run.attempt.status == AttemptStatus.COLLECTING:
        _finish(run)
    if run.attempt.status in FINAL:
        clean(run)


def _begin(run: Run) -> bool:
    """Steps 3 to 7. True when the attempt ended instead of starting, so that it has to be cleaned."""
    try:
        if run.attempt.step_tries >= LOST_TRIES:
            raise InfrastructureFailed(
                "worker_lost_too_often", f"step {run.attempt.status} tried {LOST_TRIES} times"
            )
        image = None
        if run.attempt.status == AttemptStatus.PREPARING and not run.job.cancel_requested_at:
            image = images.local_image(run)
            if image is None:
                return _step_beside(run, "pulling", images.pull)
            if not scanning.may_run(run, image):
                return _step_beside(run, "scanning", scanning.scan_image)
            checkpoint("image.after")
        prepare_and_start(run, image)
    except Cancelled:
        return _end(run, Outcome(reason="cancelled"))
    except Vanished:
        return _give_up(run)
    except EngineUnreachable:
        raise
    except NoGate as error:
        ended = _end(run, Outcome(reason=error.reason, detail=error.detail))
        # Until it is tried again no other job of the engine is started like this. Not on the word of who has lost the
        # step: its gate was removed by whoever has it.
        granting.refuse(run.connection.engine, error.detail)
        return ended
    except AttemptFailed as error:
        return _end(run, Outcome(reason=error.reason, detail=error.detail))
    except (StaleToken, *DATABASE_DOWN):
        raise
    except Exception as error:
        log.exception("attempt %s failed by a fault of ours", run.attempt.short_id)
        return _end(run, Outcome(reason="internal_error", detail=f"{type(error).__name__}: {error}"))
    return False


def _step_beside(run: Run, phase: str, step: Callable[[Run], object]) -> bool:
    """Do `step` beside the others, then begin again. False: the attempt has not ended."""
    _phase(run, phase)
    beside.go_on_beside(run, phase, lambda run: _continue_after(run, step))
    return False


def _continue_after(run: Run, step: Callable[[Run], object]) -> None:
    """In a thread of its own: the step, then go on as if it had never been needed."""
    with at_work(run.lease):
        try:
            step(run)
        except EngineUnreachable as error:
            log.warning("attempt %s: the engine went silent: %s", run.attempt.short_id, error)
            give_back(run, after=PATIENCE)
            return
        except (AttemptFailed, Cancelled) as error:
            reason, detail = (
                ("cancelled", "") if isinstance(error, Cancelled) else (error.reason, error.detail)
            )
            _end_and_clean(run, Outcome(reason=reason, detail=detail))
            return
        except (StaleToken, *DATABASE_DOWN):
            raise
        except Exception as error:
            log.exception("attempt %s: failed by a fault of ours", run.attempt.short_id)
            _end_and_clean(run, Outcome(reason="internal_error", detail=f"{type(error).__name__}: {error}"))
            return
        fresh = load(run.attempt.pk, run.lease, run.connection)
        fresh.scanned = run.scanned
        advance(fresh)


def _end_and_clean(run: Run, outcome: Outcome) -> None:
    if _end(run, outcome):
        advance(run)


def _end(run: Run, outcome: Outcome) -> bool:
    """Settle an attempt whose container never ran. True: the row is final now and has to be cleaned."""
    if run.attempt.status == AttemptStatus.STARTING and _may_have_started(run):
        give_back(run, after=PATIENCE)
        return False
    if not settle(run.attempt, run.lease, outcome):
        raise StaleToken("ended by somebody else")
    run.attempt.refresh_from_db(fields=["status", "exit_facts"])
    return True


def _may_have_started(run: Run) -> bool:
    """Never end as not started what runs or ran: then the watcher has the word."""
    facts = run.connection.client.inspect(run.attempt.container_id)
    return facts is not None and facts.status != "created"


def _give_up(run: Run) -> bool:
    """The container is not there. Hold its name, so that it cannot come later; then the attempt is abandoned."""
    hold_name(run.connection, run.attempt)
    if not abandon(run.attempt, lease=run.lease, detail="its container vanished before it started"):
        raise StaleToken("ended by somebody else")
    revoke(run.attempt.public_id)  # the job may move on; what was claimed stays so until it is clean
    run.attempt.refresh_from_db(fields=["status"])
    return True


def _finish(run: Run) -> None:
    """Steps 10 and 11, with patience for our own storage; an error of ours never loses a result silently."""
    try:
        if (
            run.attempt.step_tries >= STORE_TRIES
        ):  # it cost the lives of workers: their errors are counted below
            raise InfrastructureFailed("worker_lost_too_often", f"step collecting tried {STORE_TRIES} times")
        collect_and_settle(run)
    except (EngineUnreachable, StaleToken, *DATABASE_DOWN):
        raise
    except ExecutionFailed as error:
        settle(run.attempt, run.lease, Outcome(reason=error.reason, detail=error.detail))
    except Exception as error:
        log.exception("attempt %s: results not collected", run.attempt.short_id)
        if run.attempt.step_tries + 1 < STORE_TRIES:
            give_back(run, after=PATIENCE * 2**run.attempt.step_tries, tried=True)
            raise StaleToken("given back, to be collected again") from error
        reason = error.reason if isinstance(error, AttemptFailed) else "storage_failed"
        settle(run.attempt, run.lease, Outcome(reason=reason, detail=str(error)))
    if run.attempt.status not in FINAL:
        run.attempt.refresh_from_db(fields=["status"])


def _phase(run: Run, phase: str) -> None:
    Job.objects.filter(pk=run.job.pk, status="preparing").update(phase=phase)
