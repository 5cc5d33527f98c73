"""``manyheads init``: drafts an experiment for the model and the data of an existing repository."""

import textwrap
from dataclasses import dataclass
from pathlib import Path

from manyheads.runner.commands.init import data_function, sections
from manyheads.runner.commands.init.choices import choose, named
from manyheads.runner.commands.init.found_class import FoundClass
from manyheads.runner.commands.init.objects import AUTOMATIC, Objects
from manyheads.runner.commands.init.repository import Repository, explore
from manyheads.runner.commands.init.script import Script
from manyheads.runner.commands.init.sections import MISSING, OWN, Keys, Section
from manyheads.runner.commands.init.task_section import task
from manyheads.runner.config.config_schema import SCHEMA, schema_of_files
from manyheads.runner.config.project import conf_of
from manyheads.runner.errors import ConfigurationError, printable
from manyheads.runner.machine import invocation
from manyheads.runner.run import yaml_text
from manyheads.runner.run.progress import working
from manyheads.runner.wording import tell

SPLIT = "manyheads_data.py"


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
    for path, reason in repository.unread.items():
        tell(f"not read: {printable(path.relative_to(folder))}, {printable(reason)}")
    if not repository.models:
        raise ConfigurationError(f"{folder}: no file below it defines a torch.nn.Module. Name the folder of your code.")
    return repository


def draft(
    repository: Repository, *, script: str | None = None, model: str | None = None, data: str | None = None
) -> Draft:
    """Draft an experiment for a script, a model and a data set; ask on the terminal which, if there are several.

    script: as typed, file.py. model, data: file.py:Class; data may be "none". Raises ConfigurationError if a class or a
    file does not fit, or if there is no terminal to ask on.
    """
    folder = repository.folder
    scripts = {str(path.relative_to(folder)): path for path in repository.scripts}
    path = choose("script", {name: name for name in scripts}, typed=script) if script or scripts else None
    read = repository.read(scripts[path])[0] if path is not None else None
    models = named(repository.models, folder)
    data_sets = named([one for one in repository.data_sets if data or read is None or one.uses > 0], folder)
    net = choose("model", _signatures(models), typed=model)
    assert net is not None
    samples = None if data == "none" or not data_sets else choose("data", _signatures(data_sets), typed=data)
    return _Drafting(repository, read, models[net], data_sets[samples] if samples is not None else None).draft()


def _signatures(classes: dict[str, FoundClass]) -> dict[str, str]:
    return {name: f"{name}({', '.join(cls.arguments)})" for name, cls in classes.items()}


