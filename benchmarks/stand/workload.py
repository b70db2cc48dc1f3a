"""What the contestants have to do, and the scripted model that makes them do it."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One job.

    Attributes:
        turns: Turns with a tool call; a turn with the answer follows them.
        size: Characters of each tool result.
        delay: Milliseconds before the model's first byte.
        tool: Name of the tool.
        width: Tool calls in one turn.
    """

    turns: int
    size: int = 40
    delay: int = 0
    tool: str = "lookup"
    width: int = 1

    @property
    def model(self) -> str:
        """The model's name, which says all of it: the scripted model finds its steps by this name."""
        return f"{self.tool}-{self.turns}x{self.width}-{self.size}b-{self.delay}ms"

    def case(self) -> str:
        """Write the workload as a case of a scripted model, in YAML."""
        size = f", size: {self.size}" if self.tool in ("lookup", "fetch") else ""
        call = "{{tool: {tool}, args: {{key: '{{n}}.{index}'{size}}}}}"
        calls = ", ".join(call.format(tool=self.tool, index=index, size=size) for index in range(self.width))
        before = f", before: {self.delay}ms" if self.delay else ""
        return (
            f"  - when: {{model: {self.model}}}\n"
            f"    steps: [{{repeat: {self.turns}, say: I look at the next one., calls: [{calls}]{before}}}]\n"
            f"    otherwise: {{say: That is all.{before}}}\n"
        )


def script(workloads: Iterable[Workload]) -> str:
    """Write a scripted model that serves several workloads, told apart by the model's name."""
    cases = {workload.model: workload.case() for workload in workloads}
    return "loom: 1\nkind: fake-model\nname: bench\notherwise: {fail: {status: 404}}\ncases:\n" + "".join(
        cases.values()
    )
