"""Config files that reach for Hydra's own section: each way that Hydra 1.3 has, with Hydra itself as the witness."""

import os
import re
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from manyheads.runner.config.lookup import CONF
from manyheads.runner.run.errors import ConfigurationError
from manyheads.runner.trust import config_files
from manyheads.runner.trust.config_files import read_config_file, refuse_hydra_files

EVIL = "callbacks: {evil: {_target_: os.mkdir}}"
SECTION = f"hydra: {{{EVIL}}}"
CALLBACK = "evil: {_target_: os.mkdir}"


def written(folder: Path, files: dict[str, str]) -> Path:
    """A folder ``theirs`` with these files; of text with {tmp} the folder around it."""
    for name, text in files.items():
        path = folder / "theirs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("{tmp}", str(folder)), newline="")
    return folder / "theirs"


def hydra_section(folder: Path, *overrides: str) -> dict[str, Any]:
    """What Hydra makes of its own section, of all that it does not write there itself."""
    with initialize_config_dir(str(folder), version_base="1.3"):
        composed = compose("mine", list(overrides), return_hydra_config=True)
    section: Any = OmegaConf.to_container(composed.hydra, resolve=False)
    searched = [source["path"] for source in section["runtime"]["config_sources"]]
    return {**{key: section[key] for key in section if key not in ("runtime", "overrides", "job")}, "at": searched[2:]}


# Each is a folder whose config `mine` changes Hydra's section.
ATTACKS: dict[str, dict[str, str]] = {
    "a key": {"mine.yaml": SECTION},
    "an escaped key": {"mine.yaml": f'"hy\\x64ra": {{{EVIL}}}'},
    "a key in another notation": {"mine.yaml": f"? !!str hydra\n: {{{EVIL}}}"},
    "a key that is merged in": {"mine.yaml": f"a: &a {{{SECTION}}}\n<<: *a"},
    "a document that is text, which is parsed again": {"mine.yaml": f'"{SECTION}"'},
    "a place to look for more": {"mine.yaml": "hydra: {searchpath: ['file://{tmp}']}"},
    "another file's key": {"mine.yaml": "defaults: [other]", "other.yaml": SECTION},
    "a key of a group's option": {
        "mine.yaml": "defaults: [{model: x}]",
        "model/x.yaml": f"# @package _global_\n{SECTION}",
    },
    "a header": {"mine.yaml": f"# @package hydra.callbacks\n{CALLBACK}"},
    "a header from the root": {"mine.yaml": f"# @package _global_.hydra\n{EVIL}"},
    "a header with brackets": {"mine.yaml": f"# @package hydra[callbacks]\n{CALLBACK}"},
    "a header behind another one": {"mine.yaml": f"# @a b\u2028# @package hydra\n{EVIL}"},
    "another file's header": {"mine.yaml": "defaults: [m: x]", "m/x.yaml": f"# @package hydra.callbacks\n{CALLBACK}"},
    "a package": {"mine.yaml": "defaults: [{x@hydra.callbacks: y}]", "x/y.yaml": CALLBACK},
    "a package with a keyword": {"mine.yaml": "defaults: [{optional /x@hydra.callbacks: y}]", "x/y.yaml": CALLBACK},
    "a package of several": {"mine.yaml": "defaults: [{x@hydra.callbacks: [y]}]", "x/y.yaml": CALLBACK},
    "a package of a file": {"mine.yaml": "defaults: [x/y@hydra.callbacks]", "x/y.yaml": CALLBACK},
    "a package from within another": {
        "mine.yaml": "defaults: [{model: x}]",
        "model/x.yaml": "defaults: [{/x@_global_.hydra.callbacks: y}]",
        "x/y.yaml": CALLBACK,
    },
    "an option of Hydra's": {"mine.yaml": "defaults: [{override hydra/job_logging: none}]"},
    "an option of Hydra's, from the root": {
        "mine.yaml": "defaults: [{model: x}]",
        "model/x.yaml": "defaults: [{override /hydra/job_logging@_global_.hydra.job_logging: none}]",
    },
    "an option of one's own": {
        "mine.yaml": "defaults: [{override hydra/callbacks: x}]",
        "hydra/callbacks/x.yaml": CALLBACK,
    },
    "a file instead of Hydra's": {"mine.yaml": "", "hydra/launcher/basic.yaml": "_target_: os.mkdir"},
    "a group of that name": {"mine.yaml": "defaults: [hydra/x]", "hydra/x.yaml": EVIL},
    "a group with a dot": {"mine.yaml": "defaults: [hydra.callbacks/x]", "hydra.callbacks/x.yaml": CALLBACK},
    "a group from an interpolation": {
        "mine.yaml": "defaults: [{x: hydra}, '${x}/y']",
        "x/hydra.yaml": "",
        "hydra/y.yaml": EVIL,
    },
    "a list that is an interpolation": {
        "mine.yaml": "defaults: ${more}\nmore: [_self_, {x@hydra.callbacks: y}]",
        "x/y.yaml": CALLBACK,
    },
    "a hidden folder": {"mine.yaml": "defaults: [.hidden/x@_global_]", ".hidden/x.yaml": SECTION},
    "an option in a hidden folder": {
        "mine.yaml": "defaults: [{model: .hidden/x}]",
        "model/.hidden/x.yaml": f"# @package _global_\n{SECTION}",
    },
    "a hidden folder from an interpolation": {
        "mine.yaml": "defaults: [{a: ''}, {model: '${a}.hidden/x'}]",
        "a/.yaml": "",
        "model/.hidden/x.yaml": f"# @package _global_\n{SECTION}",
    },
    "a folder beside it": {"mine.yaml": "defaults: [../beside/x@_global_]", "../beside/x.yaml": SECTION},
    "an option beside it": {
        "mine.yaml": "defaults: [{model: ../../beside/x}]",
        "../beside/x.yaml": f"# @package _global_\n{SECTION}",
    },
    "an option named by the environment": {
        "mine.yaml": "defaults: [{model: '${oc.env:BESIDE}'}]",
        "../beside/x.yaml": f"# @package _global_\n{SECTION}",
    },
    "a folder anywhere": {"mine.yaml": "defaults: [/{tmp}/beside/x@_global_]", "../beside/x.yaml": SECTION},
    "options anywhere": {"mine.yaml": "defaults: [{/@_global_: ['{tmp}/beside/x']}]", "../beside/x.yaml": SECTION},
}


