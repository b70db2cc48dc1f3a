"""Random expressions: from the language's own grammar, and mutations of texts that are meant to do harm."""

from collections.abc import Callable, Iterator
from random import Random

from loom_dsl.expr.expression import MAX_SOURCE, ROOTS
from loom_dsl.expr.functions import FUNCTIONS

KEYS = ["n", "name", "tags", "deep", "er", "none", "big", "wide", "rows", "items", "get", "x"]
PRIVATE = ["__class__", "__init__", "__globals__", "__dict__", "__subclasses__", "__mro__", "_private", "mro", "format"]
TEXTS = [
    "a",
    "é",
    "{",
    "}",
    "$${",
    "it's",
    "\\",
    "0",
    "12",
    "-1.5e3",
    "5m",
    '[1, {"a": null}]',
    "%s%n",
    "{0.__class__}",
]
TEXTS += ["ﬁ", "\u202e", "\U0001f600", "ΐ" * 3, " a  b ", "nan", "1e999", "9" * 40, "&&", "${x}", ""]
NUMBERS = [
    "0",
    "1",
    "2",
    "-1",
    "7",
    "0.5",
    "1e308",
    "1e-320",
    "9223372036854775807",
    "9999999999999999999",
    "0x1f",
    "1_000",
]
OPERATORS = ["+", "-", "*", "/", "//", "%", "+", "+"]
COMPARISONS = ["==", "!=", "<", "<=", ">", ">=", "in", "not in", "is"]
TOKENS = [
    *sorted(ROOTS), *FUNCTIONS, *KEYS, *PRIVATE, *NUMBERS, *OPERATORS, *COMPARISONS, "**", "@", "~", "<<", ":=", "=",
    "&&", "||", "!", "?", "===", "(", ")", "[", "]", "{", "}", ".", ",", ":", ";", "#", "\\", "'", '"', "'''", "f'",
    "b'", "r'", "lambda x:", "await", "yield", "async", "for", "for x in", "if", "else", "and", "or", "not", "is",
    "*", "...", "1j", "\n", "\r", "\x0c", "\x00", "\t", "\u200b", "\u2028", "і",
    "ｉｎｐｕｔ", "＿＿class＿＿", "\ud800", "٣", "²", "${", "$${", "true", "null", "None", "True",
    "__import__('os')", "eval", "exec", "open", "getattr",
    "type", "print", "globals()",
]  # fmt: skip
SEEDS = [
    "().__class__.__bases__[0].__subclasses__()", "input.__class__.__mro__[1].__subclasses__()", "''.format(agent)",
    "'{0.__class__.__init__.__globals__}'.format(agent)", "f'{agent.__class__}'", "'%s' % agent", "agent.secret",
    "agent['secret']", "get(agent, 'secret')", "has(agent, '__class__')", "str(agent)", "to_json(agent)",
    "sorted([agent, agent])", "agent == agent", "agent + agent", "-agent", "[x for x in agent]", "len(agent)",
    "keys(agent)", "turn.secret", "turn.text.upper()", "turn.list.append(1)", "turn['__class__']",
    "get(turn, ['list', '__len__'])", "__import__('os').system('true')", "eval('1')", "getattr(input, 'n')",
    "(lambda: 1)()", "(x := 1)", "globals()['x']", "9**9**9**9", "9**9**9", "2 << 99999999", "'a' * 999999999",
    "[0] * 999999999", "10 ** 400", "1e308 * 10", "-" * 300 + "1", "input.big + input.big + input.big",
    "[input.big + 'x' for x in event]", "upper(upper(input.wide))", "replace(input.big, 'x', input.big)",
    "replace(replace(replace('aaaa', 'a', 'aaaa'), 'a', 'aaaaaaaa'), 'a', 'aaaaaaaa')", "join(event, input.big)",
    "join([input.big for x in event])", "split(input.big, 'x')", "split(input.wide)",
    "to_json([input.big, input.wide])", "from_json('[' + join(event) + ']')",
    "from_json(replace(input.big, 'x', '['))", "[[y for y in event] for x in event]",
    "[x for x in event if x in event]", "[[[1 for z in event] for y in event] for x in event]",
    "[[a, a] for a in [[b, b] for b in [[c, c] for c in [[d, d] for d in event]]]]", "sorted([event for x in event])",
    "unique([event for x in event])", "flatten([event for x in event])", "max([event for x in event])",
    "range(9999999999)", "[range(9999) for x in range(9999)]", "[1 for x in event " + "if 1 " * 300 + "]",
    "[" + "not " * 55 + "1 for x in event]", "1 if " * 50 + "1" + " else 1" * 50, "[" * 55 + "]" * 55,
    "(" * 190 + "1" + ")" * 190, "{'a': " * 50 + "1" + "}" * 50, "input" + "[0]" * 300, "input" + ".deep" * 300,
    "1" + " + 1" * 400, "1" + " < 1" * 300, "merge(" + "{'a': 1}, " * 7 + "{})", "[" + "event, " * 150 + "]",
    "{" + "'k': event, " * 100 + "}", "contains(event, event)", "duration(replace('1h', '1', '11111111'))",
    "int(input.big)", "float(input.wide)", "[round(1e300, 15) for x in event]", "floor(1e308)",
    "sorted(input.rows, 'n')", "sorted([1], [input.big, input.wide])",
    "[duration('" + "1d" * 30 + "') for x in event]", "[from_json('1') for x in event]",
    "[v for k, v in items(input)]", "min([[[[1]]], [[[1]]]])", "event[-1:0]", "input.big[:9999999]",
]  # fmt: skip


