"""Default fee tokens by chain id, for prices that name none."""

from collections.abc import Iterable, Mapping

from django.core.exceptions import ValidationError


def read_tokens(pairs: Iterable[str]) -> dict[str, str]:
    """From texts such as `1=0x967d…`. Raises ValidationError."""
    found = {}
    for pair in pairs:
        chain, _, address = (part.strip() for part in pair.partition("="))
        check_tokens({chain: address})
        found[chain] = address
    return found


def check_tokens(tokens: Mapping[str, str]) -> None:
    """Chain ids are numbers, and each has an address. Raises ValidationError."""
    for chain, address in tokens.items():
        if not (chain.isascii() and chain.isdecimal()) or not address:
            raise ValidationError(
                f"“{chain}={address}” is no token of a chain; write for example"
                " 1=0x967da4048cD07aB37855c090aAF366e4ce1b9F48."
            )
