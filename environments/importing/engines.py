"""Which engine an entry of a file is about: found, or made on a host that is known."""

from django.core.exceptions import ValidationError

from compute_site.core.models import save_clean
from environments.importing.paths import errors_in_file
from environments.importing.plan import TakeNote
from environments.importing.wanted import WantedEngine
from environments.models import Engine, EngineKind, Host


def find_engine(
    wanted: WantedEngine, *, name: str, host: str, alone: bool, note: TakeNote
) -> tuple[Engine, bool]:
    """The engine, and whether it was made now (disabled, on the host of that name).

    By `name`, if one is given; else by its endpoint; else, for a file of one entry (`alone`), the only engine there is
    (on `host`). Raises ValidationError that says what to add.
    """
    engines = Engine.objects.filter(kind=EngineKind.DOCKER).select_related("host").order_by("pk")
    if host:
        engines = engines.filter(host__name=host)
    found = list(engines.filter(name=name)) if name else list(engines.filter(endpoint=wanted.endpoint))
    if not found and not name and alone:
        found = list(engines)
    if len(found) == 1:
        if wanted.endpoint not in ("", found[0].endpoint):
            note(
                wanted.path,
                f"{found[0]} keeps its endpoint {found[0].endpoint}; the file has {wanted.endpoint}.",
            )
        return found[0], False
    if found:
        names = ", ".join(engine.name for engine in found)
        raise ValidationError(
            {wanted.path: f"It could be any of the engines {names}; say which engine it is for."}
        )
    return _make(wanted, name, host), True


def _make(wanted: WantedEngine, name: str, host: str) -> Engine:
    if not host:
        names = (
            ", ".join(Engine.objects.filter(kind=EngineKind.DOCKER).values_list("name", flat=True)) or "none"
        )
        what = (
            f"There is no engine {name}"
            if name
            else f"No engine has the endpoint {wanted.endpoint or '(none given)'}"
        )
        raise ValidationError(
            {
                wanted.path: f"{what}; there are: {names}. Say which engine it is for, or the host of a new one."
            }
        )
    machine = Host.objects.filter(name=host).first()
    if machine is None:
        names = ", ".join(Host.objects.values_list("name", flat=True)) or "none"
        raise ValidationError({wanted.path: f"There is no host {host}; there are: {names}."})
    taken = set(Engine.objects.values_list("name", flat=True))
    fresh = (host if number == 1 else f"{host}-{number}" for number in range(1, len(taken) + 2))
    name = name or next(one for one in fresh if one not in taken)
    with errors_in_file(wanted):
        return save_clean(Engine(name=name, host=machine, endpoint=wanted.endpoint, **wanted.tls))
