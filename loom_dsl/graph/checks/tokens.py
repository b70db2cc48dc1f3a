"""Checks of what happens to tokens: races, joins that can wait for ever, branches that meet."""

from collections import deque
from collections.abc import Iterator

from loom_dsl.graph.checks.flow import ControlFlow, Split, closes
from loom_dsl.graph.checks.slots import list_of, whole_number
from loom_dsl.graph.checks.unit import Finding, Unit
from loom_dsl.graph.nodes import Activity, AgentNode, Cancel, End, Fail, Join, Map, Race, Recurse, ToolCallNode


def check_tokens(unit: Unit) -> Iterator[Finding]:
    """Check one graph: L110 to L115."""
    yield from _races(unit)
    yield from _mutual(unit)
    for key, node in unit.body.nodes.items():
        if key not in unit.flow.reached:
            continue
        if isinstance(node, Join):
            yield from _join(unit, key, node, unit.splits)
        elif not isinstance(node, (End, Fail, Recurse)):
            yield from _meeting(unit, key, unit.splits)
        if isinstance(node, Map):
            yield from _wanting(unit, key, node)


def _wanting(unit: Unit, key: str, node: Map) -> Iterator[Finding]:
    """L111 of a map: it would go on with fewer results than it says that it needs."""
    spec = node.map
    need = whole_number(spec.need)
    items = list_of(spec.over) if need is not None and spec.open is None else None
    if items is not None and need is not None and need > len(items):
        message = f"`{key}` needs {need} results, and its list has {len(items)} items"
        yield Finding("L111", message, unit.at(key, "map", "need"), "need fewer, or leave it out to need all")


def _races(unit: Unit) -> Iterator[Finding]:
    nodes, flow = unit.body.nodes, unit.flow
    for key, node in nodes.items():
        if not isinstance(node, Race):
            continue
        for index, arm in enumerate(node.race):
            place = unit.at(key, "race", index)
            if arm not in nodes:
                yield Finding("L110", f"`{arm}`, an arm of `{key}`, is not a node", place, "name a node of this graph")
                continue
            others = [way.source for way in flow.into[arm] if way.source != key or way.kind != "race"]
            if arm in flow.entries:
                others.append("the start")
            if node.race.index(arm) != index:
                others.append("the same race")
            if others:
                message = f"`{arm}` is an arm of `{key}`, and {_named(others[0])} leads to it, too"
                yield Finding("L110", message, place, "give the race an arm of its own")
            yield from _effect(unit, key, index, arm)


def _named(key: str) -> str:
    return key if " " in key else f"`{key}`"


def _effect(unit: Unit, key: str, index: int, arm: str) -> Iterator[Finding]:
    node = unit.body.nodes[arm]
    if isinstance(node, (Activity, ToolCallNode, AgentNode)) and node.compensate is None:
        message = f"`{arm}` may be cancelled in the middle when another arm of `{key}` is first"
        fix = "wait in the race and act after it, or give it a `compensate`"
        yield Finding("L115", message, unit.at(key, "race", index), fix)


def _mutual(unit: Unit) -> Iterator[Finding]:
    """L113: joins of `taken` in a cycle with others: each waits for the token that stands at the other."""
    nodes, flow = unit.body.nodes, unit.flow
    joins = {key: node for key, node in nodes.items() if isinstance(node, Join) and key in flow.reached}
    if not any(node.join.mode == "taken" for node in joins.values()):
        return
    for part in flow.cycles(()):
        inside = [key for key in part if key in joins]
        taken = [key for key in inside if joins[key].join.mode == "taken"]
        for other in inside if taken else ():
            if other != taken[0] and any(split.parallel(taken[0], other) for split in unit.splits):
                message = f"`{taken[0]}` and `{other}` are in one cycle, and may wait for each other"
                fix = "join the branches before the cycle goes round, or let one of them `need` a number of tokens"
                yield Finding("L113", message, unit.at(taken[0]), fix, True)
                break


