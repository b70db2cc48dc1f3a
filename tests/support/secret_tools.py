"""Tools that take secrets by reference; `GIVEN` tells what their functions were given, in this process only."""

from loom_dsl.tools.context import Reconciliation, ToolContext
from loom_dsl.tools.hooks import HookAnswer, HookCall
from loom_dsl.tools.tool import Arguments, tool

REFERENCE = "${secret:SHELF}"
GIVEN: list[tuple[str, ...]] = []
SEEN: list[str] = []
"""What those saw who look at calls: hooks, previews, summaries, checks."""


def _seen(arguments: Arguments) -> str:
    SEEN.append(str(arguments["token"]))
    return f"sign {arguments['account']} in with {arguments['token']}"


def _preview(arguments: Arguments, context: ToolContext) -> str:
    return _seen(arguments)


def _check(arguments: Arguments) -> None:
    _seen(arguments)


def _undo(arguments: Arguments, result: object, context: ToolContext) -> None:
    GIVEN.append(("undo", arguments["account"], arguments["token"]))
    raise RuntimeError(f"{arguments['token']} has no right to sign out")


def _find(arguments: Arguments, context: ToolContext) -> Reconciliation:
    GIVEN.append(("find", arguments["account"], arguments["token"]))
    return Reconciliation(outcome="happened", result=f"found with {arguments['token']}")


@tool(secrets=["token"], summarise=_seen, preview=_preview, check=_check, compensate=_undo)
def sign_in(account: str, token: str, context: ToolContext) -> dict[str, str]:
    """Sign an account in.

    Args:
        account: Whose it is.
        token: What proves it.
    """
    GIVEN.append(("sign_in", account, token))
    context.progress(f"signing in with {token}")
    if account == "closed":
        raise RuntimeError(f"{token} is not accepted")
    return {"account": account, "with": token}


@tool(secrets=["token"], read_only=True, quick=True)
def balance(account: str, token: str = REFERENCE) -> str:
    """Tell the balance.

    Args:
        account: Of which account.
        token: What proves it.
    """
    GIVEN.append(("balance", account, token))
    return f"{account} has 5, says the bearer of {token}"


@tool(secrets=["token"], reconcile=_find)
def transfer(account: str, token: str) -> str:
    """Transfer everything.

    Args:
        account: Where to.
        token: What proves it.
    """
    GIVEN.append(("transfer", account, token))
    return token


def look(call: HookCall) -> HookAnswer:
    """See the arguments of every call that has them already."""
    token = call.arguments.get("token", REFERENCE)
    SEEN.append(str(token))
    return HookAnswer(note=f"{call.tool} with {token}")
