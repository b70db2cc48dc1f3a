"""Secrets that must not be seen, text that must stay as it is, and time that must not run away."""

import base64
import html
import json
import time
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_dsl.text.redaction import MaskedStream, cut_middle, mask_known
from loom_tools.masking import contains_secret, redact

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJ"


@pytest.mark.parametrize(
    ("secret", "kind"),
    [
        ("sk-" + LETTERS, "api-key"),
        ("sk-proj-" + LETTERS, "api-key"),
        ("sk-ant-api03-" + LETTERS, "api-key"),
        ("sk-abcdefghijklmnopqrst", "api-key"),
        ("ghp_" + LETTERS[:36], "github-token"),
        ("github_pat_" + LETTERS, "github-token"),
        ("glpat-" + LETTERS[:20], "gitlab-token"),
        ("AKIAIOSFODNN7EXAMPLE", "aws-key"),
        ("xoxb-123456789012-abcdefghijkl", "slack-token"),
        ("AIzaSyD4q8Zr1LmX0vPtw7KcN2bH9eJ6gF3aQs5", "gcp-api-key"),
        ("sk_live_" + LETTERS[:24], "stripe-access-token"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abc-DEF_123", "jwt"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\nab+/=\n-----END RSA PRIVATE KEY-----", "private-key"),
        ("-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk cut off here", "private-key"),
    ],
)
def test_what_looks_like_a_credential_is_masked_wherever_it_stands(secret: str, kind: str) -> None:
    assert redact(f'key="{secret}"').startswith(f'key="[redacted:{kind}]')
    masked = redact(f"before {secret}")
    assert masked == f"before [redacted:{kind}]"
    assert contains_secret(secret)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Authorization: Bearer abc123def456ghi", "Authorization: Bearer [redacted:bearer]"),
        ("authorization: bearer abc.def-123_45==", "authorization: bearer [redacted:bearer]"),
        ("postgres://loom:hunter22@db/x", "postgres://loom:[redacted:url-password]@db/x"),
        (
            "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
            "aws_secret_access_key = [redacted:named]",
        ),
    ],
)
def test_the_words_around_a_credential_stay(text: str, expected: str) -> None:
    assert redact(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "the bearer of bad news is authentication",
        "risk-assessment-and-mitigation-plan",
        "task-" + "a" * 40,
        "see http://localhost:8080/path and user@example.com",
        "sk-learn-contrib-packages",
        "ghp_short",
        "-----BEGIN CERTIFICATE-----\nMIIE\n-----END CERTIFICATE-----",
        "a" * 5000,
        "sha256 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "${secret:NAME} and [redacted:api-key]",
    ],
)
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert redact(text, {"PASSWORD": "correct horse battery"}) == text
    assert not contains_secret(text)


NAMED_SECRETS = [
    ("DB_PASSWORD=hunter22", "DB_PASSWORD=[redacted:named]"),
    ("export PASSWORD=letmein", "export PASSWORD=[redacted:named]"),
    ("password: hunter2!", "password: [redacted:named]"),
    ('{"password": "correct-horse", "user": "me"}', '{"password": "[redacted:named]", "user": "me"}'),
    (r'"{\"api_key\": \"9f8e7d6c5b4a3210\"}"', r'"{\"api_key\": \"[redacted:named]\"}"'),
    ("api_key: 0a1b2c3d4e5f60718293", "api_key: [redacted:named]"),
    ("stripeApiKey = 'q8Zr1LmX0vPt'", "stripeApiKey = '[redacted:named]'"),
    ("mysql --password=hunter --user=me", "mysql --password=[redacted:named] --user=me"),
    ("client_secret=8Q~kD.x1Vb2Nn3Mm4&grant_type=x", "client_secret=[redacted:named]&grant_type=x"),
    ("auth_token => 'f3Ab9Kq2Lw7Zx'", "auth_token => '[redacted:named]'"),
    ("SECRET_KEY = 'django-insecure-a8#k2!x'", "SECRET_KEY = '[redacted:named]'"),
    ("Authorization: Basic dXNlcjpodW50ZXIy", "Authorization: Basic [redacted:basic-auth]"),
    ("redis://:hunter22@cache:6379/0", "redis://:[redacted:url-password]@cache:6379/0"),
    ("npm_" + LETTERS[:36], "[redacted:npmjsaccesstoken]"),
    (
        "https://hooks.slack.com/services/T00000000/B00000000/abcdefgh",
        "https://hooks.slack.com/services/[redacted:slack-hook]",
    ),
]


@pytest.mark.parametrize(("text", "expected"), NAMED_SECRETS)
def test_what_stands_beside_a_telling_name_is_masked(text: str, expected: str) -> None:
    assert redact(text) == expected


