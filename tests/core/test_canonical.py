"""One spelling of JSON data."""

import pytest

from compute_site.core.canonical import canonical


def test_one_spelling_whatever_the_order():
    assert canonical({"b": [1, "é"], "a": None}) == canonical({"a": None, "b": [1, "é"]})
    assert canonical({"b": [1, "é"], "a": None}) == '{"a":null,"b":[1,"é"]}'.encode()


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_what_is_no_json_is_refused(number):
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical({"a": number})
