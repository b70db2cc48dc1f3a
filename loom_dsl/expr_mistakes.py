"""What people write who think in another language, and what to write instead.

Python's parser warns of some texts (on the error stream of the process) instead of refusing them. They are refused
here before it sees them.
"""

import re

_STRING = re.compile(
    r"""(?P<prefix>(?<!\w)[A-Za-z]{1,2})?(?P<quote>'''|\"\"\"|'|")(?P<body>(?:\\[\s\S]|(?!(?P=quote))[\s\S])*)(?P=quote)?"""
    r"""|\#[^\r\n]*"""
)
_ESCAPE = re.compile(r"\\([0-7]{1,3}|[\s\S])")
_ESCAPES = frozenset("\\'\"abfnrtvxuUN\r\n")
_WORD_OR_NUMBER = re.compile(
    r"[^\W0-9]\w*+|(?:0[xX][0-9a-fA-F_]+|0[oO][0-7_]+|0[bB][01_]+"
    r"|(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9][0-9_]*)(?:[eE][+-]?[0-9][0-9_]*)?)(?P<stuck>(?=[^\W0-9]))?"
)
_INSTEAD = {
    "&&": "write `and` instead of `&&`",
    "||": "write `or` instead of `||`",
    "!==": "write `!=` instead of `!==`",
    "===": "write `==` instead of `===`",
    "!=": "",
    "!": "write `not` instead of `!`",
    "<>": "write `!=` instead of `<>`",
    "=>": "write `>=` instead of `=>`",
    "=<": "write `<=` instead of `=<`",
    "==": "",
    "<=": "",
    ">=": "",
    ":=": "write `==` to compare; nothing is assigned here",
    "=": "write `==` instead of `=`; nothing is assigned here",
    "?.": "write get(x, 'key') instead of `x?.key`",
    "??": "write `x or y`, or get(x, 'key', y), instead of `??`",
    "?": "write `a if condition else b` instead of `condition ? a : b`",
    "${": "write the expression without `${` and `}`",
    "$.": "write a path from its root on, such as input.x or nodes.a.x, without `$.`",
    "$": "write names without `$`",
    "`": "write text in quotes, such as 'text'",
    "AND": "write `and` instead of `AND`",
    "OR": "write `or` instead of `OR`",
    "NOT": "write `not` instead of `NOT`",
    "IN": "write `in` instead of `IN`",
    "then": "write `a if condition else b` instead of `if condition then a`",
}
_MISTAKE = re.compile("|".join(rf"\b{sign}\b" if sign.isalpha() else re.escape(sign) for sign in _INSTEAD))
_REFERENCE = re.compile(r"\s*(env|secret):")
_WORDS = re.compile(r"(?:[^\W\d]\w*+[ \t]*+)+")
_INFIX = ("contains", "has", "startswith", "endswith")
_GRAMMAR = frozenset({"and", "or", "not", "in", "if", "else", "for", "is", "lambda", "true", "false", "null"})


def refused(text: str) -> tuple[str, int] | None:
    """Give what is wrong in a text that Python's parser would warn of, and at which character (from 0)."""
    if "\\" in text:
        for literal in _STRING.finditer(text):
            if literal["quote"] and "r" not in (literal["prefix"] or "").lower():
                for escape in _ESCAPE.finditer(text, literal.start("body"), literal.end("body")):
                    if not _is_escape(escape[1]):
                        return f"`{escape[0]}` means nothing in a text; write `\\{escape[0]}`", escape.start()
    for found in _WORD_OR_NUMBER.finditer(_without_texts(text)):
        if found["stuck"] is not None:
            return "put a space after the number", found.end()
    return None


def mistake(text: str) -> tuple[str, int] | None:
    """Give what to write instead in a text that does not parse, and at which character (from 0), if that is known."""
    reference = _REFERENCE.match(text)
    if reference:
        return f"a reference such as `${{{reference[1]}:NAME}}` is a whole value, never a part of one", 0
    for found in _MISTAKE.finditer(_without_texts(text)):
        if _INSTEAD[found[0]]:
            return _INSTEAD[found[0]], found.start()
    return None


def unquoted(text: str) -> tuple[str, int] | None:
    """Find words that stand side by side, as only those of a text do: what to write, and at which character."""
    for found in _WORDS.finditer(_without_texts(text)):
        words, start = found[0].split(), found.start()
        if len(words) < 2:
            continue
        if text[start - 1 : start] in (".", '"', ")", "]"):  # the first one belongs to what is before it
            start += len(words[0]) + 1
            words = words[1:]
        if words[0] in _INFIX:
            return f"write {words[0]}(x, y) instead of `x {words[0]} y`", start
        if not _GRAMMAR & set(words):
            return f"write a text in quotes, such as '{' '.join(words)[:60]}'", start
    return None


def _is_escape(character: str) -> bool:
    return int(character, 8) < 0o400 if character[0] in "01234567" else character in _ESCAPES


def _without_texts(text: str) -> str:
    """Blank out texts in quotes and comments; what is left stays in its place."""
    return _STRING.sub(lambda found: '"' * len(found[0]), text)
