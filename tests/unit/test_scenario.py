"""Scenarios: the clock, what the world answers, what comes from outside, what is expected, and what is covered."""

import random
from pathlib import Path
from typing import Any

import pytest

from loom_dsl.documents.document import load_yaml
from loom_dsl.errors import DocumentError, LoomError, UserError
from loom_dsl.graph.compiler import compile_graph
from loom_dsl.graph.plan import Plan
from loom_dsl.simulation.check import check_scenario
from loom_dsl.simulation.draft import empty_input, empty_results, starting_point
from loom_dsl.simulation.report import differences, explanation, failed, hints, to_json
from loom_dsl.simulation.run import Played, play_case, play_scenario
from loom_dsl.simulation.scenario import LoadedScenario, Scenario, load_scenario

ROOT = Path(__file__).resolve().parents[2]
FILES = [ROOT / "examples" / "code-review" / "graph.yaml", *sorted((ROOT / "examples" / "patterns").glob("*.yaml"))]
HEAD = "loom: 1\nkind: scenario\nname: s\n"


def plan_of(nodes: str, head: str = "") -> Plan:
    return compile_graph(f"loom: 1\nkind: graph\nname: g\n{head}nodes:\n{nodes}", "g.yaml")


def scenario_of(text: str) -> LoadedScenario:
    return load_scenario(HEAD + text, "s.yaml")


def play(plan: Plan, text: str = "", **how: Any) -> Played:
    """Play the one case of a scenario that fits the graph."""
    loaded = scenario_of(text)
    assert check_scenario(loaded, plan) == []
    (case,) = loaded.scenario.whole_cases()
    return play_case(plan, case, **how)


def log(played: Played) -> list[tuple[float, str, str]]:
    return [(one.time, one.at, one.what) for one in played.log]


# -- the clock -----------------------------------------------------------------------------------------

HOUR = "defaults: {timeout: 1h}\n"
PARALLEL = plan_of(
    """
  split: {next: [slow, fast]}
  slow: {activity: "m:slow", next: after}
  fast: {activity: "m:fast", next: quick}
  quick: {activity: "m:quick", next: gather}
  after: {activity: "m:after", next: gather}
  gather: {join: all, next: done}
  done: {end: "${nodes.gather}"}
""",
    HOUR,
)


def test_work_is_done_in_the_order_of_its_times() -> None:
    played = play(PARALLEL, "results: {slow: {takes: 10m}, fast: {takes: 4m}, quick: {result: 1, takes: 5m}}")
    assert log(played) == [
        (240.0, "fast#1", "done"),
        (540.0, "quick#1", "done"),
        (600.0, "slow#1", "done"),
        (600.0, "after#1", "done"),
    ]
    assert (played.status, played.result, played.duration) == ("completed", {"quick": 1, "after": None}, 600.0)


ESCALATION = """
  ask:
    approval: {ask: "Pay?"}
    deadline: {after: 8h, to: remind}
    max_visits: 3
    exhausted: director
    next: [{if: result.choice == 'approve', to: paid}, {to: refused}]
  remind: {activity: "m:remind", with: {reason: "${result.choice}"}, next: ask}
  director:
    approval: {ask: "Nobody answered. Pay?"}
    deadline: {after: 24h, to: refused}
    next: [{if: result.choice == 'approve', to: paid}, {to: refused}]
  paid: {end: paid}
  refused: {fail: {code: refused, message: nobody wanted it}}
"""


def test_a_day_of_reminders_and_an_escalation_pass_at_once() -> None:
    played = play(plan_of(ESCALATION))
    assert (played.status, played.code, played.duration) == ("failed", "refused", 48 * 3600.0)
    assert [played.coverage.names[name] for name in ("ask", "remind", "director")] == [3, 3, 1]
    assert [one.arguments for one in played.asked] == [{"reason": "expired"}] * 3


