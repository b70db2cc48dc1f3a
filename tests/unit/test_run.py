import json

import pytest
from pydantic import ValidationError

from loom_dsl.agent.definition import Agent, Limits
from loom_dsl.agent.run import (
    ErrorInfo,
    LoopLimits,
    RecursionStats,
    RunInput,
    RunResult,
    RunUsage,
    ToolPolicy,
    allowed_tools,
    effective_limits,
    unknown_tools,
)
from loom_dsl.agent.turn import ExecutionContext, TurnState, Usage
from loom_dsl.errors import ToolTimeout

AGENT = Agent(
    name="a",
    model="m",
    tools=["glob", "grep", "my_tools:lookup"],
    limits=Limits(max_iterations=20, max_tool_calls=100, max_run_duration="1h"),
)


@pytest.mark.parametrize(
    ("run_input", "changed"),
    [
        (RunInput(), {}),
        (RunInput(loop_limits=LoopLimits(max_iterations=5)), {"max_iterations": 5}),
        (
            RunInput(loop_limits=LoopLimits(max_tool_rounds=3, max_run_duration="5m")),
            {"max_tool_rounds": 3, "max_run_duration": 300.0},
        ),
        (
            RunInput(tool_policy=ToolPolicy(max_parallel=2, max_calls_per_run=7)),
            {"max_concurrency": 2, "max_tool_calls": 7},
        ),
    ],
)
def test_a_limit_is_the_input_s_else_the_agent_s(run_input: RunInput, changed: dict[str, object]) -> None:
    limits = effective_limits(AGENT, run_input)

    assert dict(limits) == {**dict(AGENT.limits), **changed}
    assert Limits.model_validate(limits.model_dump()) == limits


@pytest.mark.parametrize(
    ("policy", "run_input", "expected"),
    [
        (ToolPolicy(), RunInput(), ("glob", "grep", "my_tools:lookup")),
        (ToolPolicy(enabled=False), RunInput(), ()),
        (ToolPolicy(allow_list=()), RunInput(), ()),
        (ToolPolicy(allow_list=("grep", "lookup")), RunInput(), ("grep", "my_tools:lookup")),
        (ToolPolicy(allow_list=("grep", "lookup")), RunInput(allowed_tools=("glob", "lookup")), ("my_tools:lookup",)),
        (ToolPolicy(), RunInput(allowed_tools=("my_tools:lookup", "delete_file")), ("my_tools:lookup",)),
        (ToolPolicy(), RunInput(tool_order=("lookup", "glob")), ("my_tools:lookup", "glob", "grep")),
        (ToolPolicy(), RunInput(tool_order=("grep", "nothing", "grep")), ("grep", "glob", "my_tools:lookup")),
    ],
)
def test_the_tools_of_a_run_are_the_intersection_in_the_asked_order(
    policy: ToolPolicy, run_input: RunInput, expected: tuple[str, ...]
) -> None:
    assert allowed_tools(policy, run_input, AGENT) == expected


def test_names_of_tools_that_the_agent_does_not_have_are_told() -> None:
    run_input = RunInput(allowed_tools=("glbo", "grep"), tool_policy=ToolPolicy(allow_list=("xyz",)))

    assert unknown_tools(AGENT, run_input) == [
        "allowed_tools names `glbo`, which agent a does not have; did you mean `glob`?",
        "tool_policy.allow_list names `xyz`, which agent a does not have",
    ]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"run_id": "a b"}, "run_id"),
        ({"run_id": "../x"}, "run_id"),
        ({"session_id": ""}, "session_id"),
        ({"run_id": "x" * 201}, "run_id"),
        ({"input_messages": [{"role": "robot", "content": "x"}]}, "has the role 'robot'"),
        ({"input_messages": [{"role": "user"}]}, "has no content"),
        ({"max_iterations": 3}, "max_iterations"),
    ],
)
def test_an_input_that_cannot_be_run_is_refused(fields: dict[str, object], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        RunInput.model_validate(fields)


def test_an_input_travels_as_json() -> None:
    run_input = RunInput.of_text(
        "Summarise",
        run_id="job-1",
        allowed_tools=("glob",),
        loop_limits=LoopLimits(max_run_duration="5m"),
        context=ExecutionContext.for_job("job-1", "/srv"),
    )

    assert RunInput.model_validate_json(run_input.model_dump_json()) == run_input
    assert run_input.input_messages == ({"role": "user", "content": "Summarise"},)


def test_usage_of_runs_adds_tokens_calls_waste_and_money_exactly() -> None:
    one = RunUsage(
        prompt_tokens=10, completion_tokens=2, model_calls=1, tool_calls=1, cost_usd=0.1, wasted=Usage(prompt_tokens=1)
    )
    total = sum([one] * 2, start=one)

    assert total == RunUsage(
        prompt_tokens=30, completion_tokens=6, model_calls=3, tool_calls=3, cost_usd=0.3, wasted=Usage(prompt_tokens=3)
    )
    assert one + Usage(prompt_tokens=5) == one.model_copy(update={"prompt_tokens": 15})


def test_a_result_is_told_by_the_last_turn() -> None:
    turn = TurnState.initial("job").next_turn(
        model_calls=2, tool_calls=1, usage=Usage(prompt_tokens=7), cost_microusd=1500
    )
    result = RunResult(
        session_id="s",
        run_id="job",
        status="failed",
        answer="so far",
        partial=True,
        error=ErrorInfo.of(ToolTimeout("too slow")),
        usage=RunUsage.of_turn(turn),
        recursion_stats=RecursionStats.of_turn(turn),
    )

    assert result.error == ErrorInfo(code="timeout", message="too slow", recoverable=True)
    assert (result.usage.prompt_tokens, result.usage.model_calls, result.usage.cost_usd) == (7, 2, 0.0015)
    assert result.recursion_stats.max_depth == 1
    assert result.recursion_stats.recursion_events == (
        {"from_turn": turn.parent_turn_id, "to_turn": turn.turn_id, "depth": 1},
    )
    assert RunResult.model_validate(json.loads(result.model_dump_json())) == result
