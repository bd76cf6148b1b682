"""Edits of what may run where, each under the host's row lock and refused whole when jobs would lose what they hold."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Exists, F, OuterRef, QuerySet

from compute_site.core.db import ClockTimestamp, lock, lock_one
from compute_site.core.errors import TransitionRefused
from compute_site.core.numbers import whole_error
from environments import core_words
from environments.cpuset import parse_cores, unique_cores
from environments.history import SITE, Author, find, record
from environments.models import (
    Core,
    Engine,
    EngineState,
    Environment,
    EnvironmentState,
    Host,
    Reservation,
    ReservedCore,
    Resource,
    ResourceKind,
)
from environments.reservations import lock_host
from environments.rules import WAY_OUT, check_environment, host_environments, totals_above

log = logging.getLogger(__name__)

SOURCES = {
    EnvironmentState.ACTIVE: [EnvironmentState.DRAINING],
    EnvironmentState.DRAINING: [EnvironmentState.ACTIVE],
    EnvironmentState.RETIRED: [EnvironmentState.ACTIVE, EnvironmentState.DRAINING],
}


@contextmanager
def edited(environment: Environment, author: Author = SITE) -> Iterator[None]:
    """One edit: locks host and environment, lets the body write, checks every rule, raises `version`, and is kept in the
    history as `author`'s; or nothing at all.

    A fleet environment has no host to lock. Raises what the body raises, and ValidationError from the check.
    """
    with transaction.atomic():
        lock_for_edit(environment)
        find(environment)
        kept = totals_above([environment.pk])
        yield
        environment.refresh_from_db()
        check_environment(environment, kept)
        Environment.objects.filter(pk=environment.pk).update(version=F("version") + 1)
        environment.refresh_from_db(fields=["version"])
        record(environment, author)


def lock_for_edit(environment: Environment) -> None:
    """The locks of an edit, in order: host, then environment. A fleet environment has no host."""
    if environment.engine.host_id is not None:
        lock_host(environment.engine.host_id)
    lock_one(Environment.objects.filter(pk=environment.pk))


def lock_configuration() -> None:
    """The locks of an edit of anything: all hosts, then all engines; what an export tells stays so until they go."""
    lock(Host.objects.only("pk"))
    lock(Engine.objects.only("pk"))


def set_core_total(environment: Environment, total: int) -> None:
    """Give the environment `total` cores: those it has first, then the lowest free ones; the cpu total follows.

    Raises ValidationError {"cores": ...} with both numbers when there are too few, or when jobs hold more.
    """
    with edited(environment):
        place_cores(environment, choose_cores(environment, total))


def choose_cores(environment: Environment, total: int | None) -> list[int]:
    """Indexes of `total` cores that are the environment's or nobody's: held by its jobs first, then its own, then the
    lowest free. None = all of them. Raises ValidationError with both numbers. Needs the host's lock."""
    if total is not None and (wrong := whole_error(total) or ("" if total else core_words.NOT_ONE)):
        raise ValidationError({"cores": wrong})
    held = ReservedCore.objects.filter(core=OuterRef("pk"), released_at=None)
    cores = _cores_of(environment.host).annotate(held=Exists(held))
    usable = [core for core in cores if core.environment_id in (None, environment.pk)]
    if total is None and not usable:
        raise ValidationError({"cores": core_words.none_left(environment.host)})
    if total is not None and total > len(usable):
        raise ValidationError({"cores": core_words.too_few(total, len(usable), environment.host, len(cores))})
    usable.sort(key=lambda core: (core.environment_id is None, not core.held, core.index))
    return sorted(core.index for core in usable[:total])


def place_cores(environment: Environment, cores: str | Sequence[int]) -> None:
    """Give the environment exactly these cores ("0-3,8" or indexes); the cpu total follows. Needs the host's lock.

    The other rules are checked by `edited` around it. Raises ValidationError {"cores": ...} that names the core and who
    has it.
    """
    if environment.benchmark:
        raise ValidationError({"cores": "A benchmark environment owns no core: it claims any of its host."})
    try:
        wanted = parse_cores(cores) if isinstance(cores, str) else unique_cores(cores)
    except ValidationError as error:
        raise ValidationError({"cores": error.messages}) from error
    there = {core.index: core for core in _cores_of(environment.host).select_related("environment__engine")}
    missing = [index for index in wanted if index not in there]
    if missing:
        raise ValidationError({"cores": core_words.not_there(environment.host, missing, there)})
    taken = [
        core_words.taken(index, there[index].environment)
        for index in wanted
        if there[index].environment_id not in (None, environment.pk)
    ]
    if taken:
        raise ValidationError({"cores": taken})
    mine = Core.objects.filter(host=environment.host)
    mine.filter(environment=environment).exclude(index__in=wanted).update(environment=None)
    mine.filter(index__in=wanted).update(environment=environment)
    _follow(environment, len(wanted))


def _cores_of(host: Host) -> QuerySet[Core]:
    """The cores that the host has; a row beyond its count only keeps the history of a core that was taken out."""
    return Core.objects.filter(host=host, index__lt=F("host__cpu_count"))


def _follow(environment: Environment, count: int) -> None:
    """The cpu total is the number of cores; a max that meant "all of them" goes with it."""
    for resource in Resource.objects.filter(environment=environment, kind=ResourceKind.CPU).exclude(
        total=count
    ):
        if resource.max == resource.total:
            resource.max = count
        resource.total = count
        try:
            resource.full_clean()
        except ValidationError as error:
            raise ValidationError(
                {f"resources.{resource.slug}.{k}": v for k, v in error.message_dict.items()}
            ) from error
        resource.save(update_fields=["total", "max"])


