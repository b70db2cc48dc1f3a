"""What the model is told of the git checkout that it works in."""

import pytest

from loom_dsl.agent.run import RunInput
from loom_dsl.agent.turn import ExecutionContext
from tests.durability.conftest import Opener

pytestmark = pytest.mark.server


async def test_the_model_reads_it_in_every_turn_as_it_was_when_the_job_started(house: Opener) -> None:
    opened = await house([{"calls": [{"tool": "look", "args": {"text": "x"}}]}, {"say": "bye"}])
    place = opened.folder / "own"
    (place / ".git").mkdir(parents=True)
    (place / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    async with opened.inside():
        job = await opened.loom.start(opened.agent(), "do it", workdir=place)
        (place / ".git" / "HEAD").write_text("ref: refs/heads/later\n")
        await job.result()
        context = ExecutionContext(working_dir=str(place), correlation_id="c", git_context={"branch": "given"})
        run = RunInput(input_messages=({"role": "user", "content": "do it"},), context=context)
        await (await opened.loom.start(opened.agent(), run)).result()
    systems = [request.json["messages"][0]["content"] for request in opened.model.requests]
    branches = [line for text in systems for line in text.splitlines() if line.startswith("branch: ")]
    first = branches.index("branch: given")  # a busy worker may have asked for a turn twice
    assert (set(branches[:first]), set(branches[first:])) == ({"branch: main"}, {"branch: given"})
    assert min(first, len(branches) - first) >= 2
