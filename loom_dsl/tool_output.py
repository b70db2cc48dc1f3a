"""What a tool may return besides text and JSON values: images for the model to look at."""

from dataclasses import dataclass

LARGEST_IMAGE = 4 * 1024 * 1024
"""Bytes of an image that a model is given."""
MOST_IMAGES = 8
_BEGINNINGS = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


@dataclass(frozen=True, kw_only=True)
class Image:
    """An image.

    Attributes:
        data: The file's bytes.
        media_type: Such as ``image/png``; empty: found out from the bytes.
    """

    data: bytes
    media_type: str = ""

    def __post_init__(self) -> None:
        if not self.media_type:
            object.__setattr__(self, "media_type", image_type(self.data))
        if not self.media_type.startswith("image/"):
            raise ValueError("these bytes are no PNG, JPEG, GIF or WebP image")
        if len(self.data) > LARGEST_IMAGE:
            raise ValueError(f"an image of {len(self.data):,} bytes is too large; at most {LARGEST_IMAGE:,} are given")


@dataclass(frozen=True, kw_only=True)
class ToolOutput:
    """A tool's result with images. The model gets the text as the result and the images right after it.

    Attributes:
        text: What the model reads as the result.
        images: At most eight.
    """

    text: str
    images: tuple[Image, ...] = ()

    def __post_init__(self) -> None:
        wrong = [each for each in self.images if not isinstance(each, Image)]
        if not isinstance(self.text, str) or wrong:
            what = type(wrong[0] if wrong else self.text).__name__
            raise TypeError(f"a ToolOutput takes {'Images' if wrong else 'text'}, and got a {what}")
        if len(self.images) > MOST_IMAGES:
            raise ValueError(f"{len(self.images)} images are too many; at most {MOST_IMAGES} are given")


def image_type(data: bytes) -> str:
    """Tell the media type of an image from its first bytes; empty when it is none that models take."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for beginning, kind in _BEGINNINGS if data.startswith(beginning)), "")