@pytest.mark.parametrize(
    "name", ["PASſWORD", "pwd_to\u212aen", "db_ſecret", "clıent_credentıals", "aPİ_KEY", "private-key", "x.PassPhrase"]
)
def test_a_telling_name_is_found_in_odd_letters_and_on_any_line(name: str) -> None:
    text = f"first line\n{name}=hunter2-f00bar-93\nlast line\n"
    assert redact(text) == f"first line\n{name}=[redacted:named]\nlast line\n"


@pytest.mark.parametrize(
    "text",
    [
        "max_tokens: 4096",
        "token_type: bearer",
        "tokens=12345678",
        "password: str",
        "password: SecretStr | None = None",
        "login(user=user, password=password)",
        "token = tokens[index]",
        "password=get_password(user)",
        "api_key=os.environ['API_KEY']",
        "api_key: ${API_KEY}",
        'token: "${{ secrets.GITHUB_TOKEN }}"',
        "password: <your password>",
        "next_token=AbCdEf1234567890XyZ",
        '{"nextPageToken": "CAUQAA9f8e7d6c5b"}',
        "if password == 'x1y2z3w4':",
        "the password: it must be long, and the token: see below",
        '"password": "string"',
        "PWD=/home/user/project2",
        "commit 5f0c1e9c0a8d4d3b9d8e7f6a5b4c3d2e1f0a9b8c",
        "id: 123e4567-e89b-12d3-a456-426614174000",
        '"integrity": "sha512-9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08=="',
        "password_hash: $2b$12$abcdefghijklmnopqrstuv",
        "/etc/passwd:12:root:x:0:0",
        "tokenizer: cl100k_base2",
        "secret=runtime.allowed.value",
        '"api_key": "TEMPORAL_API_KEY"',
        "git clone ssh://git@example.com:2222/x.git",
    ],
)
def test_names_that_tell_no_secret_leave_text_as_it_is(text: str) -> None:
    assert redact(text) == text


VALUE = 'p@ss "word"/+é\n42'


@pytest.mark.parametrize(
    "form",
    [
        VALUE,
        quote(VALUE, safe=""),
        quote_plus(VALUE),
        json.dumps(VALUE)[1:-1],
        json.dumps(json.dumps(VALUE)[1:-1])[1:-1],
        json.dumps(VALUE)[1:-1].replace("/", "\\/"),
        quote(VALUE, safe="").replace("%2F", "%2f").replace("%2B", "%2b").replace("%C3%A9%0A", "%c3%a9%0a"),
        VALUE.encode().hex(),
        VALUE.encode().hex().upper(),
        base64.b64encode(VALUE.encode()).decode(),
        base64.urlsafe_b64encode(VALUE.encode()).decode(),
    ],
)
def test_a_known_value_is_masked_under_its_name_in_every_form(form: str) -> None:
    assert redact(f"<{form}>", {"DB_PASSWORD": VALUE}) == "<${secret:DB_PASSWORD}>"
    assert mask_known(f"<{form}>", {"DB_PASSWORD": VALUE}) == "<${secret:DB_PASSWORD}>"


RAW = VALUE.encode()
LINED = base64.encodebytes(b"." * 50 + RAW + b"...").decode()


@pytest.mark.parametrize(
    "form",
    [
        html.escape(VALUE),
        html.escape(VALUE, quote=False),
        "".join(f"&#{ord(letter)};" for letter in VALUE),
        "".join(f"&#x{ord(letter):X};" for letter in VALUE),
        "".join(f"%{byte:02X}" for byte in RAW),
        "".join(f"%{byte:02x}" for byte in RAW),
        "".join(f"\\u{ord(letter):04x}" for letter in VALUE),
        "".join(f"\\u{ord(letter):04X}" for letter in VALUE),
        RAW.hex(":"),
        RAW.hex(" ", 2),
        RAW.hex("-").upper(),
        RAW.hex("\n"),
        "\\x" + RAW.hex(":").replace(":", "\\x"),
        RAW.hex(":").replace(":", ", "),
        base64.b64encode(base64.b64encode(RAW)).decode(),
        "\n".join(base64.b64encode(RAW).decode()),
        json.dumps("\r\n".join(base64.b64encode(RAW).decode()))[1:-1],
        base64.b32encode(RAW).decode(),
        VALUE[:5] + "\n" + VALUE[5:],
        VALUE[:5] + "\r\n    " + VALUE[5:],
    ],
)
def test_a_known_value_is_masked_where_it_is_escaped_broken_over_lines_or_encoded_twice(form: str) -> None:
    assert mask_known(f"<{form}>", {"DB_PASSWORD": VALUE}) == "<${secret:DB_PASSWORD}>"


