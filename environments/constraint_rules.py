"""Constraints that no request could ever keep: found when they are written, not by the first client."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from fractions import Fraction

from environments.bounds import GIB, SIZED, Bound, Limits, Rule

Found = Iterator[tuple[Bound, str, str]]  # the constraint, which of its fields, and a message


def hopeless(bounds: Collection[Bound], limits: Mapping[str, Limits]) -> Found:
    """A floor beyond what a job may have, a ceiling below what it gets anyway, floors that raise each other for ever.

    `limits` are those of one tier. A constraint of what nobody can ask for is none of these.
    """
    for bound in bounds:
        if bound.resource in limits and limits[bound.resource].max > 0:
            yield from _out_of_reach(bound, limits)
    for bound in _circles(bounds, limits):
        text = f"More {bound.resource} takes more {bound.target}, and that takes more {bound.resource} than there was"
        yield bound, "min", f"{text}: floors without end; lower one of them or take it out."


def _out_of_reach(bound: Bound, limits: Mapping[str, Limits]) -> Found:
    """For the smallest request its floor, for the largest its ceiling."""
    rule, own = Rule(bound.target, bound.whole_kind, (bound,)), limits[bound.resource]
    members, unit = rule.members(limits), rule.unit(limits)
    need = rule.floor({bound.resource: max(1, own.min)}, limits)
    may = sum(limits[slug].max for slug in members)
    if need > may:
        text = f"Any {bound.resource} takes at least {need}{unit} of {rule.name}, at most {may}{unit} may be per job"
        yield bound, "min", f"{text}; lower it or raise the max of {rule.name}."
    most = rule.ceiling({bound.resource: own.max}, limits)
    gets = sum(limits[slug].min for slug in members)
    if most is not None and most < gets and not bound.aggregate:
        text = f"All {bound.resource} allows at most {most}{unit} of {rule.name}, each job gets {gets}{unit} of it"
        yield bound, "max", f"{text}; raise it or lower the min of {rule.name}."


def _circles(bounds: Iterable[Bound], limits: Mapping[str, Limits]) -> list[Bound]:
    """Floors per unit on a circle that comes back larger than it began.

    Bellman and Ford's way with products: after as many rounds as there are resources, only such a circle still grows.
    A kind with several resources is left out: which of them is raised is known with the request only.
    """
    steps = []
    for bound in bounds:
        members = Rule(bound.target, bound.whole_kind, (bound,)).members(limits)
        if bound.per_unit and bound.min and bound.resource in limits and len(members) == 1:
            gain = Fraction(bound.min, GIB if limits[bound.resource].kind in SIZED else 1)
            steps.append((bound, members[0], gain))
    reach = dict.fromkeys(limits, Fraction(1))
    growing: list[tuple[Bound, str]] = []
    for _ in range(len(limits) + 1):
        growing = []
        for bound, target, gain in steps:
            if reach[bound.resource] * gain > reach[target]:
                reach[target] = reach[bound.resource] * gain
                growing.append((bound, target))
    ways = [(bound.resource, target) for bound, target, _ in steps]
    return [bound for bound, target in growing if bound.resource in _reached(target, ways)]


def _reached(start: str, ways: Collection[tuple[str, str]]) -> set[str]:
    """Everything that following `ways` from `start` comes to, `start` included."""
    found = {start}
    while more := {target for source, target in ways if source in found} - found:
        found |= more
    return found
