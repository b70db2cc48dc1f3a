"""What a gateway needs before it starts: roles, tokens and a key that are what they should be."""

from pathlib import Path

import pytest

from loom_client.settings import Settings
from loom_dsl.errors import ConfigurationError, UserError
from loom_gateway.links import Link, read, sign
from loom_gateway.server import key_of, roles_of, tokens_path
from loom_gateway.tokens import Tokens, add_token

ROLES = "loom: 1\nkind: policy\nroles: {lead: {who: [ann], approve: high}}\n"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "the policy"),
        ("", "cannot be used"),
        ("loom: 1\nkind: policy\n", "needs the deployment's policy with `roles`"),
        ("loom: 1\nkind: policy\nroles: {}\n", "needs the deployment's policy with `roles`"),
        ("loom: 1\nkind: policy\nroles: {lead: {who: []}}\n", "cannot be used"),
    ],
)
def test_without_roles_there_is_no_gateway(tmp_path: Path, text: str | None, why: str) -> None:
    path = tmp_path / "policy.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigurationError, match=why):
        roles_of({"LOOM_POLICY": str(path)})
    with pytest.raises(ConfigurationError, match="LOOM_POLICY"):
        roles_of({})
    path.write_text(ROLES)
    assert roles_of({"LOOM_POLICY": str(path)})["lead"].who == ("ann",)


@pytest.mark.parametrize(
    ("text", "mode", "why"),
    [
        (None, 0, "cannot be read.*make a token with `loom token NAME`"),
        ("", 0o600, "has no token"),
        ("\n\n", 0o600, "has no token"),
        ("ann", 0o600, ":1 .*this is no token"),
        ('{"name": "ann"}', 0o600, ":1 .*this is no token"),
        ('\n{"name": "ann", "sha256": "x"}', 0o600, ":2 .*this is no token"),
        ('{"name": " ", "sha256": "' + "0" * 64 + '"}', 0o600, "this is no token"),
        ('{"name": ["ann"], "sha256": "' + "0" * 64 + '"}', 0o600, "this is no token"),
        ("[" * 100_000, 0o600, "this is no token"),
        ('{"name": "ann", "sha256": "' + "0" * 64 + '"}', 0o602, "others may write"),
        ('{"name": "ann", "sha256": "' + "0" * 64 + '"}', 0o620, "others may write"),
    ],
)
def test_without_a_good_file_of_tokens_there_is_no_gateway(
    tmp_path: Path, text: str | None, mode: int, why: str
) -> None:
    path = tmp_path / "tokens"
    if text is not None:
        path.write_text(text)
        path.chmod(mode)
    with pytest.raises(ConfigurationError, match=why):
        Tokens(path)


def test_a_token_is_its_owners_and_only_its_hash_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "below" / "tokens"
    first, second, third = (add_token(path, name) for name in ("ann", "Bob B.", "ann"))
    tokens = Tokens(path)
    assert [tokens.owner(token) for token in (first, second, third)] == ["ann", "Bob B.", "ann"]
    assert [tokens.owner(token) for token in ("", first[:-1], first + " ", first.upper(), "\udc80")] == [None] * 5
    assert first not in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_text("".join(path.read_text().splitlines(keepends=True)[1:]))
    assert [tokens.owner(token) for token in (first, third)] == [None, "ann"]
    path.unlink()
    assert tokens.owner(third) is None


@pytest.mark.parametrize("name", ["", "  ", "a\x1bb", "\u200b", "аnn", "x" * 201])
def test_a_name_that_may_look_like_anothers_gets_no_token(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match="is no name"):
        add_token(tmp_path / "tokens", name)
    assert not (tmp_path / "tokens").exists()


def test_a_short_key_signs_nothing_and_no_key_means_no_links() -> None:
    with pytest.raises(ConfigurationError, match="has 5 characters and needs 32"):
        key_of(Settings(gateway_key="short"))
    assert key_of(Settings(gateway_key=None)) == b""
    with pytest.raises(ConfigurationError, match="names no file"):
        tokens_path(Settings(gateway_tokens=""))


def test_a_link_that_differs_in_one_letter_is_no_link() -> None:
    key = b"k" * 32
    link = Link(approval="ap_1", choice="approve", by="ann", digest="", expires=1.5, id="x")
    text = sign(key, link)
    assert read(key, text) == link
    for place in range(len(text)):
        other = "A" if text[place] != "A" else "B"
        assert read(key, text[:place] + other + text[place + 1 :]) is None
    assert [read(key, wrong) for wrong in ("", ".", text + "=", text + ".", "ä.ö")] == [None] * 5
    assert read(b"j" * 32, text) is None
