"""What a program may write: mypy finds nothing here."""

from collections.abc import Callable
from pathlib import Path

from loom_client import (
    AgentRunner,
    ApprovalRecord,
    EffectRecord,
    GraphJob,
    Job,
    JobRecord,
    JobStatus,
    Loom,
    Receipt,
    Reply,
    Schedule,
    Settings,
    SigningKey,
    Times,
    connect,
)
from loom_dsl import (
    Agent,
    Event,
    GraphBuilder,
    Limits,
    Plan,
    R,
    Reconciliation,
    RunResult,
    Tool,
    ToolContext,
    ToolError,
    compile_graph,
    functions,
    to_yaml,
    tool,
)


@tool
def word_count(text: str, context: ToolContext) -> int:
    """Count words."""
    if not text:
        raise ToolError("there is no text")
    return len(text.split())


@tool(idempotent=True, retry=3)
async def look(city: str) -> str:
    """Look at a city."""
    return city


made: list[Tool] = [word_count, look]


def found(arguments: dict[str, object]) -> Reconciliation:
    return Reconciliation(outcome="happened", result="done")


def graph() -> Plan:
    g = GraphBuilder("count", input={"text": "str"})
    g.activity("words", "tools:word_count", text=g.input.text).when(functions.len_(R) > 0, "done").otherwise("none")
    g.end("done", words=R)
    g.fail("none", "no words")
    text: str = to_yaml(g.build())
    return compile_graph(text, "count.yaml")


async def program(settings: Settings, plan: Plan) -> str:
    agent = Agent(name="counter", model="gpt-4.1-mini", limits=Limits(max_iterations=3))
    async with connect(settings, address="127.0.0.1:7233") as loom:
        job: Job = await loom.start(agent, "How many words?", job="count-1")
        async for event in job.events():
            seen: Event = event
            print(seen.type, seen.data)
        receipt: Receipt = await job.decide("a-1", "approve", by="maria", sign=SigningKey.load(Path("maria.key")))
        jobs: list[JobRecord] = await loom.jobs(status="running")
        approvals: list[ApprovalRecord] = await loom.approvals(jobs[0].job, below=True)
        made: Schedule = (await loom.schedules.list())[0]
        print(made.next[0].isoformat(), approvals[0].details.get("risk"), jobs[0].error)
        stands: JobStatus = await job.status()
        wait: float | None = stands.waits[0].until if stands.waits else None
        effects: list[EffectRecord] = await job.effects()
        undone: str | None = effects[0].undone.note if effects[0].undone else None
        print(wait, undone, [step.cause for step in stands.halted], stands.turn and stands.turn.turn_counter)
        plain: Reply[str] = await AgentRunner(loom, agent).request("Count")
        counted: Reply[int | str] = await AgentRunner(loom, agent).request("Count", parse=len)
        print(plain.output.strip(), counted.output, counted.usage.total_tokens)
        begun: GraphJob = await loom.start_graph(plan, input={"text": "to be"})
        await begun.event("go", {"by": "maria"})
        await loom.schedules.create("hourly", agent, task="Count", times=Times(every="1h"))
        result: RunResult = await job.result()
        tokens: int = result.usage.total_tokens
        return f"{receipt.verdict} {result.answer} {tokens} {await AgentRunner(loom, agent).run('Count')}"


main: Callable[[Settings, Plan], object] = program
loom_type: type[Loom] = Loom
