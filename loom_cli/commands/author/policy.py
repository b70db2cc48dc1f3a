"""``loom policy``: what would be decided about a call, and tables of such questions."""

import json
from pathlib import Path
from typing import Annotated

import typer

from loom_cli.errors import DONE, FAILED, guarded
from loom_cli.options import Json, Mode, Tools


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(help="What agents may do, and why.", no_args_is_help=True, rich_markup_mode=None)
    group.command("explain", help="Say what is decided about a call, by which rule, and where it is written.")(explain)
    group.command("test", help="Decide the calls of a file; 1 when one is not decided as the file says.")(judge_cases)
    app.add_typer(group, name="policy")


@guarded
async def explain(
    agent: Annotated[Path, typer.Argument(help="The agent's file, or a graph's.", metavar="AGENT.yaml")],
    call: Annotated[str, typer.Argument(help="Such as 'execute_bash(git push --force)'.", metavar="CALL")],
    policy: Annotated[
        Path | None, typer.Option(help="The deployment's policy (LOOM_POLICY of the worker).", metavar="FILE")
    ] = None,
    workdir: Annotated[Path | None, typer.Option(help="Where the job would work; its policy counts too.")] = None,
    mode: Mode = None,
    tools: Tools = None,
    as_json: Json = False,
) -> int:
    """Explain one decision."""
    from loom_cli.project.policy import PolicyView
    from loom_dsl.permissions.remembered import in_words
    from loom_dsl.text.printable import visible

    view = PolicyView(agent, policy=policy, workdir=workdir, mode=mode, tools=tuple(tools or ()))
    found = await view.explain(call)
    if as_json:
        print(json.dumps(found.to_json()))
        return DONE
    verdict = found.verdict
    print(visible(f"{verdict.decision}: {verdict.reason}"))
    print(visible(f"rule   {verdict.rule}"))
    print(visible(f"layer  {verdict.layer}{f' ({found.place})' if found.place else ''}"))
    if verdict.decision == "ask":
        print(visible(f"then   {found.unanswered}"))
        print(visible(f"keeps  {in_words(found.rules) or 'nothing: it cannot be remembered'}"))
    for line in found.reading:
        print(visible(f"read   {line}"))
    return DONE


@guarded
async def judge_cases(
    file: Annotated[Path, typer.Argument(help="The cases: `kind: policy-test`.", metavar="FILE.yaml")],
    as_json: Json = False,
) -> int:
    """Decide a table of cases."""
    from loom_cli.project.policy import judge
    from loom_dsl.text.printable import visible

    judged = await judge(file)
    wrong = [case for case in judged if case.wrong]
    if as_json:
        print(json.dumps({"cases": [case.to_json() for case in judged], "wrong": len(wrong)}))
        return FAILED if wrong else DONE
    for case in wrong:
        print(visible(f"{file}:{case.line}: {case.found.call}: {'; '.join(case.wrong)}"))
        print(visible(f"    {case.found.verdict.reason}{f' ({case.found.place})' if case.found.place else ''}"))
    print(f"{len(judged) - len(wrong)} of {len(judged)} cases are decided as expected")
    return FAILED if wrong else DONE