@pytest.mark.parametrize(
    ("after", "status", "duration", "problems"),
    [
        ("0s", "completed", 0, ()),
        ("7h", "completed", 7, ()),
        ("8h", "completed", 8, ()),  # at the very moment of the deadline it still counts
        (
            "8h1s",
            "completed",
            16,
            ("the decision of `ask#1`: expired",),
        ),  # the second question is answered, too
    ],
)
def test_a_decision_comes_so_long_after_its_question(
    after: str, status: str, duration: float, problems: tuple[str, ...]
) -> None:
    text = f"decisions: {{ask: [{{choice: approve, after: {after}}}, {{choice: approve, after: 8h}}]}}"
    played = play(plan_of(ESCALATION), text)
    assert (played.status, played.duration // 3600, played.problems) == (status, duration, problems)


def test_nobody_decides_where_the_scenario_says_null() -> None:
    played = play(plan_of(ESCALATION), "decisions: {ask: [null, null, reject], director: approve}")
    assert (played.code, played.duration) == ("refused", 16 * 3600.0)


def test_the_job_starts_when_the_scenario_says() -> None:
    plan = plan_of("  late: {timer: {until: '2026-02-01T00:00:00Z'}, next: done}\n  done: {end: '${run.now}'}\n")
    played = play(plan, "now: 2026-01-31T12:00:00Z")
    assert (played.duration, played.result) == (12 * 3600.0, 1769904000.0)


def test_work_that_takes_longer_than_its_attempts_may_take_fails_as_on_a_server() -> None:
    work = "  work: {activity: 'm:f', timeout: 1m, retry: {attempts: 3, initial: 10s, backoff: 2}, next: done}\n"
    played = play(plan_of(f"{work}  done: {{end: 1}}\n"), "results: {work: {takes: 61s}}")
    assert (played.code, played.duration) == ("timeout", 3 * 60 + 10 + 20)
    assert played.problems == ("`work` takes 1m1s, and its timeout is 1m",)
    assert play(plan_of(f"{work}  done: {{end: 1}}\n"), "results: {work: {takes: 60s}}").status == "completed"


def test_a_deadline_cancels_work_that_takes_too_long() -> None:
    plan = plan_of("""
  work: {activity: "m:f", timeout: 2h, deadline: {after: 1h, to: late}, next: done}
  late: {end: late}
  done: {end: done}
""")
    played = play(plan, "results: {work: {takes: 61m}}")
    assert (played.result, played.duration, played.trace) == ("late", 3600.0, {})


# -- what the world answers ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        ("{each/work: {result: '${input.x * 2}'}}", [2, 4, 6]),
        ("{work: [a, b]}", ["a", "b", "b"]),  # the last is for all that follow
        ("{'m:f': '${index}'}", [0, 1, 2]),
        ("{'each[1]/work': here, 'm:f': other}", ["other", "here", "other"]),
        ("{'each#1[2]/work#1': here, work: other}", ["other", "other", "here"]),
        ("{each/work: in, work: out, 'm:f': name}", ["in", "in", "in"]),
        ("{work: {result: {a: ['${input.x}', '$${x}']}}}", [{"a": [n, "${x}"]} for n in (1, 2, 3)]),
        ("{}", [None, None, None]),
    ],
)
def test_the_most_exact_name_gives_the_result(results: str, expected: list[Any]) -> None:
    plan = plan_of(
        "  each: {map: {over: '[1, 2, 3]', do: one}, next: done}\n  done: {end: '${result}'}\n",
        "graphs:\n  one:\n    nodes:\n      work: {activity: 'm:f', with: {x: '${item}'}, next: done}\n"
        "      done: {end: '${result}'}\n",
    )
    assert play(plan, f"results: {results}").result == expected


def test_a_result_that_cannot_be_computed_is_a_mistake_of_the_scenario() -> None:
    with pytest.raises(UserError, match=r"the scenario's result of `work`: .*x"):
        play(plan_of("  work: {activity: 'm:f', next: done}\n  done: {end: 1}\n"), "results: {work: '${input.x}'}")


def test_a_failure_is_caught_by_its_code() -> None:
    plan = plan_of("""
  work: {activity: "m:f", catch: {busy: later}, next: done}
  later: {end: "${result.message}"}
  done: {end: done}
""")
    assert play(plan, "results: {work: {error: {code: busy, message: come back}}}").result == "come back"
    failed_case = play(plan, "results: {work: {error: broken}}")
    assert (failed_case.code, failed_case.trace) == ("broken", {"main": ["work#1:broken"]})