def _join(unit: Unit, key: str, node: Join, splits: list[Split]) -> Iterator[Finding]:
    spec, sources = node.join, unit.flow.sources(key)
    if "join_deadlock" in node.catch or "any" in node.catch:
        return  # it is said what is to happen when it can never go on
    need = whole_number(spec.need)
    if need is not None and need > len(sources):
        message = f"`{key}` needs {need} tokens, and {len(sources)} edges lead to it"
        yield Finding("L111", message, unit.at(key, "join", "need"), f"need at most {len(sources)}, or use `threads`")
        return
    if spec.mode == "taken" or need == 1 or whole_number(spec.threads) == 1:
        return
    if spec.threads is not None or spec.need is not None:
        if not any(split.brings(sources, key) for split in splits):
            yield _no_split(unit, key)
    elif key in unit.flow.entries and sources:
        message = f"`{key}` waits for a token from each of its edges, and the first token comes over none of them"
        yield Finding("L112", message, unit.at(key), "start at a plain node that leads to it", True)
    elif len(sources) > 1:
        yield from _join_of_all(unit, key, sources, splits)


def _together(split: Split, key: str, sources: list[str]) -> bool:
    found = 0
    for source in sources:
        found |= split.over(source, key)
    return found.bit_count() > 1


def _no_split(unit: Unit, key: str) -> Finding:
    message = f"`{key}` waits for several tokens, and there is only one: no split leads to it"
    fix = "split before it with `next: [a, b]`, or let the branches meet in a plain node"
    return Finding("L112", message, unit.at(key), fix, True)


def _join_of_all(unit: Unit, key: str, sources: list[str], splits: list[Split]) -> Iterator[Finding]:
    near = [split for split in splits if _together(split, key, sources)]
    sure = [split for split in near if split.kind == "all"]
    pair = _never_together(key, sources, sure)
    if pair is not None:
        chosen = next((split.key for split in near if split.kind == "each"), None)
        chosen = chosen or _chosen_between(unit.flow, key, pair)
        yield _one_of_two(unit, key, chosen, pair) if chosen else _no_split(unit, key)
    elif _passes_by(unit.flow, key, sure):
        message = f"a token can come to `{key}` past `{sure[0].key}`, where the others are made"
        fix = "lead every way to the join through the split, or use `join: taken`"
        yield Finding("L112", message, unit.at(key), fix, True)
    else:
        message = _unbalanced(unit.flow, key, sources, sure)
        if message:
            fix = "write `join: taken`, lead the branch to the join, or let it `fail`"
            yield Finding("L113", message, unit.at(key), fix, True)


def _never_together(key: str, sources: list[str], splits: list[Split]) -> tuple[str, str] | None:
    """Two edges to a join over which no split sends a token each."""
    over = [[split.over(source, key) for source in sources] for split in splits]
    if any(all(m.bit_count() == 1 for m in row) and len(set(row)) == len(row) for row in over):
        return None  # each edge has a branch of its own
    for second in range(len(sources)):
        for first in range(second):
            if not any(row[first] and row[second] and (row[first] | row[second]).bit_count() > 1 for row in over):
                return sources[first], sources[second]
    return None


def _chosen_between(flow: ControlFlow, key: str, pair: tuple[str, str]) -> str | None:
    """A node where a token takes the way to the one or to the other."""
    stop = frozenset({key})
    for name in flow.body.nodes:
        if name not in flow.reached or name == key:
            continue
        sides: list[set[str]] = []
        for way in flow.out[name]:
            seen = flow.reach((way.target,), stop=stop) if way.target != key else set()
            sides.append((seen & set(pair)) | ({name} & set(pair) if way.target == key else set()))
        if len(sides) > 1 and any(pair[0] in a and pair[1] in b for a in sides for b in sides if a is not b):
            return name
    return None


def _one_of_two(unit: Unit, key: str, chosen: str, pair: tuple[str, str]) -> Finding:
    message = f"`{key}` waits for `{pair[0]}` and `{pair[1]}`, and `{chosen}` may choose only one of the ways"
    return Finding("L113", message, unit.at(key), "write `join: taken`, or let the ways meet in a plain node", True)