class Writer:
    """Writes expressions.

    Args:
        random: Where choices come from; the same seed gives the same expressions.
    """

    def __init__(self, random: Random) -> None:
        self.random = random
        self.bound: list[str] = []
        self.forms: list[Callable[[int], str]] = [
            self.operation, self.comparison, self.junction, self.choice, self.lookup, self.slice, self.call, self.call,
            self.call, self.list, self.object, self.comprehension, self.comprehension,
        ]  # fmt: skip

    def write(self) -> str:
        """Give one text: mostly an expression of the language, often nearly one, sometimes an attack."""
        chance = self.random.random()
        if chance < 0.45:
            return self.expression(self.random.randint(1, 5))
        if chance < 0.65:
            return self.mutated(self.expression(self.random.randint(1, 4)))
        if chance < 0.9:
            return self.mutated(self.random.choice(SEEDS))
        if chance < 0.95:
            return self.nested(self.random.choice(SEEDS))
        return " ".join(self.random.choices(TOKENS, k=self.random.randint(1, 30)))

    def expression(self, depth: int) -> str:
        """Give an expression that is made of others so many times."""
        return self.random.choice(self.forms)(depth - 1) if depth > 0 else self.leaf()

    def leaf(self) -> str:
        """Give a literal or a name."""
        chance = self.random.random()
        if chance < 0.25:
            return self.random.choice(NUMBERS)
        if chance < 0.45:
            return repr(self.random.choice(TEXTS))
        if chance < 0.55:
            return self.random.choice(["true", "false", "null", "[]", "{}"])
        if chance < 0.75 and self.bound:
            return self.random.choice(self.bound)
        if chance < 0.85:
            return f"input.{self.random.choice(KEYS)}"
        return self.random.choice([*sorted(ROOTS), "event", "event"])

    def operation(self, depth: int) -> str:
        """Give two expressions with an operator."""
        if self.random.random() < 0.15:
            return f"(-{self.expression(depth)})"
        return f"({self.expression(depth)} {self.random.choice(OPERATORS)} {self.expression(depth)})"

    def comparison(self, depth: int) -> str:
        """Give a chain of comparisons."""
        parts = [self.expression(depth)]
        for _ in range(self.random.randint(1, 2)):
            parts += [self.random.choice(COMPARISONS), self.expression(depth)]
        return f"({' '.join(parts)})"

    def junction(self, depth: int) -> str:
        """Give a logical expression."""
        word = self.random.choice(["and", "or", "not"])
        return f"(not {self.expression(depth)})" if word == "not" else self._pair(f" {word} ", depth)

    def choice(self, depth: int) -> str:
        """Give a conditional expression."""
        return f"({self.expression(depth)} if {self.expression(depth)} else {self.expression(depth)})"

    def lookup(self, depth: int) -> str:
        """Give a key or an item of something."""
        if self.random.random() < 0.6:
            return f"{self.expression(depth)}.{self.random.choice(KEYS + PRIVATE[-3:])}"
        return f"{self.expression(depth)}[{self.expression(depth)}]"

    def slice(self, depth: int) -> str:
        """Give a part of a list or a text."""
        ends = [
            self.expression(depth) if self.random.random() < 0.4 else self.random.choice(["", "1", "-1"]) for _ in "ab"
        ]
        return f"{self.expression(depth)}[{ends[0]}:{ends[1]}]"

    def call(self, depth: int) -> str:
        """Give a call, nearly always with as many arguments as the function takes."""
        name = self.random.choice(list(FUNCTIONS))
        most = min(FUNCTIONS[name].most, 3) + (self.random.random() < 0.03)
        count = self.random.randint(FUNCTIONS[name].fewest, most)
        return f"{name}({', '.join(self.expression(depth) for _ in range(count))})"

    def list(self, depth: int) -> str:
        """Give a list."""
        return f"[{', '.join(self.expression(depth) for _ in range(self.random.randint(0, 4)))}]"

    def object(self, depth: int) -> str:
        """Give an object."""
        pairs = (f"{self.random.choice(KEYS)!r}: {self.expression(depth)}" for _ in range(self.random.randint(0, 3)))
        return f"{{{', '.join(pairs)}}}"

    def comprehension(self, depth: int) -> str:
        """Give a comprehension over anything, most often over a list."""
        over = self.random.choice(["event", "input.rows", "range(200)", "items(input)"])
        over = over if self.random.random() < 0.6 else self.expression(depth)
        names = ["k", "v"] if over.startswith("items") else [self.random.choice("xyz")]
        self.bound += names
        test = f" if {self.expression(depth)}" if self.random.random() < 0.3 else ""
        value = self.expression(depth)
        del self.bound[-len(names) :]
        inside = f"{value} for {', '.join(names)} in {over}{test}"
        return f"[{inside}]" if self.random.random() < 0.8 else f"any({inside})"

    def mutated(self, text: str) -> str:
        """Change a text in one to four places."""
        for _ in range(self.random.randint(1, 4)):
            at = self.random.randint(0, len(text))
            to = min(len(text), at + self.random.randint(0, 8))
            middle = self.random.choice(list(self._changes(text, at, to)))
            text = (text[:at] + middle + text[to:])[: MAX_SOURCE + 50]
        return text

    def nested(self, text: str) -> str:
        """Put a text into itself or around itself a few times."""
        for _ in range(self.random.randint(1, 6)):
            form = self.random.choice(
                [
                    "[{0} for x in event]",
                    "[{0}, {0}]",
                    "({0}) == ({0})",
                    "len({0})",
                    "({0} if {0} else {0})",
                    "not {0}",
                    "-{0}",
                ]
            )
            text = form.replace("{0}", text)
        return text[: MAX_SOURCE + 50]

    def _changes(self, text: str, at: int, to: int) -> Iterator[str]:
        yield ""
        yield self.random.choice(TOKENS)
        yield f" {self.random.choice(TOKENS)} "
        yield text[at:to] * self.random.choice([2, 3, 50])
        yield text[at:to][::-1]
        yield self.expression(1)
        yield f"({self.expression(2)})"
        yield self.random.choice(SEEDS)

    def _pair(self, between: str, depth: int) -> str:
        return f"({self.expression(depth)}{between}{self.expression(depth)})"
