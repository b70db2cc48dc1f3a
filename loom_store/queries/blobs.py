"""Contents: bytes named by their SHA-256, kept once."""

import zlib
from hashlib import sha256
from typing import Final

from sqlalchemy import bindparam, insert, select, update

from loom_dsl.errors import BlobMissing
from loom_dsl.text.redaction import Masked
from loom_store.queries.base import Queries
from loom_store.tables import blobs

# How text and bytes lie in the store: deflated when that is shorter, with a dictionary of Loom's own words.
#
# The first byte names the form, so that a form can be added and the old ones are read for ever.


_PLAIN: Final = b"\x00"
_DEFLATED: Final = b"\x01"

# Never change this text: rows of form 1 cannot be read without it. A better one gets a form of its own.
# Deflate refers to what is near with fewer bits, so the most frequent words stand last.
_WORDS_1: Final = (
    b'"prompt_tokens":,"completion_tokens":,"total_tokens":,"cached_tokens":,"cost_micros":,"reasoning_tokens":'
    b'"approval_id":"ap_","t":"approval_requested"},"choice":"approve","t":"approval_decided"},"expires_at":null,'
    b'"error":"tool_execution_failed","message":"","t":"error"},"code":"","t":"warning"},"op":"pause","by":"","t":"control"}'
    b'"not_found""permission_denied""execute_bash""calculator""edit_file""glob""grep""write_file""path":"","pattern":"**/*.py"'
    b'"compaction","summary","reminder","system","developer","user","inbox","budget","limit_reached","reason":'
    b'"awaiting_human","paused","aborted","failed","completed","cancelled","unknown","doc_count":,"t":"retrieval_complete"}'
    b'{"attempt":1,"content":"","n":,"sequence":,"stream":"/model#1","type":"llm_delta"}"type":"stream_reset"}'
    b'"finish_reason":"stop","finish_reason":"tool_calls","model":"gpt-4.1-mini","usage":{"input_tokens":,"output_tokens":'
    b'{"role":"assistant","tool_calls":[{"function":{"arguments":"{\\"path\\":\\"","name":"read_file"},"id":"call_",'
    b'"type":"function"}]}{"name":"read_file","role":"tool","status":"ok","tool_call_id":"call_"}'
    b'{"depth":,"from_turn":"","n":,"t":"recursion","to_turn":""},{"content":{"$blob":""},"n":,"t":"agent_finish"}'
    b'{"content":{"$blob":""},"n":,"status":"success","t":"tool_result","tool_call_id":"call_"},'
    b'{"n":,"results_count":1,"t":"tool_calls_complete"},{"n":,"t":"tool_calls_start","tool_count":1,"tool_names":["'
    b'{"n":,"t":"tool_start","tool":"read_file","tool_call_id":"call_"},{"content":{"$blob":""},"n":,"t":"llm_finish","usage":'
    b'{"model":"","n":,"t":"llm_start"},{"n":,"stream":"","t":"stream_start"},{"iteration":,"n":,"t":"iteration_start"},'
    b'{"n":,"name":"discover","t":"validate","authorize","check_cancel","execute","format","recall","compress","finish"'
    b'{"from":"tool_running","n":,"state":"model_running","t":"state"},{"from":"model_running","n":,"state":"tool_running",'
    b'"name":"recurse","t":"phase_start"},{"n":"name":"feedback","t":"phase_end"},{"n":,"name":"guard","t":"phase_start"},'
    b'{"n":,"name":"assemble","t":"phase_end"},{"n":,"name":"calls","t":"phase_end"},{"n":,"name":"model","t":"phase_start"},{"n":'
)


def pack(data: bytes) -> bytes:
    """Make bytes ready for a row."""
    if len(data) > 24:
        deflater = zlib.compressobj(6, zlib.DEFLATED, -15, 8, zlib.Z_DEFAULT_STRATEGY, _WORDS_1)
        deflated = deflater.compress(data) + deflater.flush()
        if len(deflated) < len(data):
            return _DEFLATED + deflated
    return _PLAIN + data