def drain(environment: Environment, author: Author = SITE) -> None:
    """active → draining: no new jobs; what it has is finished. Raises TransitionRefused from any other state.

    No rule is checked: one that is broken must not keep it active. Raises ValidationError for a benchmark environment.
    """
    _refuse_benchmark(environment)
    with transaction.atomic():
        lock_for_edit(environment)
        find(environment)
        _move(environment, EnvironmentState.DRAINING)
        record(environment, author)


def resume(environment: Environment, author: Author = SITE) -> None:
    """draining → active, if it keeps every rule. Raises TransitionRefused from any other state, ValidationError for a
    benchmark environment."""
    _refuse_benchmark(environment)
    with edited(environment, author):
        _move(environment, EnvironmentState.ACTIVE)


def retire(environment: Environment, author: Author = SITE) -> None:
    """active or draining → retired, for good; its cores become free for others.

    Raises ValidationError with the number of jobs while any holds something, TransitionRefused if it is retired.
    """
    if environment.engine.enable_benchmark:
        _refuse_benchmark(environment)
    with edited(environment, author):
        live = Reservation.objects.filter(environment=environment, released_at=None).count()
        if live:
            raise ValidationError({"state": f"{live} jobs still hold resources of {environment}; {WAY_OUT}."})
        _move(environment, EnvironmentState.RETIRED)
        Core.objects.filter(environment=environment).update(environment=None)


def revive(environment: Environment) -> None:
    """retired or draining → active, for a benchmark environment whose engine's switch is on: nobody else had anything of
    it, and it is not drained by hand.

    Raises TransitionRefused for any other environment or state.
    """
    if not environment.benchmark or environment.state == EnvironmentState.ACTIVE:
        raise TransitionRefused(f"{environment} is {environment.state} and no benchmark that was retired")
    _move(environment, EnvironmentState.ACTIVE, [EnvironmentState.RETIRED, EnvironmentState.DRAINING])


def _refuse_benchmark(environment: Environment) -> None:
    """Its state follows a switch of the engine. Raises ValidationError that names it."""
    if not environment.benchmark:
        return
    engine = environment.engine
    text = f"{environment} measures its host: switch enable_benchmark of engine {engine}"
    raise ValidationError({"state": f"{text} {'off' if engine.enable_benchmark else 'on'} instead."})


def _move(
    environment: Environment, to: EnvironmentState, sources: Sequence[EnvironmentState] | None = None
) -> None:
    rows = Environment.objects.filter(pk=environment.pk, state__in=sources or SOURCES[to])
    if not rows.update(state=to, version=F("version") + 1):
        state = Environment.objects.values_list("state", flat=True).get(pk=environment.pk)
        raise TransitionRefused(f"{environment} is {state}; it cannot become {to}")
    environment.refresh_from_db(fields=["state", "version"])


def activate_engine(engine: Engine) -> None:
    """disabled or draining → active; it needs an environment that is not retired, and each of them keeps the rules.

    Raises ValidationError.
    """
    with transaction.atomic():
        fresh = _locked_engine(engine)
        fresh.state = EngineState.ACTIVE
        fresh.full_clean()
        for environment in fresh.environments.exclude(state=EnvironmentState.RETIRED).select_related(
            "engine"
        ):
            check_environment(environment, kept=totals_above([environment.pk]))
        _set_engine_state(engine, EngineState.ACTIVE)


def drain_engine(engine: Engine) -> None:
    """→ draining: it starts nothing new; running jobs go on."""
    _set_engine_state(engine, EngineState.DRAINING)


def disable_engine(engine: Engine) -> None:
    """→ disabled. Raises ValidationError with the number of jobs while any holds something on it."""
    with transaction.atomic():
        _locked_engine(engine)
        live = Reservation.objects.filter(environment__engine=engine, released_at=None).count()
        if live:
            raise ValidationError(
                {"state": f"{live} jobs still run on {engine}; drain it and wait, then try again."}
            )
        _set_engine_state(engine, EngineState.DISABLED)


def _locked_engine(engine: Engine) -> Engine:
    if engine.host_id is not None:
        lock_host(engine.host_id)
    return lock_one(Engine.objects.filter(pk=engine.pk))


def _set_engine_state(engine: Engine, state: EngineState) -> None:
    Engine.objects.filter(pk=engine.pk).update(state=state, version=F("version") + 1)
    engine.refresh_from_db(fields=["state", "version"])


def declare_gone(host: Host, by: str) -> bool:
    """An operator says that the machine no longer exists, so nothing on it runs any more; `by` is kept in the log.

    Nothing is reserved on it from then on; its reservations are released by whoever abandons their attempts. Returns
    whether this call did it.
    """
    with transaction.atomic():
        lock_host(host.pk)
        rows = Host.objects.filter(pk=host.pk, declared_gone_at=None)
        done = rows.update(declared_gone_at=ClockTimestamp(), version=F("version") + 1) == 1
        live = Reservation.objects.filter(host=host, released_at=None).count()
    if done:
        log.warning(
            "host %s declared gone by %s; live reservations: %d, environments: %d",
            *(host, by, live, len(host_environments(host))),
        )
    host.refresh_from_db()
    return done