WORK = """
  asked: {llm: {model: small, prompt: "Sum up ${input.text}"}, next: written}
  written: {agent: writer, with: {task: "${nodes.asked.text}"}, next: sent}
  sent: {tool: send, with: {text: "${nodes.written.answer}"}, catch: {rejected: refused, any: broken}, next: done}
  done: {end: "${nodes.sent}"}
  refused: {end: refused}
  broken: {end: "${result.code}"}
"""
KINDS = plan_of(WORK, "input: {text: str}\nagents: {writer: {model: m}}\n")
GIVEN = "input: {text: it}\nresults:\n  small: {result: {text: short}}\n  writer: {result: {answer: long}, takes: 1h}\n"


@pytest.mark.parametrize(
    ("more", "result", "sent"),
    [
        ("  send: {result: {id: 7}, takes: 5s}\n", {"id": 7}, {"text": "long"}),
        ("  sent: {error: offline}\n", "offline", {"text": "long"}),
        ("  sent: ok\ndecisions: {sent: {choice: approve, after: 1d}}\n", "ok", {"text": "long"}),
        ("  sent: ok\ndecisions: {sent: reject}\n", "refused", None),
        ("  sent: ok\ndecisions: {sent: {choice: edit, edited_arguments: {text: x}}}\n", "ok", {"text": "x"}),
    ],
)
def test_models_agents_and_tools_are_mocked_by_node_or_by_name(more: str, result: Any, sent: Any) -> None:
    played = play(KINDS, GIVEN + more)
    assert (played.status, played.result) == ("completed", result)
    asked = {one.at: one.arguments for one in played.asked}
    assert asked["asked#1"] == {"model": "small", "prompt": "Sum up it", "system": "", "parameters": {}}
    assert asked["written#1"] == {"task": "short"}
    assert asked.get("sent#1") == sent
    ended = {"offline": "sent#1:offline", "refused": "sent#1:rejected"}.get(str(result), "sent#1")
    assert played.trace == {"main": ["asked#1", "written#1", ended]}


# -- what comes from outside -----------------------------------------------------------------------------

EVENTS = """
  work: {activity: "m:f", next: wait}
  wait: {event: {name: released, key: 7}, deadline: {after: 1d, to: late}, next: done}
  late: {end: late}
  done: {end: "${nodes.wait}"}
"""


@pytest.mark.parametrize(
    ("events", "result", "duration", "problems"),
    [
        ("[{name: released, key: 7, data: x}]", "x", 60.0, ()),  # it came before somebody waited
        ("[{name: released, key: 7, data: x, when: wait, after: 5m}]", "x", 360.0, ()),
        ("[{name: released, key: 7, data: x, after: 5m}]", "x", 300.0, ()),
        ("[{name: released, key: 8, data: x}]", "late", 86460.0, ()),
        ("[{name: released, when: late}]", "late", 86460.0, ()),
        ("[{name: released, when: wait#2}]", "late", 86460.0, ("event released: `wait#2` was not entered",)),
    ],
)
def test_an_event_comes_at_its_time(events: str, result: str, duration: float, problems: tuple[str, ...]) -> None:
    played = play(plan_of(EVENTS), f"results: {{work: {{takes: 1m}}}}\nevents: {events}")
    assert (played.result, played.duration) == (result, duration)
    assert len(played.problems) == len(problems)
    assert all(found.startswith(wanted) for found, wanted in zip(played.problems, problems, strict=True))


def test_an_abort_takes_back_what_was_done() -> None:
    plan = plan_of("""
  book:
    activity: "m:book"
    with: {seat: 4}
    compensate: {activity: "m:unbook", with: {seat: "${get(result, 'seat')}"}}
    next: pay
  pay: {activity: "m:pay", next: done}
  done: {end: paid}
""")
    text = """
results: {book: {result: {seat: 4}}, pay: {takes: 30s}, "m:unbook": {error: gone}}
steering: [{op: abort, when: pay, after: 10s, reason: too dear}]
expect:
  status: aborted
  duration: 10s
  events: [control, {type: compensated, node: "book#1", outcome: failed}]
"""
    played = play(plan, text)
    assert differences(played) == []
    assert log(played)[-2:] == [(10.0, "", "abort"), (10.0, "book#1", "taken back: gone")]