def _passes_by(flow: ControlFlow, key: str, splits: list[Split]) -> bool:
    """Whether a token can come to a join, or from there back to it, without any of the splits."""
    avoided = frozenset(split.key for split in splits)
    after = [way.target for way in flow.out[key]] if key not in avoided else []
    return key in flow.reach([name for name in (*flow.entries, *after) if name not in avoided], stop=avoided)


def _unbalanced(flow: ControlFlow, key: str, sources: list[str], splits: list[Split]) -> str:
    """Why some edge to a join may get fewer tokens than another; nothing when that cannot be."""
    whole = [split for split in splits if all(split.over(source, key) for source in sources)]
    stop = frozenset({key})
    missing: dict[str, int] = {}
    for split in whole:
        inside = flow.reach(split.targets, stop=stop)
        if split.key in inside:
            return f"`{split.key}` may split again before `{key}` has joined what it split"
        missing = missing or _may_miss(flow, key, sources)
        if missing[split.key]:
            source = sources[missing[split.key].bit_length() - 1]
            return f"`{key}` waits for `{source}`, and a branch of `{split.key}` may end or go another way"
        twice = "" if any(other.key in inside for other in whole) else _twice(flow, key, sources, split)
        if twice:
            return f"two branches of `{split.key}` may come to `{key}` over `{twice}`, one after the other"
    return ""


def _twice(flow: ControlFlow, key: str, sources: list[str], split: Split) -> str:
    """An edge to a join over which several branches of a split come, with no join before it that makes one of them."""
    inner = {name for name, over in split.branches.items() if over.bit_count() > 1 and closes(flow.body.nodes[name])}
    stop = frozenset(inner | {key})
    branches = [flow.reach((target,), stop=stop) for target in split.targets]
    found = (s for s in sources if s not in inner and sum(s in branch for branch in branches) > 1)
    return next(found, "")


def _may_miss(flow: ControlFlow, key: str, sources: list[str]) -> dict[str, int]:
    """The edges to a join over which it may be that no token of a node goes: bit i for source i, by node."""
    everything = (1 << len(sources)) - 1
    hit = {source: 1 << index for index, source in enumerate(sources)}
    missing = dict.fromkeys(flow.body.nodes, 0)

    def found(name: str) -> int:
        node = flow.body.nodes[name]
        over, every = 0, everything
        for way in flow.out[name]:
            # Who comes to the join over one edge does not come over the others.
            misses = everything & ~hit.get(name, 0) if way.target == key else missing[way.target]
            if way.kind == "all":
                every &= misses
            else:
                over |= misses
        ends = (isinstance(node, End) and not node.terminate) or (isinstance(node, Cancel) and not flow.out[name])
        return everything if ends else over | (every if node.next.all else 0)

    queue = deque(name for name in reversed(flow.body.nodes) if name != key)
    waiting = set(queue)
    while queue:
        name = queue.popleft()
        waiting.discard(name)
        now = found(name)
        if now != missing[name]:
            missing[name] = now
            more = {way.source for way in flow.into[name]} - waiting - {key}
            queue.extend(sorted(more))
            waiting |= more
    return missing


def _meeting(unit: Unit, key: str, splits: list[Split]) -> Iterator[Finding]:
    """L114: branches of a split that meet in a node which is no join, so that it runs once for each."""
    ways = [way for way in unit.flow.into[key] if way.kind in ("first", "each", "all")]
    sources = [name for name in dict.fromkeys(way.source for way in ways) if name in unit.flow.reached]
    for split in splits:
        over = {split.over(source, key) for source in sources} - {0}
        twice = split.targets.count(key) > 1 and split.kind != "times"
        if (len(over) > 1 and split.kind != "times") or twice:
            message = f"the branches of `{split.key}` meet in `{key}`, which runs once for each of them"
            fix = "put a `join` before it, or leave it when that is meant"
            yield Finding("L114", message, unit.at(key), fix, True)
            return
