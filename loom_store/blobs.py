"""Contents: bytes named by their SHA-256, kept once."""

from hashlib import sha256
from typing import Final

from sqlalchemy import bindparam, insert, select, update

from loom_dsl.errors import BlobMissing
from loom_store.packing import pack, unpack
from loom_store.scope import Scope
from loom_store.tables import blobs

# Putting a content again says that somebody needs it: prune looks at this time. Coarse, to save writes.
TOUCH_SECONDS: Final = 3600
HELD: Final = 2**62
"""The time, far after any other, at which a content was put that stays until it is released."""

_FIND = select(blobs.c.id, blobs.c.put_at).where(blobs.c.digest == bindparam("name"))
_READ = select(blobs.c.body).where(blobs.c.digest == bindparam("name"))
_ADD = insert(blobs).values({name: bindparam(name) for name in ("digest", "size", "put_at", "body")})
_MARK = update(blobs).where(blobs.c.digest == bindparam("name")).values(put_at=bindparam("now"))
_TOUCH = update(blobs).where(blobs.c.id == bindparam("blob_id")).values(put_at=bindparam("now"))


class Blobs(Scope):
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