def test_a_paused_job_goes_on_when_it_is_resumed() -> None:
    text = "results: {work: {takes: 1m}}\nevents: [{name: released, key: 7, data: x}]\n"
    paused = f"{text}steering: [{{op: pause, after: 30s}}, {{op: resume, after: 1h}}]\n"
    assert play(plan_of(EVENTS), paused).duration == 3600.0
    stopped = play(plan_of(EVENTS), f"{text}steering: [{{op: pause, after: 30s}}]\n")
    assert (stopped.status, stopped.waits) == ("waiting", ("wait#1",))


BELOW = plan_of(
    """
  begin: {next: [part, timer]}
  part: {graph: part, child: true, with: {name: a}, catch: {any: done}, next: done}
  timer: {timer: 2h, next: stop}
  stop: {cancel: part, next: done}
  done: {end: "${get(nodes, 'part')}"}
""",
    HOUR
    + """graphs:
  part:
    input: {name: str}
    nodes:
      ask: {approval: "Go on with ${input.name}?", deadline: never, next: wait}
      wait: {event: go, deadline: never, next: work}
      work: {activity: "m:f", next: done}
      done: {end: "${result}"}
""",
)


def test_a_job_below_is_on_the_same_clock_and_hears_what_is_meant_for_it() -> None:
    text = """
results: {part/work: {result: well, takes: 10m}}
decisions: {ask: {choice: approve, after: 20m}}
events: [{name: go, when: part/wait, after: 30m}]
"""
    played = play(BELOW, text)
    assert (played.status, played.result, played.problems) == ("completed", "well", ())
    assert played.trace == {"part#1[0]": ["work#1"], "main": ["part#1"]}
    assert log(played)[0] == (1200.0, "part#1[0]/ask#1", "approve by scenario")
    assert (3600.0, "part#1[0]/work#1", "done") in log(played)


def test_a_job_below_can_be_taken_away_or_be_mocked_as_a_whole() -> None:
    taken = play(BELOW)
    assert (taken.duration, taken.trace) == (7200.0, {"main": ["part#1:aborted"]})
    mocked = play(BELOW, "results: {part: {result: 1, takes: 3s}}")
    assert (mocked.log[0].time, mocked.trace) == (3.0, {"main": ["part#1"]})


# -- what is expected --------------------------------------------------------------------------------------

SIMPLE = plan_of("""
  work: {activity: "m:f", with: {x: 1}, max_visits: 2, exhausted: gone, next: [{if: result.again, to: work}, {to: end}]}
  gone: {fail: {code: gone, message: it is gone}}
  end: {end: {a: 1, b: [1, 2], c: "${result}"}}
""")
ONE = "results: {work: {result: {again: false}}}\n"
ALWAYS = "results: {work: {result: {again: true}}}\n"


@pytest.mark.parametrize(
    "text",
    [
        ONE,
        ONE + "expect: {status: completed, visits: {work: 1, gone: 0}, trace: ['work#1'], duration: 0s}",
        ONE + "expect: {result: {a: 1.0, b: [1, 2], c: {again: false}}, arguments: {work: {x: 1}}, waits: []}",
        ONE + "expect: {events: [state, {type: state, state: completed}]}",
        ALWAYS + "expect: {failure: gone, arguments: {work: [{x: 1}, {x: 1}]}}",
        ALWAYS + "expect: {failure: {code: gone, message: is gone}, trace: {main: ['work#1', 'work#2']}}",
        ALWAYS + "expect: {status: failed}",
    ],
)
def test_what_comes_as_expected_is_no_difference(text: str) -> None:
    assert differences(play(SIMPLE, text)) == []


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (ALWAYS, ["it failed (gone: it is gone)"]),
        (ONE + "expect: {status: failed}", ["status: expected failed, got completed"]),
        (ONE + "expect: {failure: gone}", ["failure: expected gone, got completed"]),
        (ALWAYS + "expect: {failure: x}", ["failure: expected x, got failed (gone: it is gone)"]),
        (
            ALWAYS + "expect: {failure: {code: gone, message: away}}",
            ['message of the failure: expected "away", got "it is gone"'],
        ),
        (
            ONE + "expect: {result: {a: true, b: [1, 3], d: 4}}",
            [
                "result.a: expected true, got 1",
                "result.b[1]: expected 3, got 2",
                "result.d: expected 4, and it is not there",
                'result.c: not expected, got {"again": false}',
            ],
        ),
        (ONE + "expect: {result: null}", ['result: expected null, got {"a": 1, "b": [1, 2], "c": {"again": false}}']),
        (ONE + "expect: {visits: {work: 2}}", ["visits of `work`: expected 2, got 1"]),
        (ONE + "expect: {arguments: {work: {x: 2}}}", ["arguments of `work`.x: expected 2, got 1"]),
        (ONE + "expect: {arguments: {work: [{}, {}]}}", ["arguments of `work`: expected 2 executions, got 1"]),
        (ONE + "expect: {arguments: {gone: {}}}", ["arguments of `gone`: it did not run"]),
        (ONE + "expect: {trace: [gone]}", ["trace of main: expected gone; got work#1"]),
        (ONE + "expect: {duration: 1h}", ["duration: expected 1h, got 0s"]),
        (ONE + "expect: {waits: [work]}", ["waits: expected work, got nothing"]),
        (
            ONE + "expect: {events: [{type: state, state: aborted}]}",
            [
                'events: no state with {"state": "aborted"} in this place; the last of this type was '
                '{"t": "state", "n": 0, "from": "running", "state": "completed", "visits": {"w...'
            ],
        ),
        (ONE + "expect: {events: [error]}", ["events: no error in this place"]),
    ],
)
def test_a_difference_is_told_with_its_place(text: str, told: list[str]) -> None:
    assert differences(play(SIMPLE, text)) == told


