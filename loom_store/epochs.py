"""The epochs of a store: one begins where what it lacks proves nothing."""

from loom_store.scope import Scope


class Epochs(Scope):
    """The part of a transaction that deals with epochs."""

    def epoch_began(self) -> float | None:
        """Say since when a missing row proves that nothing happened, in seconds since 1970; None: always."""
        return None
