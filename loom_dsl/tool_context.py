"""What a tool's function is told about the call that it serves."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from loom_dsl.errors import ApprovalStale
from loom_dsl.tool_services import ToolServices


def _say_nothing(text: str) -> None:
    """Drop a progress line: nobody listens."""


def _never() -> bool:
    return False


class Preview(str):
    """What a call would do, as its approver is shown it, such as a diff: a text that says what it is about.

    Attributes:
        state: Names what the call would change as it was when the text was made, such as a digest of the file. An
            approved call finds it in its context, and does not run when it finds another one.
    """

    state: str

    def __new__(cls, text: str, state: str = "") -> "Preview":
        """Make one; without a state, the call runs whatever has changed since."""
        made = super().__new__(cls, text)
        made.state = state
        return made


@dataclass(frozen=True, kw_only=True)
class ToolContext:
    """What a tool may know about the call it serves. A function gets it through a parameter annotated with this class.

    Attributes:
        working_dir: The directory that file tools are confined to.
        job: Id of the job.
        turn: Number of the turn.
        call_id: The model's id of this call.
        idempotency_key: The same for every attempt of this call; hand it to services that can use one.
        progress: Tells the watchers a line of partial output; the model does not see it. Of many they are told the
            latest, four times a second at most, and always the last.
        cancelled: Whether somebody ended the job, or the worker is about to stop; long work asks now and then and
            stops.
        approved_states: The states (`Preview.state`) for which the call was approved; empty: nobody was asked, or was
            shown one.
        leaves: Tells the state in which an approved call leaves what it changes. Another call of the same turn, that
            was approved for the state before, may then follow it.
        services: What the worker lends besides; `secret` is the way to a secret for a tool of your own.
    """

    working_dir: Path
    job: str = ""
    turn: int = 0
    call_id: str = ""
    idempotency_key: str = ""
    progress: Callable[[str], None] = _say_nothing
    cancelled: Callable[[], bool] = _never
    approved_states: frozenset[str] = frozenset()
    leaves: Callable[[str], None] = _say_nothing
    services: ToolServices = field(default=ToolServices(), repr=False)

    def check_state(self, state: str, what: str) -> None:
        """Make sure that what the call is about to change is what its approver was shown.

        Args:
            state: What is found now.
            what: What that is the state of, for the message.

        Raises:
            ApprovalStale: It is another one.
        """
        if self.approved_states and state not in self.approved_states:
            raise ApprovalStale(
                f"{what} was changed after this call was shown to its approver, so nothing was done; "
                "read it again and make a new call, which is asked about anew"
            )

    @property
    def runtime(self) -> Mapping[str, Any]:
        """The run's runtime data (`RunInput.runtime_init_data`)."""
        return self.services.runtime()

    def secret(self, name: str) -> str:
        """Give the value of a secret that the worker was started with: `--secret NAME`.

        Raises:
            PermissionDenied: The worker lends no secret of that name.
        """
        return self.services.secret(name, None)


@dataclass(frozen=True, kw_only=True)
class Reconciliation:
    """What a tool found out about an earlier attempt whose end nobody saw.

    Attributes:
        outcome: Whether the effect is there. `unknown` when the world does not tell.
        result: What the call would have returned, when it happened.
    """

    outcome: Literal["happened", "not_happened", "unknown"]
    result: Any = None