@pytest.fixture(autouse=True)
def _beside(monkeypatch):
    monkeypatch.setenv("BESIDE", "../../beside/x")


@pytest.fixture(scope="module")
def untouched(tmp_path_factory) -> dict[str, Any]:
    return hydra_section(written(tmp_path_factory.mktemp("plain"), {"mine.yaml": ""}))


@pytest.mark.filterwarnings("ignore:(?s).*is validated against ConfigStore schema")
@pytest.mark.parametrize("attack", ATTACKS)
def test_each_way_into_hydras_section_is_refused(tmp_path, untouched, attack):
    folder = written(tmp_path, ATTACKS[attack])
    assert hydra_section(folder) != untouched, "no attack"
    with pytest.raises(ConfigurationError) as refused:
        refuse_hydra_files(folder)
    assert str(refused.value).isprintable()
    assert str(folder) in str(refused.value)


LINKS = {
    "to a file elsewhere": ("model/x.yaml", "{tmp}/beside/x.yaml"),
    "to a folder elsewhere": ("model", "{tmp}/beside"),
    "to a hidden folder": ("model", ".hidden"),
    "to a folder under Hydra's name": ("hydra", "callbacks"),
}


@pytest.mark.parametrize("link", LINKS)
def test_links_out_of_the_folder_are_refused(tmp_path, link):
    files = {f"{folder}/x.yaml": "a: 1" for folder in ("../beside", ".hidden", "callbacks")}
    folder = written(tmp_path, {"mine.yaml": "defaults: [{model: x}]", **files})
    name, target = LINKS[link]
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).symlink_to(target.replace("{tmp}", str(tmp_path)))
    with pytest.raises(ConfigurationError, match="Remove"):
        refuse_hydra_files(folder)


# No attack as far as is known, but no config that anybody needs.
ODD = {
    "a hidden file": {"model/.x.yaml": SECTION},
    "another case, which some file systems ignore": {"Hydra/config.yaml": ""},
    "a suffix in another case": {"mine.YAML": SECTION},
    "a key with more behind it": {"mine.yaml": "hydra.callbacks: {}"},
    "a list": {"mine.yaml": "[hydra]"},
    "an entry of two groups": {"mine.yaml": "defaults: [{model: x, data: y}]"},
    "an entry that is a number": {"mine.yaml": "defaults: [1]"},
    "an option that is a number": {"mine.yaml": "defaults: [{model: 1}]"},
    "a header of many words": {"mine.yaml": "# @package a b c"},
    "two documents": {"mine.yaml": "a: 1\n---\nb: 2"},
    "no YAML": {"mine.yaml": "a: [1"},
    "a Python object": {"mine.yaml": "a: !!python/object/apply:os.system ['touch mark']"},
    "a value that its type can't be": {"mine.yaml": "a: !!bool maybe"},
    "a key twice": {"mine.yaml": "a: 1\na: 2"},
    "a key that goes on": {"mine.yaml": '"hydra\\u200b": 1'},
    "control characters": {"mine\x1b[31m.yaml": SECTION, "x.yaml": '"hydra.\\e[31m": 1'},
}


