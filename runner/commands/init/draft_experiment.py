"""``manyheads init``: drafts an experiment for the model and the data of an existing repository."""

import sys
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from manyheads.runner.commands.init.repository import FoundClass, FoundOptimizer, Repository, explore
from manyheads.runner.config.config_schema import SCHEMA, schema_of_files
from manyheads.runner.config.lookup import options, read_option
from manyheads.runner.config.project import conf_of
from manyheads.runner.errors import ConfigurationError, printable
from manyheads.runner.machine import invocation
from manyheads.runner.run import yaml_text
from manyheads.runner.run.progress import working
from manyheads.runner.wording import nearest

Values = dict[str, object]
OWN = "custom"
AUTOMATIC = ("num_classes",)  # arguments that a run passes by itself if the class takes them
SPLIT = "manyheads_data.py"
MOST_SHOWN = 12
TODO = "# TODO: give each split its own samples; it is train, val or test"
SETTINGS = (
    "The script's settings are not read, except its optimizer: set data.batch_size, trainer.epochs, ..., also what it "
    "leaves at torch's defaults, which differ: data.drop_last=false, and scheduler=constant without a schedule."
)
# What a script leaves at torch's defaults, where those of the option are others.
TORCHS_OWN: dict[str, Values] = {"SGD": {"momentum": 0, "weight_decay": 0}}


@dataclass(frozen=True)
class Draft:
    """A drafted experiment. ``files``: the texts to write, by path; ``notes``: what is left to do."""

    name: str
    files: dict[Path, str]
    notes: tuple[str, ...]


def find(folder: Path) -> Repository:
    """The models, data sets and scripts of the repository. Raises ConfigurationError if there is no model."""
    with working("reading the repository"):
        repository = explore(folder)
    if not repository.models:
        raise ConfigurationError(f"{folder}: no file below it defines a torch.nn.Module. Name the folder of your code.")
    for path in repository.scripts:
        print(f"training script: {printable(path.relative_to(folder))}")
    return repository


def named(classes: list[FoundClass], folder: Path) -> dict[str, FoundClass]:
    """The classes by file.py:Class, as --model and --data take them."""
    return {f"{cls.path.relative_to(folder)}:{cls.name}": cls for cls in classes}


def draft(folder: Path, repository: Repository, *, model: str | None = None, data: str | None = None) -> Draft:
    """Draft an experiment for a model and a data set; ask on the terminal which, if there are several.

    folder: of the repository. model, data: as typed, file.py:Class; data may be "none". Raises ConfigurationError if a
    class or a file does not fit, or if there is no terminal to ask on.
    """
    net = _choose("model", repository.models, folder, typed=model)
    assert net is not None
    samples = (
        None
        if data == "none" or not repository.data_sets
        else _choose("data", repository.data_sets, folder, typed=data)
    )
    return _draft(folder, repository, net, samples)


def _choose(what: str, classes: list[FoundClass], folder: Path, *, typed: str | None) -> FoundClass | None:
    names = named(classes, folder)
    if typed is not None:
        if typed not in names:
            rest = f": there is no such class.{nearest(typed, names)}"
            raise ConfigurationError.at(f"--{what}", typed, rest, allowed=[*names])
        return names[typed]
    if len(classes) == 1:
        return classes[0]
    print(f"\n{what}:")
    for number, (name, cls) in enumerate([*names.items()][:MOST_SHOWN], 1):
        print(f"  {number}  {printable(name)}({', '.join(map(printable, cls.arguments))})")
    if len(names) > MOST_SHOWN:
        print(f"  ... and {len(names) - MOST_SHOWN} more: --{what} file.py:Class")
    if what == "data":
        print("  0  none of them: one of manyheads' data sets, or a class that you will write")
    answer = _answer(f"Which {what}? [1] ", what, names)
    if answer == "0" and what == "data":
        return None
    if not answer.isdecimal() or not 1 <= int(answer) <= len(classes):
        raise ConfigurationError(f"{answer} is not one of the numbers above.")
    return classes[int(answer) - 1]


def _answer(question: str, what: str, names: Iterable[str]) -> str:
    """The typed answer, or 1 if it is empty. Raises ConfigurationError without a terminal, and for Ctrl-D."""
    why = "there is no terminal to ask on"
    if sys.stdin.isatty():
        try:
            return input(question).strip() or "1"
        except EOFError:
            print()
            why = "nothing was chosen"
    raise ConfigurationError(f"{why}. Choose with --{what} file.py:Class.", key=f"--{what}", allowed=[*names])


