"""The declarations that any option may make, so that no other code has to know its name."""

import inspect
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, get_origin

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.option.locate import arguments_of, call, combined, locate
from manyheads.runner.option.rules import Rule, Tunable
from manyheads.runner.option.tree import TARGET, Section

if TYPE_CHECKING:
    from manyheads.runner.option.run_config import RunConfig


class Option:
    """A section of the run config: its keys, and what is declared about them. Must not import torch.

    A key that this project's code reads is an attribute, annotated in the class without a value, since its default is
    in the option's YAML; a value in a base class is for options that do not have the key. ``section``: all keys,
    including those of an option without declarations; if the option is only inspected, the defaults of its YAML.

    Class attributes declare what the class adds to its bases. ``rules``: allowed values of its keys, and of
    what kind they are, since somebody else's config may set no text whose kind is not declared. ``derived``: keys that
    ``resolved`` derives from others. ``without_effect``: keys that cannot change a run's results. ``tunable``: keys
    that only change how the same updates are computed, and values worth trying. ``leaves``: files and folders that it
    writes into a run's folder, by their names there. ``has_own_class``: no other option has the same class, so that its
    name identifies the code. ``imports``: slow modules that its ranks need beside that of the class.
    """

    group: ClassVar[str]
    rules: ClassVar[Mapping[str, Rule]] = {}
    derived: ClassVar[tuple[str, ...]] = ()
    without_effect: ClassVar[tuple[str, ...]] = ()
    tunable: ClassVar[Mapping[str, Tunable]] = {}
    leaves: ClassVar[tuple[str, ...]] = ()
    has_own_class: ClassVar[bool] = False
    imports: ClassVar[tuple[str, ...]] = ()
    fields: ClassVar[frozenset[str]] = frozenset({"name"})  # the keys that are attributes
    name: str

    def __init_subclass__(cls) -> None:
        annotations = inspect.get_annotations(cls).items()
        cls.fields = cls.fields.union(name for name, kind in annotations if ClassVar not in (kind, get_origin(kind)))

    def __init__(self, section: Section, *, key: str | None = None):
        """``key``: of the section, such as ``logger.tensorboard``; None for that of the group."""
        self.section: Section = MappingProxyType(dict(section))
        self.key = key or self.group
        vars(self).update((name, section[name]) for name in self.fields if name in section)

    def __getattr__(self, name: str) -> Any:
        if name in self.fields:
            key = f"{self.key}.{name}"
            raise ConfigurationError(f"{key} is not set, and this option has no default for it. Set it.", key=key)
        raise AttributeError(f"{type(self).__name__} has no attribute {name}")

    @property
    def target(self) -> str:
        """The dotted name of the class that runs in the ranks, or of the launcher."""
        return self.section[TARGET]

    @property
    def kind(self) -> Any:
        """The class, or function, that ``target`` names. Raises ConfigurationError if there is none."""
        return locate(self.key, self.target)

    def arguments(self, *without: str) -> dict[str, Any]:
        """The keys that are arguments of the class, except ``name`` and ``without``; objects are instantiated."""
        return arguments_of(self.key, self.section, without=("name", *without))

    def instantiate(self, /, *arguments: Any, **given: Any) -> Any:
        """An object of the class, called with these arguments and its keys. Raises ConfigurationError."""
        options = combined(self.key, self.arguments(), given)
        return call(self.key, self.target, self.kind, *arguments, **options)

    def unavailable(self) -> str | None:
        """Why the option cannot run on this machine, and how to get it; None if it can."""
        return None

    def note(self) -> str:
        """The doctor's note on the option if it can run; may be empty."""
        return ""

    def installed(self) -> dict[str, str]:
        """By name, the libraries that the option is built on, as the doctor describes them; without torch's own."""
        return {}

    def versions(self) -> dict[str, str | None]:
        """By name, the versions of these libraries for provenance.json; None for one that is not installed."""
        return {}

    def resolved(self, run: "RunConfig") -> "RunConfig":
        """The run config with this section's ``auto`` values and relative paths resolved.

        ``run``: with device and number of ranks already resolved. Raises ConfigurationError.
        """
        keys = self.resolved_keys()
        return run.changed(**{self.group: keys}) if keys else run

    def resolved_keys(self) -> Section:
        """Keys of this section with the values that they are resolved to, whatever the other sections say."""
        return {}

    def check_keys(self) -> None:
        """Refuse keys of this section that contradict each other, or name what does not exist; all are resolved.

        Raises ConfigurationError, or Unavailable for valid settings that this machine cannot run.
        """

    def check_run(self, run: "RunConfig") -> None:
        """Refuse other sections of a resolved config that this one does not work with.

        Raises ConfigurationError, or Unavailable for valid settings that this machine cannot run.
        """

    @classmethod
    def all_rules(cls) -> dict[str, Rule]:
        """The rules of the class and its bases, by key."""
        return {key: rule for kind in reversed(cls.__mro__) for key, rule in vars(kind).get("rules", {}).items()}

    @classmethod
    def all_tunable(cls) -> dict[str, Tunable]:
        """The ``tunable`` keys of the class and its bases."""
        return {key: rule for kind in reversed(cls.__mro__) for key, rule in vars(kind).get("tunable", {}).items()}

    @classmethod
    def every(cls, attribute: str) -> set[str]:
        """The names in ``derived``, ``without_effect`` or ``leaves`` of the class and its bases."""
        return {key for kind in cls.__mro__ for key in vars(kind).get(attribute, ())}