def test_a_case_that_differs_says_what_it_had_no_result_for() -> None:
    played = play(SIMPLE)
    assert (played.code, hints(played)) == (
        "expression_error",
        ["`work` has no result in the scenario, so it was null"],
    )


def test_a_job_that_waits_says_where() -> None:
    plan = plan_of("  wait: {event: go, deadline: never, next: done}\n  done: {end: 1}\n")
    assert differences(play(plan, "expect: {status: waiting, waits: [wait]}")) == []
    assert differences(play(plan, "expect: {status: completed}")) == [
        "status: expected completed, got waiting at wait#1"
    ]


# -- several cases, and what they cover ------------------------------------------------------------------------


def test_what_a_case_says_goes_before_what_holds_for_all() -> None:
    scenario = scenario_of("""
results: {work: {result: {again: true}}, gone: 1}
decisions: {a: approve}
events: [{name: x}]
cases:
  - {name: one}
  - {name: two, results: {work: {result: {again: false}}}, decisions: {b: reject}, events: [{name: y}]}
""").scenario
    one, two = scenario.whole_cases()
    assert one.results == scenario.results
    assert two.results["work"][0].result == {"again": False}
    assert (list(two.results), list(two.decisions)) == (["work", "gone"], ["a", "b"])
    assert [event.name for event in two.events] == ["x", "y"]


def test_coverage_counts_every_kind_of_edge_over_all_cases() -> None:
    plan = plan_of(
        """
  begin: {next: {each: [{if: input.both, to: left}, {to: right}]}}
  left: {activity: "m:l", catch: {any: mended}, next: tried}
  mended: {next: tried}
  right: {race: [quick, calm]}
  quick: {event: quick, deadline: never, next: tried}
  calm: {timer: 1h, next: tried}
  tried: {graph: again, max_visits: 1, exhausted: gone, next: done}
  gone: {end: gone}
  done: {end: done}
""",
        "input: {both: bool}\ngraphs:\n  again:\n    nodes:\n      a: {activity: 'm:a', next: b}\n      b: {end: 1}\n",
    )
    one = "input: {both: false}\n"
    half = play_scenario(plan, scenario_of(one).scenario).coverage
    assert (half.nodes, half.all_nodes, half.edges, half.all_edges) == (8, 11, 6, 12)
    assert half.unused_nodes == ("left", "mended", "gone")
    assert "tried -> gone" in half.unused_edges
    text = """
cases:
  - {name: calm, input: {both: false}}
  - {name: quick, input: {both: false}, events: [{name: quick}]}
  - {name: left, input: {both: true}}
  - {name: caught, input: {both: true}, results: {left: {error: x}, nobody: 1}}
"""
    rest = play_scenario(plan, scenario_of(text).scenario)
    assert rest.coverage.unused_edges == ("tried -> gone",)
    assert rest.coverage.unused_nodes == ("gone",)
    assert rest.unused == ("results.nobody",)


