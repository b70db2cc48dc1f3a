"""What a program may not write: mypy finds each of these, and says what the comment says."""

import loom_client
import loom_dsl
from loom_client import AgentRunner, Job, Loom, Times
from loom_dsl import (
    Agent,
    GraphBuilder,
    Limits,
    RunResult,
    ToolContext,
    compile_graph,
    tool,
)


async def program(loom: Loom, job: Job, agent: Agent) -> None:
    result: RunResult = job.result()  # expect: assignment
    await loom.start("an agent", "a task")  # expect: arg-type
    await loom.start(agent, 7)  # expect: arg-type
    await job.decide("a-1")  # expect: call-arg
    await job.decide("a-1", "approve", who="maria")  # expect: call-arg
    text: int = result.answer  # expect: assignment
    print(result.anser, text)  # expect: attr-defined
    await loom.schedules.create("hourly", agent, times="1h")  # expect: arg-type
    (record,) = await loom.jobs()
    record.status = "failed"  # expect: misc
    print(record["status"], record.state.upper())  # expect: index
    (approval,) = await loom.approvals()
    print(approval.decided_by, approval.by)  # expect: attr-defined
    print(approval.by.title())  # expect: union-attr
    status = await job.status()
    print(status["state"], status.waits[0].childs)  # expect: index attr-defined
    (effect,) = await job.effects()
    effect.state = "settled"  # expect: misc
    print(effect.undone.note)  # expect: union-attr
    receipt = await job.pause()
    print(receipt.get("verdict"), receipt.verdict == "recorded")  # expect: attr-defined
    reply = await AgentRunner(loom, agent).request("a task", parse=len)
    print(reply["success"], reply.output.real)  # expect: index union-attr


def lists(context: ToolContext) -> str:
    return context.working_dir  # expect: return-value


@tool(idempotnt=True)  # expect: call-overload untyped-decorator
def look(city: str) -> str:
    """Look at a city."""
    return city


Times(evry="1h")  # expect: call-arg
Limits(max_iteration=3)  # expect: call-arg
GraphBuilder(7)  # expect: arg-type
compile_graph(7, "count.yaml")  # expect: arg-type
loom_client.conect()  # expect: attr-defined
loom_dsl.Machine()  # expect: attr-defined
