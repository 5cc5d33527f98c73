"""Scales images down before they are packed."""

import simplejpeg

from manyheads.runner.data.rank.crops import scaled_to
from manyheads.runner.data.rank.photos import Picture, resized
from manyheads.runner.errors import ConfigurationError


def scaled(content: bytes, short: int, quality: int, *, name: str) -> bytes | None:
    """An image as JPEG, scaled such that its shorter side has ``short`` pixels; None if it is not longer than that.

    ``content``: the file; ``name``: for messages. It is decoded as for training, at a reduced resolution if that
    suffices. Raises ConfigurationError if it cannot be decoded.
    """
    try:
        picture = Picture(content)
        if (side := min(picture.height, picture.width)) <= short:
            return None
        pixels = resized(picture.decoded(at_least=short / side), scaled_to(picture.height, picture.width, short))
        return bytes(simplejpeg.encode_jpeg(pixels.permute(1, 2, 0).contiguous().numpy(), quality, "RGB", "420"))
    except Exception as error:  # each image format has its own errors
        raise ConfigurationError.at("--resize", short, f": {name} cannot be decoded ({error}). Remove it.") from None