def _draft(folder: Path, repository: Repository, net: FoundClass, samples: FoundClass | None) -> Draft:
    conf, name = conf_of(folder) or folder / "conf", net.name.lower()
    notes = [SETTINGS] if repository.scripts else []
    groups: Values = {"model": _section(net, folder, repository, without=AUTOMATIC)}
    files: dict[Path, str] = {}
    if samples is not None:
        target, written = _data(samples, folder)
        files |= written
        if (content := written.get(folder / SPLIT)) and TODO in content:
            notes.append(f"Every split has all samples: let data() in {SPLIT} return those of its argument split.")
        groups["data"] = {
            **_section(samples, folder, repository, without=("split", "train")),
            "_target_": target,
            "batch_size": 64,
        }
    overrides: list[Values] = [{f"override /{group}": OWN} for group in groups]
    if net.has_own_loss:
        overrides.append({"override /task": "own_loss"})
    option, keys, note = _optimizer(repository.optimizers)
    if option is not None:
        overrides.append({"override /optimizer": option})
        groups |= {"optimizer": keys} if keys else {}
    notes += [note] if note is not None and repository.scripts else []
    config = {"defaults": overrides, **groups, "trainer": {"epochs": 10}}
    remarks = "".join(f"# {line}\n" for line in textwrap.wrap(SETTINGS, 118)) if repository.scripts else ""
    text = f"# @package _global_\n# yaml-language-server: $schema=../{SCHEMA}\n{remarks}{yaml_text.dump(config)}"
    path = conf / "experiment" / f"{name}.yaml"
    for file in (path, *files):
        if file.exists():
            raise ConfigurationError(f"{file} already exists. Edit it, or remove it first.")
    notes += [
        f"Importing {cls.path.relative_to(folder)} runs its script: move {cls.name} to another file, and name that."
        for cls in (net, samples)
        if cls is not None and not cls.is_importable
    ]
    if missing := _missing(groups):
        notes.append(f"Replace ??? above: {', '.join(missing)}.")
    if samples is None:
        notes.append("Choose the data: data=text data.root=..., data=imagefolder ..., or data=my_data.py:MyData.")
    if not (conf / SCHEMA).exists():
        files[conf / SCHEMA] = schema_of_files(conf)
    return Draft(name, {path: text, **files}, tuple(notes))


def _section(cls: FoundClass, folder: Path, repository: Repository, *, without: tuple[str, ...]) -> Values:
    """The config section of a class: its required arguments, and the values that a training script passes."""
    section: Values = {"_target_": f"{cls.path.relative_to(folder)}:{cls.name}"}
    for argument in cls.arguments:
        if argument in without:
            continue
        if argument in cls.given:
            section[argument] = cls.given[argument]
        elif argument in cls.required:
            config = next((candidate for candidate in repository.configs if candidate.path == cls.path), None)
            takes_config = config is not None and "conf" in argument.lower()
            section[argument] = _section(config, folder, repository, without=()) if takes_config and config else "???"
    return section


def _optimizer(optimizers: list[FoundOptimizer]) -> tuple[str | None, Values, str | None]:
    """The option of the script's optimizer, its keys as the script sets them, and what is left to say."""
    names = sorted({optimizer.name for optimizer in optimizers})
    if len(names) != 1:
        reason = (
            f"The scripts create several optimizers ({', '.join(names)})"
            if names
            else "No optimizer of torch was found"
        )
        return None, {}, f"{reason}: set optimizer=, which is sgd by default, and its keys."
    target = f"torch.optim.{names[0]}"
    option = next(
        (option for option in options("optimizer") if read_option("optimizer", option)["_target_"] == target), None
    )
    keys: Values = {**TORCHS_OWN.get(names[0], {})} if option else {"_target_": target}
    option = option or OWN
    first = optimizers[0]
    if any(optimizer != first for optimizer in optimizers):
        return option, keys, f"The scripts create {names[0]} with different arguments: set optimizer.lr, ..."
    keys |= {key: value for key, value in first.given.items() if key != "params"}
    computed = [f"{key} ({printable(text)})" for key, text in first.others.items() if key != "params"]
    if computed:
        them = "it" if len(computed) == 1 else "them"
        return option, keys, f"The script computes its optimizer's {', '.join(computed)}: set {them} under optimizer."
    missing = f"The script leaves the learning rate of {names[0]} at torch's default: set optimizer.lr."
    return option, keys, None if "lr" in keys else missing


def _data(samples: FoundClass, folder: Path) -> tuple[str, dict[Path, str]]:
    """The target of the data set. If its class has no argument ``split``, that is a function in a file to write."""
    if "split" in samples.arguments:
        return f"{samples.path.relative_to(folder)}:{samples.name}", {}
    module = ".".join(samples.path.relative_to(folder).with_suffix("").parts)
    head = f"from {module} import {samples.name}\n\n\ndef data(split, **options):"
    if "train" in samples.arguments:
        body = '    if split not in ("train", "val"):\n        raise ValueError(split)\n'
        content = f'{head}\n{body}    return {samples.name}(**options, train=split == "train")\n'
    else:
        content = f"{head}  {TODO}\n    return {samples.name}(**options)\n"
    return f"{SPLIT}:data", {folder / SPLIT: content}


def _missing(section: Values, key: str = "") -> list[str]:
    return [
        inner
        for name, value in section.items()
        for inner in (_missing(value, f"{key}{name}.") if isinstance(value, dict) else [key + name] * (value == "???"))
    ]


def commands(drafted: Draft) -> list[str]:
    """Three commands to try the experiment."""
    experiment = f"experiment={drafted.name}"
    return [
        invocation.command("train", experiment, "trainer.max_steps=20"),
        invocation.command("train", experiment, "parallel=ddp"),
        invocation.command("parity", experiment, "parallel=ddp"),
    ]
