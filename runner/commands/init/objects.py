"""The sections of the objects that a training script creates: classes, and what it passes to them."""

import ast

from manyheads.runner.commands.init.found_class import FoundClass
from manyheads.runner.commands.init.repository import Repository
from manyheads.runner.commands.init.script import Script, last_name
from manyheads.runner.commands.init.sections import MISSING, Keys
from manyheads.runner.commands.init.values import Values

AUTOMATIC = ("num_classes",)  # arguments that a run passes by itself if the class takes them


class Objects:
    """Writes sections for classes of a repository. script: None if none was found."""

    def __init__(self, repository: Repository, script: Script | None) -> None:
        self._repository, self._script = repository, script

    def section(self, cls: FoundClass, *, without: tuple[str, ...]) -> Keys:
        """The config section of a class: its required arguments, and the values that a training script passes."""
        section: Keys = {"_target_": self.target(cls)}
        for argument in cls.arguments:
            if argument in without:
                continue
            if argument in cls.given:
                section[argument] = cls.given[argument]
            elif (created := self._created(cls, argument)) is not None:
                section[argument] = created
            elif argument in cls.required:
                config = next((one for one in self._repository.configs if one.path == cls.path), None)
                takes_config = config is not None and "conf" in argument.lower()
                section[argument] = self.section(config, without=()) if takes_config and config else MISSING
        return section

    def _created(self, cls: FoundClass, argument: str) -> Keys | None:
        """The section for an object that the script passes to a class, if it is created from plain values."""
        expression = cls.computed.get(argument)
        if self._script is None or expression is None:
            return None
        values = self._script.values
        if isinstance(expression, ast.Name) and len(sources := values.expressions(expression)) == 1:
            expression = sources[0]
        if not isinstance(expression, ast.Call):
            return None
        if last_name(expression) in ("parse_args", "get_args"):
            names = sorted(cls.attributes_of(argument))
            return {
                "_target_": "types.SimpleNamespace",
                **{name: values.arguments.get(name, MISSING) for name in names},
            }
        return self._object(values, expression)

    def _object(self, values: Values, expression: ast.Call) -> Keys | None:
        assert self._script is not None
        cls = self._repository.class_of(self._script, expression)
        target = self.target(cls) if cls is not None else values.full_name(expression.func)
        passed = values.passed(expression, cls.arguments if cls is not None else [])
        plain = {name: values.plain(value) for name, value in passed.items()}
        if not target or None in plain.values() or len(passed) < len(expression.args) + len(expression.keywords):
            return None
        return {"_target_": target, **plain}

    def target(self, cls: FoundClass) -> str:
        return self._repository.imports.target(cls.path, cls.name)

    def computed(self, cls: FoundClass, group: str) -> tuple[str, ...]:
        """What the script passes to a class that is not plain."""
        if self._script is None:
            return ()
        return tuple(
            f"{group}.{name}: the script passes {self._script.values.described(value)}."
            for name, value in cls.computed.items()
            if name not in cls.given and name not in (*AUTOMATIC, "split", "train") and self._created(cls, name) is None
        )
