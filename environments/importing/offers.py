"""What an environment costs, what is free of it and who may use it, as a file writes it."""

import re
from collections.abc import Mapping
from decimal import Decimal, localcontext
from typing import Any

from compute_site.core.models import number_error
from compute_site.core.numbers import shown
from environments.bounds import SIZED
from environments.importing.reading import GIB, Reading
from environments.importing.wanted import Rule, WantedFreeTier, WantedPart, WantedPrices, WantedResource
from environments.models import AccessKind, Price
from environments.models.offer import CURRENCY_TWICE, NO_PRICE, WORD, price_twice
from environments.setup import unknown_resource

ADDRESS = re.compile(r"^0x[0-9a-fA-F]{40}\Z")
PER_MINUTE = Price._meta.get_field("per_minute")
Resources = Mapping[str, WantedResource]  # by the id that the file has


def read_prices(environment: Reading, resources: Resources, tokens: Mapping[str, str]) -> list[WantedPrices]:
    """One list for each currency. A price per GiB becomes one per MiB. `tokens`: the default token of a chain."""
    found: dict[str, WantedPrices] = {}
    fees = environment.object("fees")
    for chain in fees.names() if fees is not None else ():
        assert fees is not None
        for fee in fees.objects(chain):
            currency, prices = _currency(fee, chain, tokens), _prices(fee, resources)
            if not currency:
                continue
            if currency.lower() in found:
                fee.report.refuse(fee.path, CURRENCY_TWICE)
            found[currency.lower()] = WantedPrices(currency, prices, fee.path)
    return list(found.values())


def _currency(fee: Reading, chain: str, tokens: Mapping[str, str]) -> str:
    """Chain and token, or the word that stands in place of both; empty when it is refused or dropped."""
    token = fee.text("feeToken")
    if not (chain.isascii() and chain.isdecimal()):
        if WORD.match(chain) and not token:
            return chain
        fee.report.refuse(
            fee.path, f"Found {shown(chain)}; a chain id is a number, a currency of ours has no feeToken."
        )
        return ""
    token = token or tokens.get(chain, "")
    if not token:
        fee.report.note(fee.path, "dropped: it has no feeToken, and no default token of the chain is given.")
        return ""
    _note_placeholder(fee, fee.at("feeToken"), token)
    return f"{chain}:{token}"


def _prices(fee: Reading, resources: Resources) -> dict[str, Decimal]:
    prices: dict[str, Decimal] = {}
    rows = fee.objects("prices")
    if not rows:
        fee.report.refuse(fee.at("prices"), NO_PRICE)
    for row in rows:
        name, price = row.text("id"), row.number("price")
        resource = resources.get(name)
        if resource is None:
            row.report.refuse(row.at("id"), unknown_resource(name, resources))
        elif resource.slug in prices:
            row.report.refuse(row.at("id"), price_twice(resource.slug))
        elif price is None:
            if "price" not in row:
                row.report.refuse(row.at("price"), "Found no price; write a number, 0 or more.")
        else:
            prices[resource.slug] = _per_unit(row, price, resource.kind)
    return prices


def _per_unit(row: Reading, price: Decimal, kind: str) -> Decimal:
    """Per core, MiB, device or count; exact, or refused."""
    with localcontext(prec=100):
        unit = price / GIB if kind in SIZED else price
    if error := number_error(PER_MINUTE, unit):
        told = f"{shown(price)} for a GiB is the price of 1024 MiB. {error}" if kind in SIZED else error
        row.report.refuse(row.at("price"), told)
    return unit


def read_free(
    environment: Reading, resources: Resources, expiry: int, longest: int
) -> tuple[WantedFreeTier | None, list[Rule]]:
    """The free tier with its access rules; `expiry` and `longest` (seconds) are those of paid jobs."""
    free = environment.object("free")
    if free is None:
        return None, []
    most = _or(free.whole("maxJobDuration"), 3600)
    fields: dict[str, Any] = {
        "max_job_duration": most,
        "min_job_duration": _or(free.whole("minJobDuration"), min(60, most)),
        "storage_expiry": _or(free.whole("storageExpiry"), expiry),
        "max_jobs": _or(free.whole("maxJobs"), 3),
        "allow_image_build": free.flag("allowImageBuild"),
    }
    if most > longest:
        text = f"free jobs may run {most} s, paid ones {longest} s; is that meant?"
        free.report.note(free.at("maxJobDuration"), text)
    parts: dict[str, WantedPart] = {}
    for row in free.objects("resources"):
        name = row.text("id")
        if name not in resources:
            row.report.refuse(row.at("id"), unknown_resource(name, resources))
        elif resources[name].slug in parts:
            row.report.refuse(row.at("id"), f"{shown(name)} stands there twice; keep one.")
        else:
            parts[resources[name].slug] = _part(row, resources[name])
    return WantedFreeTier(fields, list(parts.values()), free.path), read_access(free)


def _part(row: Reading, resource: WantedResource) -> WantedPart:
    """Only a max: that is all there is for free jobs, never "unlimited"."""
    read = row.mebibytes if resource.kind in SIZED else row.whole
    row.drop("constraints", "those of the environment's resources hold for free jobs too.")
    least, most, total = read("min"), read("max"), read("total")
    if total is None and most is None:
        row.report.note(row.path, f"neither total nor max: free jobs may use all of {resource.slug}.")
    return WantedPart(resource.slug, most if total is None else total, least or 0, most, row.path)


def read_access(holder: Reading) -> list[Rule]:
    """Rules of one tier; none = open to all. Whose a wallet is and who is on a list stands in the admin."""
    access = holder.object("access")
    if access is None:
        return []
    rules = {
        (kind.value, value)
        for kind in (AccessKind.USER, AccessKind.GROUP)
        for _, value in access.texts(f"{kind}s")
    }
    for path, address in access.texts("addresses"):
        _note_placeholder(access, path, address)
        rules.add((AccessKind.ADDRESS.value, address.lower()))
    for mapping in access.objects("accessLists", "a mapping from chain id to contracts"):
        for chain in mapping.names():
            if not (chain.isascii() and chain.isdecimal()):
                mapping.report.refuse(mapping.at(chain), f"Found {shown(chain)}; a chain id is a number.")
            for _, contract in mapping.texts(chain):
                rules.add((AccessKind.ACCESS_LIST.value, f"{chain}:{contract.lower()}"))
    for path, name in access.texts("lists"):
        if ":" in name:
            access.report.refuse(
                path, f"Found {shown(name)}; a contract belongs into accessLists, below its chain."
            )
        rules.add((AccessKind.ACCESS_LIST.value, name.lower()))
    if rules and all(kind in (AccessKind.ADDRESS, AccessKind.ACCESS_LIST) for kind, _ in rules):
        access.report.note(
            access.path,
            "open only to users whose wallet, or whose place on the list, an operator has written in the admin.",
        )
    return sorted(rules)


def _note_placeholder(reading: Reading, path: str, address: str) -> None:
    if not ADDRESS.match(address):
        reading.report.note(path, f"{shown(address)} is no address of 20 bytes; is it a placeholder?")


def _or(value: int | None, default: int) -> int:
    return default if value is None else value
