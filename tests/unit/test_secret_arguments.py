"""A call that would hand a tool the value of a secret is refused, and says which argument holds it."""

import base64
from typing import Any

import pytest

from loom_dsl.errors import ConfigurationError, PermissionDenied
from loom_dsl.tools.secrets import refuse_secrets
from loom_tools.secrets import AllowedSecrets

KNOWN = {"SHELF": "s3cr3t/Value", "OTHER": "another-value"}


@pytest.mark.parametrize(
    ("arguments", "argument", "secret"),
    [
        ({"command": "echo s3cr3t/Value"}, "command", "SHELF"),
        ({"path": "a", "content": ["x", {"y": "another-value"}]}, "content", "OTHER"),
        ({"content": base64.b64encode(b"s3cr3t/Value").decode()}, "content", "SHELF"),
        ({"people": {"s3cr3t/Value": 1}}, "people", "SHELF"),
    ],
)
def test_a_value_in_an_argument_is_refused_and_the_argument_is_named(
    arguments: dict[str, Any], argument: str, secret: str
) -> None:
    with pytest.raises(PermissionDenied, match=f"'{argument}' holds the value of the secret {secret}") as refused:
        refuse_secrets(arguments, KNOWN)
    assert f"write ${{secret:{secret}}}" in refused.value.message
    assert KNOWN[secret] not in refused.value.message


@pytest.mark.parametrize(
    "arguments", [{}, {"command": "echo hello"}, {"headers": {"A": "Bearer ${secret:SHELF}"}}, {"n": 5}]
)
def test_a_reference_that_the_caller_wrote_is_no_value(arguments: dict[str, Any]) -> None:
    refuse_secrets(arguments, KNOWN)


def test_a_mask_that_the_caller_did_not_write_is_one() -> None:
    with pytest.raises(PermissionDenied, match="'command' holds the value of the secret SHELF"):
        refuse_secrets({"path": "a", "command": "echo ${secret:SHELF}"}, KNOWN, masked=True)


def test_a_secret_that_is_too_short_to_be_masked_is_refused_when_a_worker_starts() -> None:
    with pytest.raises(ConfigurationError, match="--secret PIN: a value of under 8 characters cannot be masked"):
        AllowedSecrets.of(["PIN", "KEY"], {"PIN": "1234567", "KEY": "12345678"})
    assert AllowedSecrets.of(["KEY", "UNSET"], {"KEY": "12345678"}).values == {"KEY": "12345678"}
