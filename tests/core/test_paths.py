"""Paths below others."""

from compute_site.core.paths import is_below, without_any


def test_a_path_is_below_itself_and_its_folders_not_below_a_like_name():
    assert is_below("a", ["b", "a"])
    assert is_below("a/b/c", ["a"])
    assert is_below("a/b/c", ["a/b"])
    assert not is_below("ab", ["a"])
    assert not is_below("a", ["a/b"])
    assert not is_below("a", [])


def test_what_no_path_stands_for():
    assert without_any(["a", "b", "c/d"], ["a/1", "bb", "c/d"]) == ["b"]
    assert without_any([], ["a"]) == []
    assert without_any(["a"], []) == ["a"]
