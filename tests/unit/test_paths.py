"""Paths and patterns: the text-only half of confinement."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_dsl.permissions.paths import PathPattern, escape_pattern, normal_path

PARTS = st.text(alphabet="abc.*[]{},?!- é~", min_size=1, max_size=6)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("a/b", "a/b"),
        ("./a//b/", "a/b"),
        ("a/../b", "b"),
        ("", "."),
        (".", "."),
        ("a/..", "."),
        ("..", None),
        ("a/../../b", None),
        ("/w/d/x", "x"),
        ("/w/d", "."),
        ("/w/d/../d/x", "x"),
        ("/../w/d/x", "x"),
        ("/w/dd/x", None),
        ("/etc/passwd", None),
        ("/w/d/../../etc", None),
        ("~", None),
        ("~/x", None),
        ("~x", "~x"),
        ("./~/x", None),
        ("a/~", "a/~"),
        ("a\0b", None),
        ("...", "..."),
    ],
)
def test_a_path_is_written_in_one_form_or_refused(path: str, expected: str | None) -> None:
    assert normal_path(path, "/w/d") == expected


def test_without_a_root_no_absolute_path_is_accepted() -> None:
    assert normal_path("/anything") is None


@given(st.lists(st.sampled_from(["a", "b", "..", ".", "", "~", " "]), max_size=12))
def test_a_normal_path_never_climbs_and_is_stable(parts: list[str]) -> None:
    found = normal_path("/".join(parts), "/a/b")
    if found is not None:
        assert ".." not in found.split("/")
        assert not found.startswith("/")
        assert normal_path(found) == found


@pytest.mark.parametrize(
    ("pattern", "path", "fits"),
    [
        ("*.py", "a.py", True),
        ("*.py", "d/a.py", False),
        ("**/*.py", "a.py", True),
        ("**/*.py", "d/e/a.py", True),
        ("reports/**", "reports/x/y.md", True),
        ("reports/**", "reports", True),
        ("reports/**", "reports2/x", False),
        ("reports/", "reports/x", True),
        ("**", ".hidden/.x", True),
        ("a?c", "abc", True),
        ("a?c", "ac", False),
        ("[ab].x", "b.x", True),
        ("[!ab].x", "b.x", False),
        ("[a-c]", "b", True),
        ("[]]", "]", True),
        ("[", "[", True),
        ("*.{py,md}", "x.md", True),
        ("*.{py,md}", "x.rs", False),
        ("{a,b}/{c,d}", "b/c", True),
        ("{a}", "{a}", True),
        ("a.b", "axb", False),
        ("**/a/**/b", "x/a/b", True),
        ("**/a/**/b", "a/x/y/b", True),
        ("**/a/**/b", "a/x/y", False),
        ("a*b*c", "aXbXbXc", True),
        ("a*bc", "abcbc", True),
        ("./a", "a", True),
        ("a\nb", "a\nb", True),
        ("*", "a\nb", True),
        (".", ".", True),
    ],
)
def test_a_pattern_fits(pattern: str, path: str, fits: bool) -> None:
    assert PathPattern(pattern).matches(path) is fits


@pytest.mark.parametrize(
    ("pattern", "word"),
    [("", "empty"), ("/etc/**", "absolute"), ("../x", "climbs"), ("[z-a]", "backwards"), ("{a,b}" * 9, "256")],
)
def test_a_bad_pattern_is_refused(pattern: str, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        PathPattern(pattern)


@pytest.mark.parametrize(
    ("pattern", "directory", "reaches"),
    [
        ("secrets/**", ".", True),
        ("secrets/**", "secrets/a", True),
        ("secrets/**", "src", False),
        ("**/*.pem", "src", True),
        ("src/*.py", "src/deep/er", False),
    ],
)
def test_a_pattern_says_whether_it_reaches_below_a_directory(pattern: str, directory: str, reaches: bool) -> None:
    assert PathPattern(pattern).reaches_below(directory) is reaches


def test_a_hostile_pattern_does_not_take_long() -> None:
    # Tried in every way, each of them would take centuries.
    assert not PathPattern("*a" * 60 + "*b").matches("a" * 250)
    assert not PathPattern("/".join(["**"] * 200 + ["b"])[:2000]).matches("/".join(["a"] * 300))


@given(st.lists(PARTS, min_size=1, max_size=4))
def test_an_escaped_path_fits_itself(parts: list[str]) -> None:
    path = normal_path("/".join(parts))
    if path is not None and not path.startswith("~/"):
        assert PathPattern(escape_pattern(path)).matches(path)