def test_a_used_up_count_takes_its_edge() -> None:
    played = play_scenario(SIMPLE, scenario_of(ALWAYS + "expect: {failure: gone}").scenario)
    assert failed(played) == []
    assert played.coverage.unused_edges == ("work -> end",)


def test_everything_is_told_as_json_and_as_text() -> None:
    played = play_scenario(SIMPLE, scenario_of("cases: [{name: one}, {name: two, expect: {status: failed}}]").scenario)
    told = to_json(played)
    assert (told["ok"], [case["ok"] for case in told["cases"]]) == (False, [False, True])
    assert told["cases"][0]["failure"]["code"] == "expression_error"
    text = explanation(played)
    assert text.startswith("g: one\n  it failed (expression_error")
    assert "two" not in text


# -- how it does not depend on the driver ------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [1, 2, 4])
@pytest.mark.parametrize(
    ("plan", "text"),
    [
        (PARALLEL, "results: {slow: {takes: 10m}, fast: {takes: 4m}, quick: {takes: 5m}}"),
        (plan_of(ESCALATION), "decisions: {ask: [null, {choice: approve, after: 1h}]}"),
        (BELOW, "decisions: {ask: approve}\nevents: [{name: go, when: part/wait, after: 3m}]"),
        (KINDS, GIVEN + "  sent: ok\ndecisions: {sent: {choice: approve, after: 1d}}\n"),
    ],
)
def test_continue_as_new_changes_nothing(plan: Plan, text: str, steps: int) -> None:
    # A run that ends waits for what is in flight, so what comes after that may come later.
    whole, parts = play(plan, text), play(plan, text, steps_per_run=steps)
    assert (parts.status, parts.result, branches(parts)) == (whole.status, whole.result, branches(whole))
    assert (parts.coverage.visits, parts.coverage.edges) == (whole.coverage.visits, whole.coverage.edges)


def branches(played: Played) -> dict[str, list[str]]:
    return {branch: sorted(ended) for branch, ended in played.trace.items()}


@pytest.mark.parametrize("seed", range(5))
def test_what_is_done_at_the_same_moment_may_be_taken_in_any_order(seed: int) -> None:
    choose = random.Random(seed)
    text = "input: {pr: 7, repo: shop}\nresults:\n  tests: [{result: {passed: true, output: x}}]\n"
    text += "  checkout: {result: {path: p}}\n  reviewer: {result: {answer: well}}\n  merge: {result: {sha: abc}}\n"
    plan = compile_graph(FILES[0].read_text(), "graph.yaml")
    one = play(plan, f"{text}decisions: {{approve: approve}}")
    other = play(plan, f"{text}decisions: {{approve: approve}}", pick=lambda: choose.randrange(7))
    assert one.result == other.result == {"sha": "abc", "findings": ["well"] * 3}
    assert sorted(one.trace["main"]) == sorted(other.trace["main"])


# -- what a scenario must say, and what is wrong with one -----------------------------------------------------------


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_example_can_be_played_with_nothing_and_begun_with_what_it_needs(file: Path) -> None:
    plan = compile_graph(file.read_text(encoding="utf-8"), file.name)
    text = starting_point(plan, file=file.name)
    loaded = load_scenario(text, "start.yaml")
    assert [found for found in check_scenario(loaded, plan) if "input" not in found.message] == []
    results = {name: {"result": value} for name, value in empty_results(plan).items()}
    empty = {"loom": 1, "kind": "scenario", "name": "s", "input": empty_input(plan), "results": results}
    played = play_scenario(plan, Scenario.model_validate(empty))
    assert played.cases[0].missing == ()
    assert played.cases[0].code != "expression_error"


def test_the_values_that_a_graph_reads_are_found() -> None:
    plan = compile_graph(FILES[0].read_text(), "graph.yaml")
    assert empty_results(plan) == {
        "checkout": {"path": None},
        "security": {"answer": None},
        "performance": {"answer": None},
        "style": {"answer": None},
        "tests": {"passed": False, "output": None},
        "fix": None,
        "escalate": None,
        "merge": {"sha": None},
    }
    assert load_yaml(starting_point(plan), "x").data["input"] == {"repo": "", "pr": 0}