class _Drafting:
    """Drafts the experiment for one model. script: None if none was found; samples: None if the user chose none."""

    def __init__(
        self, repository: Repository, script: Script | None, net: FoundClass, samples: FoundClass | None
    ) -> None:
        self._repository, self._script, self._net, self._samples = repository, script, net, samples
        self._folder = repository.folder
        self._objects = Objects(repository, script)
        self._files: dict[Path, str] = {}

    def draft(self) -> Draft:
        """The files, and what is left to do. Raises ConfigurationError if one of the files exists."""
        conf, name = conf_of(self._folder) or self._folder / "conf", self._net.name.lower()
        parts = self._sections()
        remarks = [remark for part in parts for remark in part.remarks]
        notes = [*self._origin(), *remarks, *self._also_called(), *self._obstacles()]
        config = _config(parts)
        if missing := _missing({key: value for key, value in config.items() if key != "defaults"}):
            notes.append(f"Replace {MISSING}: {', '.join(missing)}.")
        head = "".join(
            f"{line}\n"
            for note in notes
            for line in textwrap.wrap(printable(note), 118, initial_indent="# ", subsequent_indent="#   ")
        )
        text = f"# @package _global_\n# yaml-language-server: $schema=../{SCHEMA}\n{head}{yaml_text.dump(config)}"
        files = {conf / "experiment" / f"{name}.yaml": text, **self._files}
        for file in files:
            if file.exists():
                raise ConfigurationError(f"{file} already exists. Edit it, or remove it first.")
        if not (conf / SCHEMA).exists():
            files[conf / SCHEMA] = schema_of_files(conf)
        return Draft(name, files, tuple(notes))

    def _sections(self) -> list[Section]:
        script = self._script
        model = Section(
            "model",
            OWN,
            self._objects.section(self._net, without=AUTOMATIC),
            self._objects.computed(self._net, "model"),
        )
        parts = [model, self._data(), task(script, self._repository, self._net)]
        if script is not None:
            parts += [sections.optimizer(script), sections.scheduler(script)]
            if parts[3].option == "several":
                parts[0] = Section("model", OWN, {}, ())
                parts[2] = Section("task", OWN)
        return [*parts, sections.trainer(script)]

    def _data(self) -> Section:
        keys, remarks = sections.loading(self._script)
        if self._samples is None:
            library = self._library_data()
            return library._replace(keys={**library.keys, **keys}, remarks=(*library.remarks, *remarks))
        target = self._objects.target(self._samples)
        if "split" not in self._samples.arguments:
            self._files[self._folder / SPLIT] = data_function.of_class(self._samples, self._folder)
            target = f"{SPLIT}:data"
            if "train" not in self._samples.arguments:
                advice = f"Every split has all samples: let data() in {SPLIT} return those of its argument split."
                remarks = (advice, *remarks)
        section = {**self._objects.section(self._samples, without=("split", "train")), "_target_": target}
        if "IterableDataset" in self._samples.bases:
            section["order"] = "stream"
        return Section("data", OWN, section | keys, (*self._objects.computed(self._samples, "data"), *remarks))

    def _library_data(self) -> Section:
        """Data of torchvision that the script creates, with their file, or else what is left to do."""
        names = data_function.torchvision_names(self._script) if self._script is not None else []
        if self._script is None or not names:
            advice = "Choose the data: data=text data.root=..., data=imagefolder ..., or data=my_data.py:MyData."
            return Section("data", OWN, remarks=(advice,))
        if (text := data_function.of_torchvision(self._script, self._folder)) is None:
            them = " or ".join(names)
            advice = f"The script's data are torchvision's {them}: write a class that returns those of a split."
            return Section("data", OWN, remarks=(advice,))
        self._files[self._folder / SPLIT] = text
        return Section("data", OWN, {"_target_": f"{SPLIT}:data"})

    def _origin(self) -> list[str]:
        if self._script is None:
            return ["No training script was found: these settings are not those of the repository."]
        others = len(self._repository.scripts) - 1
        rest = f", one of {others + 1} training scripts" if others else ""
        return [f"Read from {self._script.path.relative_to(self._folder)}{rest}, which was not run."]

    def _classes(self) -> list[FoundClass]:
        """The data set, and the model, or all models that have an optimizer, in the order in which they are found."""
        models = [cls for cls in self._repository.models if cls is self._net or cls.is_optimized]
        return [*models, *filter(None, [self._samples])]

    def _also_called(self) -> list[str]:
        """What the script does to models and data besides training, which a run does not."""
        if self._script is None:
            return []
        calls = [call for cls in self._classes() for call in self._repository.also_called(self._script, cls)]
        return [f"The script also calls {printable(call)}, which a run does not." for call in calls]

    def _obstacles(self) -> list[str]:
        """What keeps the classes from being imported."""
        notes = []
        for cls in self._classes():
            file = cls.path.relative_to(self._folder)
            if not cls.is_importable:
                notes.append(f"Importing {file} runs its script: move {cls.name} to another file, and name that.")
            if missing := self._repository.imports.missing(cls.path):
                notes.append(f"{file} needs packages that are not installed: {', '.join(missing)}.")
            if hidden := self._repository.imports.hidden(cls.path):
                notes.append(f"{file} needs {', '.join(hidden)} of this folder, which an installed package hides.")
        return notes


def _config(parts: list[Section]) -> Keys:
    """The experiment: its defaults list, in which Hydra needs overrides last, and the keys of all sections."""
    overrides = [{f"override /{part.group}": part.option} for part in parts if part.option is not None]
    also = {key: value for part in parts for key, value in part.also.items()}
    added = [{key: value} for key, value in also.items() if key.startswith("/")]
    config: Keys = {"defaults": [*added, *overrides]}
    config |= {part.group: dict(part.keys) for part in parts if part.keys}
    return config | {key: value for key, value in also.items() if not key.startswith("/")}


def _missing(section: Keys, key: str = "") -> list[str]:
    return [
        inner
        for name, value in section.items()
        for inner in (
            _missing(value, f"{key}{name}.") if isinstance(value, dict) else [key + name] * (value == MISSING)
        )
    ]


def commands(drafted: Draft) -> list[str]:
    """Three commands to try the experiment."""
    experiment = f"experiment={drafted.name}"
    return [
        invocation.command("train", experiment, "trainer.max_steps=20"),
        invocation.command("train", experiment, "parallel=ddp"),
        invocation.command("parity", experiment, "parallel=ddp"),
    ]
