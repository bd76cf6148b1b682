"""The import: everything in one transaction or nothing, through the same rules as every other door."""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.db.models import Exists, F, OuterRef

from compute_site.core.db import constraint_name, lock, lock_one
from environments.benchmark import keep_in_step
from environments.editing import activate_engine, place_cores, retire
from environments.exporting import export_engine, export_environment
from environments.history import Author, find, record
from environments.importing.amounts import decide
from environments.importing.cores import Asking, HostCores, share_cores
from environments.importing.engines import find_engine
from environments.importing.forms import WHOLE, read_configuration, read_text
from environments.importing.paths import errors_in_file
from environments.importing.plan import (
    ACTIVATED,
    CREATED,
    LEFT,
    RETIRED,
    Change,
    Note,
    Plan,
    TakeNote,
    Value,
    compared,
)
from environments.importing.wanted import WantedEngine, WantedEnvironment
from environments.importing.withheld import plan_told_to
from environments.importing.writing import write_environment
from environments.models import (
    Core,
    Device,
    Door,
    Engine,
    EngineState,
    Environment,
    EnvironmentState,
    Host,
    ReservedCore,
)
from environments.permissions import Changes
from environments.reservations import lock_host
from environments.rules import check_environment, totals_above, warnings

NOBODY = Author(door=Door.IMPORT)


@dataclass(frozen=True, slots=True)
class Choice:
    """How to import. Names are empty and `tokens` (default fee token by chain id) has nothing unless given.

    `expected` is the fingerprint of a plan that somebody agreed to: any other plan is not applied.
    """

    engine: str = ""
    host: str = ""
    replace: bool = False
    dry_run: bool = False
    activate: bool = False
    tokens: Mapping[str, str] | None = None
    expected: str = ""


@dataclass(slots=True)
class _Row:
    """One environment on its way: what is wanted, what was there, and which cores it gets."""

    engine: Engine
    wanted: WantedEnvironment
    before: dict[str, Any] | None
    asking: Asking
    environment: Environment | None = None

    @property
    def made(self) -> Environment:
        """The environment, once its rows were written."""
        assert self.environment is not None
        return self.environment


def import_configuration(configuration: Any, choice: Choice | None = None, author: Author = NOBODY) -> Plan:
    """Make engines and environments as the file says; returns what was done (`applied`), or would be with `dry_run`.

    `configuration` is its text in bytes, or its value with Decimal for numbers that have a point. What changes is kept
    in the history as `author`'s.

    The file decides whole environments: what it does not say gets its default, what only other environments have stays.
    A second import of the same file changes nothing. Raises ValidationError {path of the file: messages}, and
    NotPermitted when the author's user may not change by hand what it would change; then nothing was written.
    """
    choice = choice or Choice()
    value = read_text(configuration) if isinstance(configuration, bytes) else configuration
    wanted, notes = read_configuration(value, choice.tokens or {})
    if choice.engine and len(wanted) > 1:
        text = f"The file has {len(wanted)} engines, it is to be for one ({choice.engine}); import them one by one."
        raise ValidationError({WHOLE: text})
    try:
        with transaction.atomic():
            plan = _apply(wanted, Plan(notes=list(notes)), choice, author)
            plan.applied = not choice.dry_run and choice.expected in ("", plan.fingerprint)
            if not plan.applied:
                transaction.set_rollback(True)
    except IntegrityError as error:  # another import, under the lock of another host
        text = f"Somebody else has just written the same ({constraint_name(error)}); nothing was written, try again."
        raise ValidationError({WHOLE: text}) from error
    return plan


def _apply(entries: Sequence[WantedEngine], plan: Plan, choice: Choice, author: Author) -> Plan:
    def note(path: str, message: str) -> None:
        plan.notes.append(Note(path, message))

    engines: list[tuple[Engine, WantedEngine, bool]] = []
    for entry in entries:
        engine, made = find_engine(
            entry, name=choice.engine, host=choice.host, alone=len(entries) == 1, note=note
        )
        if engine in [one for one, _, _ in engines]:
            raise ValidationError(
                {entry.path: f"The engine {engine} stands there twice; make both one entry."}
            )
        engines.append((engine, entry, made))
    hosts = {key: lock_host(key) for key in sorted({engine.host_id or 0 for engine, _, _ in engines})}
    fresh = [engine.pk for engine, _, made in engines if made]
    changes = None
    if author.user is not None:
        changes = Changes([engine.pk for engine, _, _ in engines], list(hosts), fresh)
    plan.changes += [_write_engine(*one) for one in engines]
    rows = [row for engine, entry, _ in engines for row in _rows(engine, entry)]
    for engine, entry, _ in engines:
        plan.changes += _others(engine, entry, choice.replace, author)
    for key, host in hosts.items():
        _import_to_host(host, [row for row in rows if row.engine.host_id == key], note)
    for engine, entry, _ in engines:
        with errors_in_file(entry):
            plan.notes += [Note(f"{entry.path}.enableBenchmark", text) for text in keep_in_step(engine)]
    plan.changes += [_compared(row, author) for row in rows]
    for engine, entry, _ in engines:
        if choice.activate and engine.state == EngineState.DISABLED:
            plan.changes.append(_activate(engine, entry))
    plan.notes += [Note(row.wanted.path, text) for row in rows for text in _warnings(row.made)]
    if changes is not None:
        changes.check(author.user)
        plan_told_to(author.user, plan)
    return plan


