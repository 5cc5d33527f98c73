"""Addresses of object storage: what is one, and that no password in one is ever shown."""

from pathlib import Path

import pytest

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run.objects import Address, is_address, place_of


@pytest.mark.parametrize("text", ["s3://bucket", "s3://my.bucket/a/b-c/d e", "gs://b/x", "az://account/x@y"])
def test_an_address_is_taken_as_it_is(text):
    assert place_of(f"{text}/", key="data.root") == Address(text)
    assert str(place_of(text, key="data.root")) == text


def test_what_is_below_it():
    inner = Address("s3://bucket/a") / "b"
    assert (inner.text, inner.name) == ("s3://bucket/a/b", "b")


@pytest.mark.parametrize("text", ["/data", "data", "s3:/x", "s3", "./s3://x", "https://x"])
def test_what_is_a_path(text):
    assert not is_address(text)
    assert place_of(text, key="data.root") == Path(text)


@pytest.mark.parametrize(
    "text",
    [
        "s3://me:hunter2@bucket/a",
        "s3://hunter2@bucket",
        "s3://bucket/a?key=hunter2",
        "s3://bucket/../a",
        "s3://bucket/a//b",
        "s3://",
        "S3://bucket",
        "s3://bucket/a\x1b[2J",
        "s3://bucket\\a",
    ],
)
def test_anything_else_is_refused_and_no_password_is_shown(text):
    assert is_address(text)
    with pytest.raises(ConfigurationError, match=r"data.root=.* is not an address .* Allowed: s3://<bucket>") as error:
        place_of(text, key="data.root")
    assert "hunter2" not in str(error.value)
    assert "\x1b" not in str(error.value)
