"""Texts that Hydra's grammar can only read in quotes: file names with =, parentheses or letters beyond ASCII, notes."""

import re
import shlex

from manyheads.runner.wording import similar

_PLAIN = re.compile(r"[\w./:+-]*", re.ASCII)  # most values, which need no look at the grammar
# Not a list, a mapping or a quoted text, and neither a sweep nor text with escapes.
_TEXT = re.compile(r"""(?!\s*(?:[=\[{'"]|$))[^,\\]*""")
_CALL = re.compile(r"\s*([A-Za-z_][\w-]*)\s*\((?:.*\)|[^)]*)\s*")


def quoted(value: object) -> str:
    """A value quoted so that Hydra takes it literally, with any characters of a folder's name."""
    return "'" + str(value).replace("\\", "\\\\").replace("'", "\\'") + "'"


def readable(override: str) -> str:
    """The override, with its value in quotes if Hydra cannot read it without and it can only be a text."""
    key, equals, value = override.partition("=")
    if not equals or _PLAIN.fullmatch(value) or not _is_text(value) or _is_read(override):
        return override
    in_quotes = f"{key}={quoted(value.strip())}"
    return in_quotes if _is_read(in_quotes) else override


def remedy(override: str) -> str:
    """A sentence that shows which quotes make Hydra read an override that it refused; empty if none would."""
    key, equals, value = override.partition("=")
    if value.startswith(("[", "{")):
        return " Close every bracket, and write texts with special characters in quotes, such as ['a=b', 'it\\'s']."
    typed = f"{key}={quoted(value.strip())}"
    in_shell = shlex.quote(typed) if re.search(r'["$`!]|\\\\', typed) else f'"{typed}"'
    return f" To set a text, write it in quotes: {in_shell}" if equals and _is_read(typed) else ""


def _is_text(value: str) -> bool:
    """Whether the value of an override that Hydra refuses can only be meant as a text."""
    call = _CALL.fullmatch(value)
    return bool(_TEXT.fullmatch(value)) and not (call and similar(call[1], _functions()))


def _functions() -> list[str]:
    from hydra.core.override_parser.overrides_parser import create_functions

    return list(create_functions().functions)


def _is_read(override: str) -> bool:
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        OverridesParser.create().parse_override(override)
    except HydraException:
        return False
    return True