def test_a_known_value_is_masked_inside_base64_that_is_wrapped() -> None:
    masked = mask_known(LINED, {"DB_PASSWORD": VALUE})
    assert "${secret:DB_PASSWORD}" in masked
    assert len(masked.replace("${secret:DB_PASSWORD}", "")) < len(LINED) - len(RAW)


@pytest.mark.parametrize(
    "text", [VALUE[:-1], VALUE[1:], RAW.hex()[2:], VALUE.replace(" ", "  "), VALUE.upper(), VALUE[::-1], "70 40", ""]
)
def test_what_is_no_known_value_stays(text: str) -> None:
    assert mask_known(f"<{text}>", {"DB_PASSWORD": VALUE}) == f"<{text}>"


WAYS = st.sampled_from(
    [VALUE, RAW.hex(":"), base64.b64encode(RAW).decode(), html.escape(VALUE), VALUE[:4], "p@", "Y", "\n"]
)


@given(st.lists(st.one_of(WAYS, st.text(max_size=5)), max_size=8), st.lists(st.integers(0, 40), max_size=40))
def test_a_text_in_pieces_is_masked_as_it_is_at_once(parts: list[str], sizes: list[int]) -> None:
    text, stream, told = "".join(parts), MaskedStream({"N": VALUE}), []
    rest = text
    for size in sizes:
        told.append(stream.feed(rest[:size]))
        rest = rest[size:]
    told += [stream.feed(rest), stream.rest()]
    whole = "".join(told)
    assert whole.count("${secret:N}") == mask_known(text, {"N": VALUE}).count("${secret:N}")
    assert mask_known(whole, {"N": VALUE}) == whole


@pytest.mark.parametrize(
    ("pieces", "least", "told"),
    [
        (["ab.", VALUE[:9], VALUE[9:], "d"], 1, ["ab.", "", "${secret:N}", "d", ""]),
        (["ab p", "ot"], 1, ["ab ", "pot", ""]),
        (["ab p", "ot"], 4, ["ab p", "ot", ""]),
        (["so: p@ss", ' "word"'], 4, ["so: ", "", 'p@ss "word"']),
        (["p@s"], 1, ["", "p@s"]),
        (list(VALUE), 1, [""] * (len(VALUE) - 1) + ["${secret:N}", ""]),
    ],
)
def test_only_what_may_be_the_beginning_of_a_value_is_held_back(pieces: list[str], least: int, told: list[str]) -> None:
    stream = MaskedStream({"N": VALUE}, least)
    assert [*map(stream.feed, pieces), stream.rest()] == told


def test_a_stream_of_small_pieces_takes_linear_time_also_beside_a_long_key() -> None:
    stream = MaskedStream({"KEY": "-----BEGIN KEY-----\n" + f"{LETTERS}\n" * 60, "N": VALUE})
    began = time.process_time()
    for _ in range(100):
        stream.feed("some words of an answer ")
    assert time.process_time() - began < 5


@pytest.mark.parametrize("user", ["a", "ab", "abc", "abcd"])
def test_a_known_value_inside_basic_authentication_is_masked(user: str) -> None:
    value = "correct-horse-battery-staple"
    header = base64.b64encode(f"{user}:{value}".encode()).decode()
    masked = redact(f"Basic {header}", {"PW": value})
    assert "${secret:PW}" in masked
    assert len(masked.replace("${secret:PW}", "")) < len("Basic ") + 12


def test_a_known_value_goes_before_its_shape_and_short_ones_are_not_looked_for() -> None:
    key = "sk-" + LETTERS
    assert redact(f"{key} yes", {"OPENAI_API_KEY": key, "SHORT": "yes"}) == "${secret:OPENAI_API_KEY} yes"


def test_the_longer_of_two_known_values_wins() -> None:
    assert redact("abcdefgh12", {"A": "abcdefgh", "B": "abcdefgh12"}) == "${secret:B}"


def test_masks_hold_when_a_secret_is_made_of_the_words_of_a_mask() -> None:
    known = {"A": "redacted:", "B": "${secret:", "C": "secret:A"}
    once = redact("redacted: and ${secret: and " + "ghp_" + LETTERS, known)
    assert redact(once, known) == once


PIECES = st.sampled_from(
    [
        "sk-",
        "ghp_",
        "AKIAIOSFODNN7EXAMPLE",
        "Bearer ",
        "eyJ",
        ".eyJ",
        "://u:",
        "@",
        "-----BEGIN RSA PRIVATE KEY-----",
        "-----END RSA PRIVATE KEY-----",
        "[redacted:",
        "]",
        "${secret:",
        "}",
        "abcdefgh",
        "12345678",
        LETTERS,
        " ",
        "-",
        "secretvalue",
        "aws_secret_access_key=",
        "password=",
        '"api_key": "',
        "TOKEN: ",
        '"',
        "x",
    ]
)


