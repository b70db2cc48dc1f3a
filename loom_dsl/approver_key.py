"""A public key of somebody who signs decisions, as the workers' file has it."""

from datetime import UTC, datetime
from typing import Annotated

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field

from loom_dsl.approval_policy import person
from loom_dsl.lookalike import mixes_scripts, revealed
from loom_dsl.signature import key_name


def checked_name(name: str) -> str:
    """Give a person's name back.

    Raises:
        ValueError: It is empty, hides characters, or mixes letters of several scripts.
    """
    if not person(name) or revealed(name) != name or mixes_scripts(name):
        raise ValueError("this is no name; give one as `approvers` and roles have it")
    return name


class ApproverKey(BaseModel):
    """One line of the file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    by: Annotated[str, Field(strict=True, max_length=200), AfterValidator(checked_name)]
    """Whose key it is: what `by` of a decision must say, to the letter."""
    public: str = Field(strict=True, pattern="^[0-9a-f]{64}$")
    """The 32 bytes of the public key, as hexadecimal digits."""
    key: str = Field(default="", strict=True)
    """Its name, which follows from the bytes; only for readers of the file."""
    not_before: AwareDatetime | None = None
    """From when on decisions count that it signed."""
    not_after: AwareDatetime | None = None
    """Until when."""
    revoked: bool = Field(default=False, strict=True)
    """Whether nothing that it signed counts any more."""

    @property
    def name(self) -> str:
        """What signatures call it."""
        return key_name(bytes.fromhex(self.public))

    def wrong_time(self, moment: float) -> str:
        """Say why it does not count at a moment, in seconds since 1970, or nothing."""
        at = datetime.fromtimestamp(moment, UTC)
        if self.not_before is not None and at < self.not_before:
            return f"the key {self.name} counts only from {self.not_before.isoformat()} on"
        if self.not_after is not None and at >= self.not_after:
            return f"the key {self.name} counted until {self.not_after.isoformat()}; sign with a newer one"
        return ""