@pytest.mark.parametrize("odd", ODD)
def test_whatever_is_not_plain_is_refused(tmp_path, odd):
    with pytest.raises(ConfigurationError) as refused:
        refuse_hydra_files(written(tmp_path, ODD[odd]))
    assert str(refused.value).isprintable()
    assert not (tmp_path / "mark").exists()


class TestLimits:
    def test_many_aliases(self, tmp_path):
        lines = ["a0: &a0 [1, 1]", *(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 60))]
        with pytest.raises(ConfigurationError, match="with its aliases expanded"):
            refuse_hydra_files(written(tmp_path, {"mine.yaml": "\n".join(lines)}))

    def test_merged_aliases(self, tmp_path):
        lines = ["a0: &a0 {x: 1}", *(f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}" for n in range(1, 60))]
        with pytest.raises(ConfigurationError, match="with its aliases expanded"):
            refuse_hydra_files(written(tmp_path, {"mine.yaml": "\n".join(lines)}))

    def test_an_alias_of_itself(self, tmp_path):
        with pytest.raises(ConfigurationError, match="with its aliases expanded"):
            refuse_hydra_files(written(tmp_path, {"mine.yaml": "a: &a [*a]"}))

    @pytest.mark.parametrize("text", ["[" * 10_000, "a: " * 10_000, "x" * 60_000, "9" * 5_000])
    def test_depth_and_length(self, tmp_path, text):
        with pytest.raises(ConfigurationError, match=r"mine\.yaml"):
            refuse_hydra_files(written(tmp_path, {"mine.yaml": text}))

    @pytest.mark.parametrize("limit", ["ENTRIES", "BYTES"])
    def test_number_and_size_of_files(self, tmp_path, monkeypatch, limit):
        monkeypatch.setattr(config_files, limit, 20)
        folder = written(tmp_path, {f"{number}.yaml": "a: 1" for number in range(21)})
        with pytest.raises(ConfigurationError, match="Name a folder that holds the configs only"):
            refuse_hydra_files(folder)

    def test_a_folder_that_cannot_be_listed(self, tmp_path, monkeypatch):
        folder = written(tmp_path, {"mine.yaml": "", "closed/x.yaml": SECTION})
        scan = os.scandir

        def refusing(path):
            if str(path).endswith("closed"):
                raise PermissionError(13, "Permission denied", str(path))
            return scan(path)

        monkeypatch.setattr(os, "scandir", refusing)  # root may list everything
        with pytest.raises(ConfigurationError, match="closed cannot be read: Permission denied"):
            refuse_hydra_files(folder)

    def test_what_is_no_file_is_not_opened(self, tmp_path):
        folder = written(tmp_path, {"mine.yaml": ""})
        os.mkfifo(folder / "pipe.yaml")
        refuse_hydra_files(folder)


def test_other_configs_pass(tmp_path):
    folder = written(
        tmp_path,
        {
            "mine.yaml": "defaults: [config, _self_, {model: hydranet}, {override /data: x/y.z}, {a@b.c: [d, e]}]\n"
            "seed: 2\nshared: &shared {a: 1}\nmodel: {hydra: 1, other: *shared}\nhydra_2: 1",
            "experiment/x.yaml": "# @package _global_\ndefaults: [{optional experiment: '${data}_quick'}, {b: '???'}]",
            "empty.yaml": "",
            ".hydra/hydra.yaml": SECTION,
            "notes.txt": SECTION,
            "run/v1.2.yaml": "a: ${seed}",
        },
    )
    (folder / "latest.yaml").symlink_to("mine.yaml")
    refuse_hydra_files(folder)


def test_the_projects_own_configs_have_no_other_fault(monkeypatch):
    """What they may do beyond anybody else's is to have Hydra's section, and to ask for the time in it."""
    monkeypatch.setattr(config_files, "_RESOLVER", re.compile("never^"))
    monkeypatch.setattr(config_files, "_leads_to_hydra", lambda name: False)
    refuse_hydra_files(CONF)


def test_a_file_is_read_as_hydra_reads_it(tmp_path):
    (tmp_path / "x.yaml").write_text("# @package a.b\nx: 1e3\ny: 2020-01-01")
    assert read_config_file(tmp_path / "x.yaml") == ({"x": 1000.0, "y": "2020-01-01"}, "a.b")
