"""A tool says which of its parameters take secrets: calls have references there, and the function gets the values."""

from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field, SecretStr

from loom_cli.project.contracts import Contracts
from loom_dsl.errors import PermissionDenied, ToolDeclarationError
from loom_dsl.graph.checks.unit import Contract
from loom_dsl.graph.compiler import check_text
from loom_dsl.tools.context import ToolContext
from loom_dsl.tools.secret_references import put_secrets, secret_values
from loom_dsl.tools.tool import Tool, tool, validate_arguments
from loom_tools.registry import ToolRegistry
from loom_tools.secrets import AllowedSecrets

CONTEXT = ToolContext(working_dir=Path())
LENT = AllowedSecrets({"TOKEN": "t0ken-value", "OTHER": "other-value"}, {})
SAID = "A secret is named here, never written: ${secret:NAME}."


@tool(secrets=["token"])
def by_signature(city: str, token: str | None = None, context: ToolContext | None = None) -> str:
    """Tell the weather.

    Args:
        city: Name of the city.
        token: For the service.
    """
    return f"{city} {token}"


class Query(BaseModel):
    city: str
    token: str | None = Field(default=None, description="For the service.")


@tool(arguments=Query, secrets=["token"])
def by_model(city: str, token: str | None) -> str:
    """Tell the weather."""
    return f"{city} {token}"


SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "description": "Name of the city."},
        "token": {"type": ["string", "null"], "description": "For the service.", "default": None},
    },
    "required": ["city"],
    "additionalProperties": False,
}


@tool(parameters=SCHEMA, secrets=("token",))
def by_schema(city: str, token: str | None = None) -> str:
    """Tell the weather."""
    return f"{city} {token}"


@tool
class ByClass:
    """Tell the weather."""

    secrets = ("token",)

    def run(self, city: str, token: str | None = None) -> str:
        """Look it up.

        Args:
            city: Name of the city.
            token: For the service.
        """
        return f"{city} {token}"


FORMS: list[Any] = [by_signature, by_model, by_schema, ByClass]


def called(made: Tool, **arguments: Any) -> Any:
    """Call a tool as a worker does."""
    checked = validate_arguments(made, arguments)
    return made(**made.bind(checked, CONTEXT, secret_values(checked, made.secrets, LENT.value)))


@pytest.mark.parametrize("made", FORMS, ids=lambda made: made.name)
def test_each_form_declares_it_and_its_schema_says_what_is_written_there(made: Tool) -> None:
    assert made.parameters["properties"]["token"]["description"] == f"For the service. {SAID}"
    assert SAID not in str(made.parameters["properties"]["city"])
    found = ToolRegistry.load(modules=[__name__]).resolve(f"{__name__}:{made.function.__name__}")
    assert found.parameters == made.parameters, "under another name it is said twice"


def test_a_parameter_without_a_description_gets_one() -> None:
    @tool(secrets=["token"])
    def bare(token: str) -> str:
        return token

    assert bare.parameters["properties"]["token"]["description"] == SAID
    assert SAID not in str(SCHEMA), "an author's own schema was changed"


@pytest.mark.parametrize("made", FORMS, ids=lambda made: made.name)
@pytest.mark.parametrize(
    ("arguments", "given"),
    [
        ({"city": "Rome", "token": "${secret:TOKEN}"}, "Rome t0ken-value"),
        ({"city": "Rome", "token": "Bearer ${secret:TOKEN}:${secret:OTHER}"}, "Rome Bearer t0ken-value:other-value"),
        ({"city": "${secret:TOKEN}", "token": "plain"}, "${secret:TOKEN} plain"),
        ({"city": "Rome", "token": "${SECRET:TOKEN} $secret"}, "Rome ${SECRET:TOKEN} $secret"),
        ({"city": "Rome"}, "Rome None"),
    ],
)
def test_only_the_declared_parameter_gets_the_value(made: Tool, arguments: dict[str, Any], given: str) -> None:
    assert called(made, **arguments) == given
    assert "value" not in str(validate_arguments(made, arguments)), "what is kept has the reference"


@pytest.mark.parametrize("name", ["MISSING", "", " TOKEN", "token", "my-key", "x" * 500, "TOKEN + 1"])
def test_a_name_that_is_not_lent_is_told_with_what_to_do_and_without_values(name: str) -> None:
    with pytest.raises(PermissionDenied) as refused:
        called(by_signature, city="Rome", token=f"${{secret:TOKEN}}${{secret:{name}}}")
    assert refused.value.message.startswith(f"this worker lends no secret {name[:64]!r}; it lends: OTHER, TOKEN.")
    assert "--secret NAME" in refused.value.message
    assert "value" not in refused.value.message


