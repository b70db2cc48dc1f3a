"""The gateway's bearer tokens: a file of names and hashes. A token itself is shown once and kept nowhere."""

import hmac
import json
import os
import re
import secrets
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from loom_dsl.approvals.policy import person
from loom_dsl.errors import ConfigurationError, UserError
from loom_dsl.text.canonical import read_json
from loom_dsl.text.confusables import mixes_scripts, revealed
from loom_tools.workspace.owned_file import read_lines, state_of

SETTING = "LOOM_GATEWAY_TOKENS"
_HASH = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class AccessToken:
    """One line of the file.

    Attributes:
        name: Whose it is; decisions that come with it are this person's.
        sha256: Hash of the token, in hexadecimal digits. Tokens are random, so they need no salt.
    """

    name: str
    sha256: str


class Tokens:
    """The tokens of a file, which is read anew whenever it has changed: a line that is taken out counts no more.

    Raises:
        ConfigurationError: There is no token, the file cannot be read, or others than its owner may write it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, ...] = ()
        self._tokens: list[AccessToken] = []
        if not self._read():
            raise ConfigurationError(f"{path} ({SETTING}) has no token; make one with `loom token NAME`")

    def owner(self, presented: str) -> str | None:
        """Whose token this is, or None. It takes as long for a wrong one as for a right one."""
        given, found = _hash(presented), None
        try:
            known = self._read()
        except ConfigurationError:
            return None
        for token in known:
            if hmac.compare_digest(token.sha256, given):
                found = token.name
        return found

    def _read(self) -> list[AccessToken]:
        try:
            seen = state_of(self._path)
            if seen != self._seen:
                self._tokens, self._seen = read_tokens(self._path), seen
        except OSError as error:
            why = f"{self._path} ({SETTING}) cannot be read: {error.strerror}; make a token with `loom token NAME`"
            raise ConfigurationError(why) from None
        return self._tokens


def read_tokens(path: Path) -> list[AccessToken]:
    """Read a file of tokens.

    Raises:
        ConfigurationError: It has a line that is none, or others than its owner may write it.
        OSError: It cannot be read.
    """
    return [_token(path, number, line) for number, line in read_lines(path, SETTING, "600")]


def add_token(path: Path, name: str) -> str:
    """Make a token for a person, and write its hash down.

    Returns:
        The token. It cannot be had again.

    Raises:
        UserError: The name cannot be one.
        ConfigurationError: The file cannot be written, or is none.
    """
    if not person(name) or len(name) > 200 or revealed(name) != name or mixes_scripts(name):
        raise UserError(f"{name[:80]!a} is no name; give one as the policy's roles have it")
    token = "loom_" + secrets.token_urlsafe(32)
    line = json.dumps({"name": name, "sha256": _hash(token)}) + "\n"
    try:
        if path.exists():
            read_tokens(path)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
        with open(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "a", encoding="utf-8") as file:
            file.write(line)
    except OSError as error:
        raise ConfigurationError(f"{path} ({SETTING}) cannot be written: {error.strerror}") from None
    return token


def _hash(token: str) -> str:
    return sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def _token(path: Path, number: int, line: bytes) -> AccessToken:
    try:
        found = read_json(line)
        name, digest = found["name"], found["sha256"]
    except (ValueError, KeyError, TypeError):
        name = digest = ""
    if not isinstance(name, str) or not isinstance(digest, str) or not person(name) or not _HASH.fullmatch(digest):
        raise ConfigurationError(f'{path}:{number} ({SETTING}): this is no token; write {{"name": …, "sha256": …}}')
    return AccessToken(name, digest)