WRONG = [
    ("results: {wrok: 1}", "4:11", "runs nothing called `wrok` (did you mean `work`?)"),
    ("results: {done: 1}", "4:11", "`done` is of the kind `end`, and does no work"),
    ("results: {ask: 1}", "4:11", "`ask` is of the kind `approval`, and does no work (say in `decisions`"),
    ("cases:\n  - name: x\n    results:\n      x/work: 1", "7:7", "no node and runs nothing called `x/work` (did you"),
    ("decisions: {work: approve}", "4:13", "`work` asks nobody: only approvals and tools do"),
    ("decisions: {aks: approve}", "4:13", "no node `aks` (did you mean `ask`?)"),
    ("decisions: {ask: aprove}", "4:18", "`aprove` is no choice of `ask` (did you mean `approve`?)"),
    (
        "decisions: {ask: [null, {choice: edit}]}",
        "4:34",
        "`edit` is no choice of `ask` (its choices are approve, reject)",
    ),
    ("events: [{name: releasd}]", "4:17", "waits for the event `releasd` (did you mean `released`?)"),
    ("events: [{name: released, when: wok}]", "4:33", "no node `wok` (did you mean `work`?)"),
    ("steering: [{op: abort, when: wok}]", "4:30", "no node `wok`"),
    ("expect: {visits: {wok: 1}}", "4:19", "no node `wok`"),
    ("expect: {arguments: {wok: {}}}", "4:22", "no node `wok`"),
    ("expect: {waits: [wok]}", "4:18", "no node `wok`"),
    ("expect: {trace: ['wok#1']}", "4:18", "no node `wok#1` (did you mean `work`?)"),
    ("expect: {trace: {'each#1[0]': ['work#1']}}", "4:32", "no node `each#1[0]/work#1`"),
    ("input: {y: 1}", "4:8", "the input of the graph g: there is no `y`"),
    ("input: {x: text}", "4:8", '`x` is "text", and must be a whole number'),
    ("graph: other", "4:8", "the scenario is for the graph `other`, and this one is `g`"),
]
CHECKED = plan_of(
    """
  work: {activity: "m:f", next: ask}
  ask: {approval: "Go?", deadline: never, next: wait}
  wait: {event: released, deadline: never, next: done}
  done: {end: "${input.x}"}
""",
    "input: {x: {type: int, default: 1}}\n",
)


@pytest.mark.parametrize(("text", "place", "told"), WRONG)
def test_a_name_that_the_graph_does_not_have_is_told_with_its_place(text: str, place: str, told: str) -> None:
    (found, *_) = check_scenario(scenario_of(text), CHECKED)
    assert (f"{found.line}:{found.column}", found.code) == (place, "L004")
    assert told in f"{found.message} ({found.fix})"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("results: {a: {reslt: 1}}", "s.yaml:4:15: L002 unknown field `reslt`; did you mean `result`?"),
        ("results: {a: {result: 1, error: x}}", "s.yaml:4:14: L004 `results.a`: work has a `result` or an `error`"),
        ("results: {a: []}", "s.yaml:4:14: L004 `results.a`"),
        ("results: {a: [1, {result: '${nodes.x}'}]}", "s.yaml:4:30: L130"),
        ("results: {a: {takes: soon}}", "s.yaml:4:22: L004"),
        ("expect: {status: done}", "s.yaml:4:18: L004"),
        ("expect: {failure: {message: x}}", "missing field `code`"),
        ("now: 2026-02-31T00:00:00", "s.yaml:4:6: L004 `now`: day is out of range for month"),
        ("steering: [{op: stop}]", "s.yaml:4:17: L004"),
        ("expect: {status: failed}\ncases: [{name: x}]", "says in each of them what to `expect`"),
        ("cases: [{name: x}, {name: x}]", "two cases have the name 'x'"),
        ("cases: [{input: {}}]", "s.yaml:4:9: L003 missing field `name`"),
    ],
)
def test_a_document_that_is_no_scenario_is_refused_with_the_place(text: str, told: str) -> None:
    with pytest.raises(DocumentError) as refused:
        scenario_of(text)
    assert told in refused.value.message


def test_a_graph_of_turns_is_not_played() -> None:
    plan = plan_of("  again: {activity: 'm:f', next: turn}\n  turn: {recurse: {}}\n")
    with pytest.raises(LoomError, match="the graph of an agent's turns"):
        play_scenario(plan, scenario_of("description: x").scenario)