def test_what_a_value_looks_like_is_not_read_again() -> None:
    odd = {"A": "${secret:B}", "B": r"\g<0> \1"}
    assert put_secrets("${secret:A} ${secret:B}", odd.__getitem__) == r"${secret:B} \g<0> \1"


def test_a_reference_may_be_a_default() -> None:
    @tool(secrets=["token"])
    def standard(token: str = "${secret:TOKEN}") -> str:
        return token

    assert called(standard) == "t0ken-value"


class Colour(Enum):
    RED = "red"


def misspelled(token: str) -> str:
    return token


def number(token: int) -> str:
    return str(token)


def listed(token: list[str]) -> str:
    return str(token)


def chosen(token: Colour) -> str:
    return str(token)


def hidden(token: SecretStr) -> str:
    return str(token)


def short(token: Annotated[str, Field(max_length=8)]) -> str:
    return token


def shaped(token: Annotated[str, Field(pattern="^ghp_")]) -> str:
    return token


def takes_context(token: ToolContext) -> str:
    return str(token)


@pytest.mark.parametrize(
    ("function", "options", "words"),
    [
        (misspelled, {"secrets": ["tokn"]}, r"secrets names 'tokn', which is not a parameter; it has \['token'\]"),
        (misspelled, {"secrets": "token"}, r"secrets is a text; write a list: secrets=\['token'\]"),
        (misspelled, {"secrets": ["token"], "path_arguments": ("token",)}, "rules match on it"),
        (misspelled, {"secrets": ["token"], "command_argument": "token"}, "rules match on it"),
        (misspelled, {"secrets": ["token"], "address_argument": "token"}, "rules match on it"),
        (takes_context, {"secrets": ["token"]}, "'token', which is not a parameter"),
        (number, {"secrets": ["token"]}, "'token', where .* can stand: it is not plain text; .* of the type str"),
        (listed, {"secrets": ["token"]}, "it is not plain text"),
        (chosen, {"secrets": ["token"]}, 'expected one of "red"'),
        (hidden, {"secrets": ["token"]}, "it is not plain text"),
        (short, {"secrets": ["token"]}, "at most 8 characters"),
        (shaped, {"secrets": ["token"]}, "it is not plain text"),
    ],
)
def test_a_declaration_that_cannot_hold_is_refused(function: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ToolDeclarationError, match=words):
        tool(function, **options)


# -- graphs ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("node", "said"),
    [
        ("tool: 'shop:order', with: {key: '${secret:KEY}'}", []),
        (
            "tool: 'shop:order', with: {item: '${secret:KEY}'}",
            ["`item` as text; its arguments that take secrets: key"],
        ),
        ("tool: 'shop:order', with: {more: {key: '${secret:KEY}'}}", ["reference in `more` as text"]),
        ("tool: 'shop:price', with: {key: '${secret:KEY}'}", ["its arguments that take secrets: none"]),
        ("tool: 'other:tool', with: {key: '${secret:KEY}'}", []),
        ("tool: network_request, with: {headers: {X: '${secret:KEY}'}}", []),
        ("activity: 'shop:order', with: {key: '${secret:KEY}'}", ["`shop:order` would get the reference as text"]),
        ("activity: temporal_one, with: {key: '${secret:KEY}'}", []),
        (
            "activity: temporal_one, compensate: {activity: 'shop:undo', with: {key: '${secret:KEY}'}}",
            ["the function `shop:undo` would get the reference as text"],
        ),
    ],
)
def test_a_reference_that_its_reader_takes_for_text_is_told(node: str, said: list[str]) -> None:
    known = {"shop:order": Contract(secrets=frozenset({"key"})), "shop:price": Contract(secrets=frozenset())}
    text = f"loom: 1\nkind: graph\nname: g\nnodes:\n  a: {{{node}, next: e}}\n  e: {{end: null}}\n"
    found = check_text(text, "g.yaml", contracts=lambda what, name: known.get(name) if what == "tool" else None)
    assert [one.code for one in found] == ["L125"] * len(said)
    assert all(part in one.message for part, one in zip(said, found, strict=True)), found


def test_what_takes_secrets_is_known_of_the_tools_of_modules_only() -> None:
    contracts = Contracts(ToolRegistry.load(modules=["tests.support.secret_tools"]), frozenset(), asked=True)
    taking = [contracts.of("tool", f"tests.support.secret_tools:{name}") for name in ("sign_in", "transfer")]
    assert [found and found.secrets for found in taking] == [{"token"}, {"token"}]
    headers = contracts.of("tool", "network_request")
    assert headers is not None
    assert headers.secrets is None