def unpack(packed: bytes) -> bytes:
    """Give back what `pack` was given.

    Raises:
        ValueError: The row was not written by `pack`, or by a newer release.
    """
    form = packed[:1]
    if form == _PLAIN:
        return packed[1:]
    if form == _DEFLATED:
        inflater = zlib.decompressobj(-15, zdict=_WORDS_1)
        return inflater.decompress(packed[1:]) + inflater.flush()
    raise ValueError(f"unknown row form {form!r}")


def pack_text(text: str) -> bytes:
    """Make text ready for a row. Lone surrogates are kept."""
    return pack(text.encode("utf-8", "surrogatepass"))


def pack_told(text: Masked) -> bytes:
    """Make ready for a row what people read of jobs: events, questions and decisions, the audit trail."""
    return pack_text(text)


def unpack_text(packed: bytes) -> str:
    """Give back what `pack_text` was given."""
    return unpack(packed).decode("utf-8", "surrogatepass")


# Putting a content again says that somebody needs it: prune looks at this time. Coarse, to save writes.
TOUCH_SECONDS: Final = 3600
HELD: Final = 2**62
"""The time, far after any other, at which a content was put that stays until it is released."""

_FIND = select(blobs.c.id, blobs.c.put_at).where(blobs.c.digest == bindparam("name"))
_READ = select(blobs.c.body).where(blobs.c.digest == bindparam("name"))
_ADD = insert(blobs).values({name: bindparam(name) for name in ("digest", "size", "put_at", "body")})
_MARK = update(blobs).where(blobs.c.digest == bindparam("name")).values(put_at=bindparam("now"))
_TOUCH = update(blobs).where(blobs.c.id == bindparam("blob_id")).values(put_at=bindparam("now"))


class BlobQueries(Queries):
    """The part of a transaction that deals with contents."""

    def put_blob(self, data: bytes) -> str:
        """Keep bytes; the same bytes are kept once.

        Returns:
            Their digest, 64 hexadecimal digits.
        """
        return self._put(data)[1]

    def get_blob(self, digest: str) -> bytes:
        """Give the bytes of that digest.

        Raises:
            BlobMissing: The store does not hold them.
        """
        cached = self._shared.blobs.get(digest)
        if cached is not None:
            return cached
        packed = self._scalar(_READ, {"name": raw_digest(digest)})
        if packed is None:
            raise BlobMissing(f"the store does not hold the content {digest}; was it pruned, or is this another store?")
        data = unpack(packed)
        self._shared.blobs.put(digest, data)
        return data

    def has_blob(self, digest: str) -> bool:
        """Say whether the store holds that content."""
        return self._execute(_FIND, {"name": raw_digest(digest)}).first() is not None

    def hold_blob(self, data: bytes) -> str:
        """Keep bytes until `release_blob`, also through a prune, and with them every content that they name.

        Returns:
            Their digest.
        """
        digest = self.put_blob(data)
        self._execute(_MARK, {"name": raw_digest(digest), "now": HELD})
        return digest

    def release_blob(self, digest: str) -> None:
        """Let a content go that was held, as if it had been put now. One that is not there is none to hold."""
        self._execute(_MARK, {"name": raw_digest(digest), "now": self._seconds()})

    def _put(self, data: bytes) -> tuple[int, str]:
        raw = sha256(data).digest()
        digest = raw.hex()
        now = self._seconds()
        found = self._first(_FIND, {"name": raw})
        if found is None:
            row = {"digest": raw, "size": len(data), "put_at": now, "body": pack(data)}
            blob_id = self._execute(_ADD, row).inserted_primary_key[0]
        else:
            blob_id, put_at = found
            if now - put_at > TOUCH_SECONDS:
                self._execute(_TOUCH, {"blob_id": blob_id, "now": now})
        self._after_commit(lambda: self._shared.blobs.put(digest, data))
        return blob_id, digest


def raw_digest(digest: str) -> bytes:
    """Give a digest's 32 bytes.

    Raises:
        ValueError: It is not 64 hexadecimal digits.
    """
    raw = bytes.fromhex(digest)
    if len(raw) != 32:
        raise ValueError(f"{digest!r} is not a SHA-256 digest of 64 hexadecimal digits")
    return raw