@given(st.lists(PIECES, max_size=14).map("".join))
def test_masking_twice_is_masking_once(text: str) -> None:
    known = {"A": "secretvalue", "B": "abcdefgh12345678", "C": "redacted:"}
    once = redact(text, known)
    assert redact(once, known) == once
    assert not contains_secret(once, known)


@given(st.text(alphabet="abc123-_ ", min_size=8, max_size=30), st.text(max_size=20), st.text(max_size=20))
def test_a_known_value_never_survives(value: str, before: str, after: str) -> None:
    outside = redact(before + value + after, {"N": value}).replace("${secret:N}", "\0")
    assert value not in outside


HOSTILE = [
    "eyJ" * 60_000,
    "eyJaaaaaaaa." * 15_000,
    "sk-" * 60_000,
    ("sk-" + "a" * 15 + "-") * 9_000,
    "bearer " * 25_000,
    "Bearer" + " " * 180_000,
    "://" * 60_000,
    "://a:" * 36_000,
    "://" + "a:" * 90_000,
    "-----BEGIN PRIVATE KEY-----" * 6_000,
    "-----BEGIN " * 16_000,
    "-" * 180_000,
    "-----BEGIN PRIVATE KEY-----" + "a-" * 90_000,
    "aws_secret_access_key" * 8_000,
    "ghp_" * 45_000,
    "AKIA" * 45_000,
    "${secret:" * 20_000,
    "password=" * 20_000,
    "password: " * 18_000,
    'token": "' * 20_000,
    "a.b-c_" * 30_000,
    "a" * 180_000 + "=",
    "aB" * 90_000,
    "secret_" * 25_000,
    "password=" + "a." * 90_000 + "(",
    "password" + " " * 180_000 + "=",
    "[redacted:" * 18_000,
    "[redacted:x]" * 15_000,
    "${secret:A} " * 15_000,
]


def work_of(text: str, known: dict[str, str] | None = None) -> float:
    """Seconds of this process's own work for a text, the least of three: what else the machine does is not counted."""

    def once() -> float:
        started = time.process_time()
        redact(text, known or {"N": "aaaaaaaab"})
        return time.process_time() - started

    return min(once() for _ in range(3))


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: text[:24])
def test_hostile_text_takes_linear_time(text: str) -> None:
    quarter = text[: len(text) // 4]
    # Four times as much when linear, sixteen times when not; what takes no time at all is measured badly.
    assert work_of(text) < 10 * work_of(quarter) + 0.05


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: text[:24])
def test_hostile_text_costs_little_more_than_ordinary_text(text: str) -> None:
    ordinary = ("the quick brown fox jumps over the lazy dog\n" * (len(text) // 44 + 1))[: len(text)]
    assert work_of(text) < 15 * work_of(ordinary) + 0.05


def test_a_key_behind_words_that_look_like_the_beginning_of_one_is_masked() -> None:
    key = "sk-" + "abcdefghijklmnopqrst"
    assert redact(f"sk-{key}") == redact(f"sk-learn-{key}").replace("learn-", "") == "sk-[redacted:api-key]"
    assert redact("sk-" + "a-" * 300 + "Z") == "[redacted:api-key]"


def test_a_hundred_known_values_cost_little_more_than_one() -> None:
    known = {f"K{number}": f"{LETTERS[number % 46 :]}{number:05}{LETTERS}" for number in range(100)}
    text = " ".join(LETTERS[number % 40 :] for number in range(8_000))
    assert work_of(text, known) < 4 * work_of(text) + 0.05
    assert redact(f"{text} {known['K57']}", known).endswith(" ${secret:K57}")


@pytest.mark.parametrize("length", [0, 63, 64, 65, 100, 10_000])
def test_a_text_is_cut_to_its_limit_and_says_how_much_is_gone(length: int) -> None:
    text = "".join(chr(ord("a") + n % 26) for n in range(length))
    short, cut = cut_middle(text, 64)
    assert cut is (length > 64)
    assert len(short) <= 64
    if cut:
        head, tail = short.split("\n[... ")[0], short.split(" ...]\n")[1]
        assert text.startswith(head)
        assert text.endswith(tail)
        assert f"{length - len(head) - len(tail)} characters left out" in short
    else:
        assert short == text


@given(st.text(max_size=300), st.integers(64, 200))
def test_cutting_twice_is_cutting_once(text: str, limit: int) -> None:
    short, _ = cut_middle(text, limit)
    assert cut_middle(short, limit) == (short, False)


def test_a_limit_without_room_for_the_mark_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 64"):
        cut_middle("x", 10)
