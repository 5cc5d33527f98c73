"""The content of one config that somebody sent: plain values only."""

from pathlib import Path

import pytest

from manyheads.runner.config.saved import BYTES, parse_config
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.trust.check_trust import refuse_content

EVIL = "callbacks: {evil: {_target_: os.mkdir}}"
HYDRA = {
    "a key": f"hydra: {{{EVIL}}}",
    "an escaped key": f'"hy\\x64ra": {{{EVIL}}}',
    "a key in another notation": f"? !!str hydra\n: {{{EVIL}}}",
    "a key that is merged in": f"a: &a {{hydra: {{{EVIL}}}}}\n<<: *a",
    "another case": "Hydra: {}",
    "a key with more behind it": "hydra.callbacks: {}",
    "a key that goes on": '"hydra\\u200b": 1',
}
ODD = {
    "a list": "[hydra]",
    "a text": f'"hydra: {{{EVIL}}}"',
    "two documents": "a: 1\n---\nb: 2",
    "no YAML": "a: [1",
    "a Python object": "a: !!python/object/apply:os.system ['touch mark']",
    "a value that its type can't be": "a: !!bool maybe",
    "a key twice": "a: 1\na: 2",
    "control characters": '"a.\\e[31m": 1',
    "many aliases": "\n".join(["a0: &a0 [1, 1]", *(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 60))]),
    "merged aliases": "\n".join(
        ["a0: &a0 {x: 1}", *(f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}" for n in range(1, 60))]
    ),
    "an alias of itself": "a: &a [*a]",
    "depth": "[" * 10_000,
    "length": "x" * (BYTES + 1),
    "digits": "9" * 5_000,
    "an environment variable": "a: ${oc.env:HOME}",
    "no text": b"a: \xff",
}


def refused(text: str | bytes) -> str:
    path = Path("/theirs/run.yaml")
    with pytest.raises(ConfigurationError) as caught:
        refuse_content(path, parse_config(text if isinstance(text, bytes) else text.encode(), path))
    assert "/theirs/run.yaml" in str(caught.value)
    assert str(caught.value).isprintable()
    return str(caught.value)


@pytest.mark.parametrize("attack", HYDRA)
def test_hydras_own_section_is_refused(attack):
    assert "cannot change Hydra's own section" in refused(HYDRA[attack])


@pytest.mark.parametrize("odd", ODD)
def test_whatever_is_not_plain_is_refused(tmp_path, monkeypatch, odd):
    monkeypatch.chdir(tmp_path)
    refused(ODD[odd])
    assert not (tmp_path / "mark").exists()


@pytest.mark.parametrize("text", ["", "seed: 2", "a: {hydra: 1, b: '${seed}'}", "hydra_2: 1", "a: &a {b: 1}\nc: *a"])
def test_other_configs_pass(text):
    refuse_content(Path("x"), parse_config(text.encode(), Path("x")))
