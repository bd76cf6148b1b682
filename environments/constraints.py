"""Constraints between the resources of one job: all floors first, until nothing rises any more, then all ceilings.

Each round of floors looks at the amounts as they were at its start, so the order of a list changes nothing. What a
floor raises may have floors of its own. Floors on a whole kind come when those on single resources have settled.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from django.core.exceptions import ValidationError

from environments.bounds import SIZED, Bound, Limits, Rule, rules_of


@dataclass(frozen=True, slots=True)
class _Request:
    """Amounts on their way. `asked` is what they were before the first floor; `tier` follows a limit in messages."""

    asked: Mapping[str, int]
    amounts: dict[str, int]
    limits: Mapping[str, Limits]
    tier: str


def settle(
    asked: Mapping[str, int], limits: Mapping[str, Limits], bounds: Iterable[Bound], tier: str = ""
) -> dict[str, int]:
    """`asked` (cores, MiB, devices, counts by slug; each within its limits) with every floor and ceiling kept.

    A floor raises its target, never past the target's max; nothing is ever lowered. Raises ValidationError
    {"resources": [...]} that names what was asked, the floor or ceiling, and the way out.
    """
    request = _Request(asked, dict(asked), limits, tier)
    rules = rules_of(bounds)
    single, whole = [r for r in rules if not r.whole_kind], [r for r in rules if r.whole_kind]
    # Without end only where sums feed back into what they are made of; every other chain is shorter than this.
    for _ in range((len(limits) + 1) ** 2):
        raised = _raised(single, request) or _raised(whole, request)
        if not raised:
            break
        request.amounts.update(raised)
    else:
        names = _names(bound for rule in rules for bound in rule.active(request.amounts) if bound.min)
        _refuse([f"The constraints of {names} raise each other without end: ask for none of these."])
    _refuse(_above(rule, request, rules) for rule in rules)
    return request.amounts


def _raised(rules: Iterable[Rule], request: _Request) -> dict[str, int]:
    """What one round of floors raises, and to how much. Raises ValidationError for what cannot be raised so far."""
    raised: dict[str, int] = {}
    errors = []
    for rule in rules:
        members = rule.members(request.limits)
        need = rule.floor(request.amounts, request.limits)
        missing = need - sum(request.amounts[slug] for slug in members)
        if missing <= 0:
            continue
        slug = _to_raise(members, request)
        if slug is None or request.amounts[slug] + missing > request.limits[slug].max:
            errors.append(_below(rule, need, request))
        else:
            raised[slug] = max(raised.get(slug, 0), request.amounts[slug] + missing)
    _refuse(errors)
    return raised


def _to_raise(members: Iterable[str], request: _Request) -> str | None:
    """The only one there is, else the only one asked for: which of several, at which price, is not for us to guess."""
    usable = [slug for slug in members if request.limits[slug].max > 0]
    asked = [slug for slug in usable if request.amounts[slug] > 0]
    return next((found[0] for found in (usable, asked) if len(found) == 1), None)


def _below(rule: Rule, need: int, request: _Request) -> str:
    """Why the target is not raised to its floor."""
    unit, members = rule.unit(request.limits), rule.members(request.limits)
    active = [bound for bound in rule.active(request.amounts) if bound.min]
    asked, may = _sum(request.asked, members), sum(request.limits[slug].max for slug in members)
    told = f"{rule.name}: asked {asked}{unit}; with {_given(active, request)} it is at least {need}{unit}"
    if need <= may:  # of one resource alone it would have been raised
        return f"{told}: say how many of {' and '.join(members)}."
    less = "less" if any(bound.per_unit for bound in active) else "no"
    return f"{told}, and at most {may}{unit} per job{request.tier}: ask for {less} {_names(active)}."


def _above(rule: Rule, request: _Request, rules: Iterable[Rule]) -> str:
    """Why the target is more than its ceiling; empty when it is not."""
    members, unit = rule.members(request.limits), rule.unit(request.limits)
    most = rule.ceiling(request.amounts, request.limits)
    asked, amount = _sum(request.asked, members), _sum(request.amounts, members)
    if most is None or amount <= most:
        return ""
    active = rule.active(request.amounts)
    if asked > most:
        found, way_out = f"asked {asked}{unit}", f"ask for at most {most}{unit} of {rule.name}"
        if any(bound.per_unit for bound in active):
            way_out += f", or for more {_names(active)}"
    else:
        raising = [one for one in rules if set(members) & set(one.members(request.limits))]
        causes = _names(bound for one in raising for bound in one.active(request.amounts) if bound.min)
        found, way_out = (
            f"asked {asked}{unit}, raised to {amount}{unit} by {causes}",
            f"ask for less {causes}",
        )
    return f"{rule.name}: {found}; with {_given(active, request)} it is at most {most}{unit}: {way_out}."


def _given(bounds: Iterable[Bound], request: _Request) -> str:
    """What the bounds hang on: "2 gpu", "4096 MiB of ram"."""
    found = []
    for slug in sorted({bound.resource for bound in bounds}):
        of = " MiB of" if request.limits[slug].kind in SIZED else ""
        found.append(f"{request.amounts[slug]}{of} {slug}")
    return " and ".join(found)


def _names(bounds: Iterable[Bound]) -> str:
    return " and ".join(sorted({bound.resource for bound in bounds}))


def _sum(amounts: Mapping[str, int], slugs: Iterable[str]) -> int:
    return sum(amounts[slug] for slug in slugs)


def _refuse(errors: Iterable[str]) -> None:
    found = sorted(set(errors) - {""})
    if found:
        raise ValidationError({"resources": found})
