"""What a credential looks like: shapes that are precise by themselves, and names beside which a value is secret.

Every pattern takes linear time: repeats are bounded, lazy or possessive, and none begins inside another's repeat. Only
what repeats a single character is possessive: Python before 3.11.5 loses its way in possessive groups. A pattern
with a named group masks that group, others their whole match; what the group `none` finds is left as it is. Where it
can be, a pattern starts with letters and only then looks at what is before them: letters are found many times faster.
"""

import math
import re
from collections import Counter

_TOKEN = r"[A-Za-z0-9._~+/=-]"
_PATTERNS: tuple[tuple[str, str], ...] = (
    (
        "private-key",
        r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY[A-Z ]{0,10}-----"
        r"[\s\S]*?(?:-----END [A-Z0-9 ]{0,60}-----|(?=-----)|\Z)",
    ),
    ("jwt", r"eyJ(?<![A-Za-z0-9_-]eyJ)[A-Za-z0-9_-]{8,}+\.eyJ[A-Za-z0-9_-]{8,}+(?:\.[A-Za-z0-9_-]*+)?"),
    ("github-token", r"(?:gh[pousr]_[A-Za-z0-9]{16,}+|github_pat_[A-Za-z0-9_]{20,}+)"),
    ("gitlab-token", r"glpat-[A-Za-z0-9_-]{16,}+"),
    ("slack-token", r"xox[abeoprs]-[A-Za-z0-9-]{10,}+"),
    ("slack-hook", r"hooks\.slack\.com/services/(?P<hook>[A-Za-z0-9/]{20,}+)"),
    ("google-key", r"AIza[A-Za-z0-9_-]{30,}+"),
    ("stripe-key", r"[rs]k_(?:live|test)_[A-Za-z0-9]{16,}+"),
    ("npm-token", r"npm_(?<![A-Za-z0-9_]npm_)[A-Za-z0-9]{36}[A-Za-z0-9]*+"),
    ("aws-key", r"(?:AKIA|ASIA)[A-Z0-9]{16}[A-Za-z0-9]*+"),
    (
        "api-key",
        # The last way reads on over what is no key, up to where one may begin, so that nothing is read again.
        r"sk-(?<![A-Za-z0-9]sk-)(?:(?=[a-z_-]*+[A-Z0-9])[A-Za-z0-9_-]{16,}+|[a-z]{16,}+[A-Za-z0-9_-]*+"
        r"|(?P<none>[a-z_-]*?)(?=(?<![A-Za-z0-9])sk-[a-z]{16}|[^a-z_-]|\Z))",
    ),
    (
        "aws-secret",
        r"(?i:aws_secret_access_key[\"']?[ \t]{0,20}[=:][ \t]{0,20}[\"']?)(?P<aws>[A-Za-z0-9/+]{40}[A-Za-z0-9/+=]*+)",
    ),
    (
        "bearer",
        rf"(?i:bearer)[ \t]{{1,20}}(?P<bearer>(?=[A-Za-z._~+/=-]{{0,200}}[0-9]){_TOKEN}{{8,}}+|{_TOKEN}{{20,}}+)",
    ),
    (
        "basic-auth",
        rf"(?i:authorization[\"']?[ \t]{{0,20}}[=:][ \t]{{0,20}}[\"']?basic)[ \t]{{1,20}}(?P<basic>{_TOKEN}{{8,}}+)",
    ),
    ("url-password", r"://[^\s/:@]{0,100}:(?P<url>[^\s/@]{3,200})(?=@)"),
)
SHAPES = tuple((kind, re.compile(pattern)) for kind, pattern in _PATTERNS)

_SECRET_NAME = (
    r"(?:passw(?:or)?d|passwd|passphrase|(?<=[_-])pwd|(?:client|app|webhook|shared)?[_-]?secret(?:[_-]?access)?(?:[_-]?key)?|"
    r"api[_-]?key|token|(?:private|access|signing|encryption)[_-]?key|credentials?)"
)
NAMED = re.compile(
    # Only from a word's start, so that a long word is read once: DB_PASSWORD, db.password, --api-key, stripeApiKey.
    rf"(?<![A-Za-z0-9_./-])(?:[A-Za-z0-9_.-]{{0,60}}[_.-]|[A-Za-z0-9]{{1,40}}(?=[A-Z]))?(?i:{_SECRET_NAME})"
    r"(?![A-Za-z0-9_-])\\?[\"']?[ \t]{0,20}(?:=>|:=|=(?!=)|:(?![:/=]))[ \t]{0,20}"
    r"(?:\\?\"(?P<double>[^\"\\\n]++)|'(?P<single>[^'\n]++)|(?P<bare>[^\s\"'`,;&(){}\[\]<>\\]++)(?![(\[]))"
)
"""A name that says that its value is secret, and the value: in JSON (also inside a string), YAML, an environment file,
a command line or code. A name that only holds such a word (max_tokens, token_type, password_hash) does not say so."""

TELLING = ("pass", "pwd", "secret", "key", "token", "credent")
"""One of these is in every name that `NAMED` finds, once its case is folded. (Not `credential`: for a pattern that
ignores case, ı is an i.)"""

_HARMLESS_NAME = re.compile(
    r"(?i:(?:next|page|continuation|cursor|total|max|min|pad|eos|bos|unk|sep|cls|mask)[_.-]?token)"
)
_ALLOWED = re.compile(
    r"(?i:[0-9]{1,6}(?:\.[0-9]+)?|sha(?:1|224|256|384|512)[:-][0-9a-z+/=]+"
    r"|true|false|null|none|nil|undefined|str|string|int|bool|bytes|secretstr|any|required|redacted|hidden"
    r"|changeme|example|placeholder|test|todo|x{3,}|\*{3,}|\.{3,}|-{2,})[.!?]?"
)
_REFERENCE = re.compile(r"[$<{%|>!]|(?:os|env|self|config|settings|process|args|options|request|vault|arn)[.:]")
_WORDS = re.compile(r"[A-Za-z_]++(?:[. -][A-Za-z_]++)*")
_VARIABLE = re.compile(r"[A-Z]+(?:_[A-Z]+)+")
"""The name of an environment's variable, which is no secret itself."""
_STRONG = re.compile(r"(?i:passw|pwd)")


def is_secret_value(name: str, value: str, *, quoted: bool) -> bool:
    """Whether the value beside a telling name is a secret, and not a type, a reference, a count, a word or a digest.

    Args:
        name: The name, with what stands up to the value.
        value: The value.
        quoted: Whether it stands in quotes; what does not may be code or prose.
    """
    value = value[:4096]
    if _HARMLESS_NAME.search(name) or _ALLOWED.fullmatch(value) or _REFERENCE.match(value):
        return False
    words = _WORDS.fullmatch(value) is not None
    if _STRONG.search(name):
        plain = quoted and " " not in value
        shell = name.startswith("-") or (name.isupper() and name.endswith("="))
        return len(value) >= 4 and (not words or plain or shell)
    if words and (_VARIABLE.fullmatch(value) or ("." in value and not quoted)):
        return False
    return len(value) >= 8 and entropy(value) >= (3.5 if words else 2.5)


def entropy(text: str) -> float:
    """Bits per character, by how often each occurs."""
    counts = Counter(text)
    return -sum(count / len(text) * math.log2(count / len(text)) for count in counts.values())