def _activate(engine: Engine, entry: WantedEngine) -> Change:
    """Whatever is against it may stand in an environment that the file does not have."""
    try:
        activate_engine(engine)
    except ValidationError as error:
        texts = [f"{engine} cannot be activated: {text}" for text in error.messages]
        raise ValidationError({entry.path: texts}) from error
    return Change(ACTIVATED, "engine", str(engine), entry.path)


def _compared(row: _Row, author: Author) -> Change:
    """What became of it, kept in the history; a version more where anything did, so that a form opened before is stale."""
    change = compared("environment", str(row.made), row.wanted.path, row.before, export_environment(row.made))
    if row.before is not None and change.values:
        Environment.objects.filter(pk=row.made.pk).update(version=F("version") + 1)
    if row.before is None or change.values:
        record(row.made, author)
    return change


def _write_engine(engine: Engine, entry: WantedEngine, made: bool) -> Change:
    lock_one(Engine.objects.filter(pk=engine.pk))
    engine.refresh_from_db()  # it was found before anything was locked
    before = export_engine(engine)
    if any(getattr(engine, field) != value for field, value in entry.fields.items()):
        for field, value in entry.fields.items():
            setattr(engine, field, value)
        engine.version += 1
        with errors_in_file(entry):
            engine.full_clean()
        engine.save(update_fields=[*entry.fields, "version"])
    after = export_engine(engine)
    for told in (before, after):
        told.pop("environments")
    if made:
        told = {"endpoint": engine.endpoint, "host": str(engine.host), "state": engine.state}
        values = tuple(Value(key, None, text) for key, text in told.items())
        return Change(CREATED, "engine", str(engine), entry.path, values)
    return compared("engine", str(engine), entry.path, before, after)


def _rows(engine: Engine, entry: WantedEngine) -> list[_Row]:
    there = {row.slug: row for row in lock(Environment.objects.filter(engine=engine))}
    rows = []
    for wanted in entry.environments:
        old = there.get(wanted.slug)
        before = None if old is None else export_environment(old)
        if old is not None:
            find(old)
        rows.append(_Row(engine, wanted, before, Asking(None if old is None else old.pk, wanted.cores)))
    return rows


def _others(engine: Engine, entry: WantedEngine, replace: bool, author: Author) -> list[Change]:
    """Environments that the file does not have: retired when it replaces, else left alone."""
    changes = []
    others = Environment.objects.filter(engine=engine, benchmark=False)
    others = others.exclude(state=EnvironmentState.RETIRED)
    for other in others.exclude(slug__in=[wanted.slug for wanted in entry.environments]).order_by("slug"):
        if replace:
            try:
                retire(other, author)
            except ValidationError as error:
                raise ValidationError({entry.path: error.messages}) from error
        what, why = (
            (RETIRED, "it is not in the file")
            if replace
            else (LEFT, "it is not in the file; an import that replaces retires it")
        )
        changes.append(Change(what, "environment", str(other), entry.path, why=why))
    return changes


def _import_to_host(host: Host, rows: Collection[_Row], note: TakeNote) -> None:
    """Rows first, then the cores (all released before any is given), then every rule."""
    _share(host, rows)
    _each(rows, lambda row: _write(host, row, note))
    for row in rows:
        surplus = Core.objects.filter(environment=row.environment).exclude(index__in=row.asking.given)
        surplus.update(environment=None)
    _each(rows, lambda row: place_cores(row.made, row.asking.given))
    _each(rows, lambda row: check_environment(row.made, kept=totals_above([row.made.pk])))


def _each(rows: Collection[_Row], step: Callable[[_Row], None]) -> None:
    """The step for each environment; raises what was wrong in any of them, by path of the file."""
    errors: dict[str, list[Any]] = defaultdict(list)
    for row in rows:
        try:
            with errors_in_file(row.wanted):
                step(row)
        except ValidationError as error:
            for path, found in error.update_error_dict({}).items():
                errors[path] += found
    if errors:
        raise ValidationError(dict(errors))


def _write(host: Host, row: _Row, note: TakeNote) -> None:
    decided = decide(row.wanted, host, len(row.asking.given), note)
    row.environment = write_environment(row.engine, row.wanted, decided)


def _share(host: Host, rows: Collection[_Row]) -> None:
    held = ReservedCore.objects.filter(core=OuterRef("pk"), released_at=None)
    cores = Core.objects.filter(host=host, index__lt=host.cpu_count).annotate(held=Exists(held))
    keys = {row.asking.key for row in rows}
    strangers = {}
    owner = {}
    for core in cores.select_related("environment__engine").order_by("index"):
        owner[core.index] = core.environment_id
        if core.environment is not None and core.environment_id not in keys:
            strangers[core.environment.pk] = str(core.environment)
    share_cores(
        HostCores(host.name, owner, {core.index for core in cores if core.held}),
        [row.asking for row in rows],
        strangers,
    )


def _warnings(environment: Environment) -> list[str]:
    unseen = Device.objects.filter(resource_devices__environment=environment, seen_at=None)
    found = [f"{device.uuid}: not seen by detection yet." for device in unseen.order_by("pk")]
    return [f"{environment}: {text}" for text in [*warnings(environment), *found]]