LOOP = """\
loom: 1
kind: graph
name: g
graphs:
  round:
    nodes:
      work: {activity: "m:work", next: out}
      out: {end: {good: "${nodes.work.passed}", score: "${nodes.work.score}"}}
nodes:
  loop: {loop: {do: round, until: UNTIL, max: 3}, next: done}
  done: {end: "${nodes.loop.good}"}
"""


@pytest.mark.parametrize(
    ("until", "work"),
    [
        ("result.good", {"passed": True, "score": None}),
        ("result.score >= 0.8", {"passed": None, "score": 0.8}),
        ("result.score > 3", {"passed": None, "score": 4}),
        ("result.good == 'yes'", {"passed": "yes", "score": None}),
    ],
)
def test_what_ends_a_loop_is_assumed_of_the_work_that_its_graph_ends_with(until: str, work: dict[str, Any]) -> None:
    plan = compile_graph(LOOP.replace("UNTIL", until), "g.yaml")
    found = {key: value for key, value in work.items() if value is not None}
    assert {key: value for key, value in empty_results(plan)["work"].items() if value is not None} == found
    results = {name: {"result": value} for name, value in empty_results(plan).items()}
    head = {"loom": 1, "kind": "scenario", "name": "s", "results": results}
    assert play_scenario(plan, Scenario.model_validate(head)).cases[0].status == "completed"


@pytest.mark.parametrize(
    ("expression", "assumed"),
    [
        ("any([hit.score > 1 for hit in result.v])", []),
        ("'PASS' in result.v", ""),
        ("1 in result.v", []),
        ("result.v in ['a', 'b']", None),
        ("result.v > 3", 0),
        ("result.v < 'x'", ""),
        ("result.v + 1 == 2", 0),
        ("result.v + ' EUR' == 'x'", ""),
        ("result.v + [1] == [1]", []),
        ("result.v[:20] == ''", ""),
        ("lower(result.v) == 'x'", ""),
        ("sum(result.v) > 3", []),
        ("len(keys(result.v)) > 3", {}),
        ("result.v == 'x'", None),
    ],
)
def test_a_value_is_assumed_that_the_expression_can_work_with(expression: str, assumed: Any) -> None:
    plan = plan_of(
        "  work: {activity: 'm:f', next: [{if: \"" + expression + '", to: done}, {to: done}]}\n  done: {end: 1}\n'
    )
    assert empty_results(plan) == {"work": {"v": assumed}}
    results = {name: {"result": value} for name, value in empty_results(plan).items()}
    head = {"loom": 1, "kind": "scenario", "name": "s", "results": results}
    assert play_scenario(plan, Scenario.model_validate(head)).cases[0].status == "completed"


@pytest.mark.parametrize(
    ("field", "assumed"),
    [
        ("{type: int, reduce: add}", 0),
        ("{type: list, reduce: extend}", []),
        ("{type: list, reduce: append}", None),
        ("{type: dict, reduce: merge}", {}),
        ("str", ""),
        ("any", None),
    ],
)
def test_a_value_is_assumed_that_the_state_field_takes(field: str, assumed: Any) -> None:
    nodes = "nodes:\n  work: {activity: 'm:f', write: {x: '${result.v}'}, next: done}\n  done: {end: '${state.x}'}\n"
    plan = compile_graph(f"loom: 1\nkind: graph\nname: g\nstate: {{x: {field}}}\n{nodes}", "g.yaml")
    assert empty_results(plan) == {"work": {"v": assumed}}
    results = {name: {"result": value} for name, value in empty_results(plan).items()}
    head = {"loom": 1, "kind": "scenario", "name": "s", "results": results}
    assert play_scenario(plan, Scenario.model_validate(head)).cases[0].status == "completed"


def test_the_decisions_of_a_scenario_count_as_signed() -> None:
    plan = plan_of(
        """
  ask: {approval: {ask: "release?", policy: {signed: low}}, deadline: never, next: done}
  done: {end: "${result.choice} by ${result.by}"}
"""
    )
    played = play(plan, "decisions: {ask: {choice: approve, by: ann, after: 1m}}")
    assert (played.status, played.result, played.duration) == ("completed", "approve by ann", 60.0)
