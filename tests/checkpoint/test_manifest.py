"""The marker of a copy: nothing that somebody else has stored leads anywhere."""

import json

import pytest

from manyheads.runner.checkpoint.mirror_manifest import Copy, MirrorManifest, object_name
from manyheads.runner.errors import ConfigurationError

SHA = "ab" * 32


def manifest(path: str = "checkpoints/last.pt", **changed) -> MirrorManifest:
    copy = Copy(7, SHA, 12, object_name(path, SHA))._replace(**changed)
    return MirrorManifest("run", {path: copy})


def test_it_is_read_as_it_was_written():
    found = MirrorManifest.parse(manifest().content(), of="s3://b/x")
    assert found == manifest()
    assert found.objects == {f"files/checkpoints/last.pt.{SHA[:16]}"}


@pytest.mark.parametrize(
    "wrong",
    [
        manifest("../last.pt"),
        manifest("/etc/passwd"),
        manifest("a/../../b"),
        manifest("a//b"),
        manifest("a\x1b[2J"),
        manifest(object="elsewhere"),
        manifest(object=f"files/../../x.{SHA[:16]}"),
        manifest(size=-1),
        manifest(size=True),
        manifest(sha256="00"),
        manifest(mtime_ns="1"),
    ],
)
def test_what_would_lead_elsewhere_is_refused_although_its_digest_is_right(wrong):
    with pytest.raises(
        ConfigurationError, match=r"s3://b/x: mirror.json is damaged, or was written by another version"
    ):
        MirrorManifest.parse(wrong.content(), of="s3://b/x")


@pytest.mark.parametrize(
    "path", ["logs/nodes.key", "state/manyheads/key", "state/manyheads/trusted/0", "logs/heartbeat"]
)
def test_neither_keys_nor_what_is_trusted_come_back(path):
    """They were stored by an earlier version, or by somebody who wants to be trusted."""
    assert MirrorManifest.parse(manifest(path).content(), of="s3://b/x").files == {}


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"\xff", b"[" * 10**5, json.dumps({"sha256": SHA}).encode()])
def test_what_is_no_marker_is_refused(content):
    with pytest.raises(ConfigurationError, match="is damaged"):
        MirrorManifest.parse(content, of="s3://b/x")


def test_a_flipped_bit_is_noticed():
    with pytest.raises(ConfigurationError, match="is damaged"):
        MirrorManifest.parse(manifest().content().replace(b"last.pt", b"lost.pt"), of="s3://b/x")
