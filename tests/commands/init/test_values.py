"""What expressions of a script are worth, read without running it."""

import ast
from pathlib import Path

import pytest

from manyheads.runner.commands.init.values import Computed, Values

PARSER = "p = argparse.ArgumentParser()\np.add_argument({})\nargs = p.parse_args()\n"
RESOLVED = {  # the last expression statement of each is the one that is asked for
    "3e-4": 3e-4,
    "-0.5": -0.5,
    "(0.9, 0.95)": [0.9, 0.95],
    "24 * 7": 168,
    "RATE = 0.1\nRATE": 0.1,
    "def f(lr=0.1):\n    lr": 0.1,
    "def f(lr=0.1):\n    lr\nf(lr=0.2)": 0.2,
    "def f(lr):\n    lr\nf(0.2)\nf(0.2)": 0.2,
    "class A:\n    def __init__(self, lr):\n        self.lr = lr\n    def g(self):\n        self.lr\nA(0.3)": 0.3,
    "class Config:\n    lr = 0.4\nConfig.lr": 0.4,
    "class Settings:\n    lr: float = 0.4\ncfg = Settings()\ncfg.lr": 0.4,
    PARSER.format('"--lr", type=float, default=0.1') + "args.lr": 0.1,
    PARSER.format('"--lr", type=float, default="1e-3"') + "args.lr": 1e-3,
    PARSER.format('"-b", "--batch-size", default=8') + "args.batch_size": 8,
    PARSER.format('"--rate", dest="lr", default=8') + "args.lr": 8,
    PARSER.format('"-epoch", default=8') + "args.epoch": 8,
    PARSER.format('"--amp", action="store_true"') + "args.amp": False,
    PARSER.format('"--resume", type=str') + "start = 0\nif args.resume:\n    start = load(args.resume)\nstart": 0,
    PARSER.format('"--lr", default=0.1') + "args.lr = 0.2\nargs.lr": 0.2,
    PARSER.format('"--width", default=8') + "args.depth = args.width\nargs.depth": 8,
    PARSER.format('"--width", default=8') + "def main(opt):\n    opt.width\nmain(args)": 8,
    '@click.option("--lr", default=0.1)\ndef main(lr):\n    args.lr': 0.1,
    PARSER.format('"--kind", default="a"') + 'x = 1 if args.kind == "a" else 2\nx': 1,
    PARSER.format('"--kind", default="a"') + 'if args.kind == "b":\n    x = 1\nelse:\n    x = 2\nx': 2,
}
COMPUTED = {
    "f()",
    "x = 1\nx = 2\nx",
    "x = x + 1\nx",
    "def f(lr):\n    lr\nf(0.1)\nf(0.2)",
    "def f(lr):\n    lr",
    "for x in (1, 2):\n    pass\nx",
    PARSER.format('"--lr", default=0.1') + "args.lr = args.lr * world_size\nargs.lr",
    PARSER.format('"--lr", type=float, required=True') + "args.lr",
    PARSER.format('"--lr", default=0.1') + "if big:\n    args.lr = 0.2\nargs.lr",
    "1 / 0",
    "'a' * 3",
    "a = b\nb = a\na",
}


def last_of(text: str) -> tuple[Values, ast.expr]:
    tree = ast.parse(text)
    expressions = [
        node for node in ast.walk(tree) if isinstance(node, ast.Expr) and "add_argument" not in ast.unparse(node)
    ]
    names = [node for node in expressions if not isinstance(node.value, ast.Call)] or expressions
    return Values({Path("/s.py"): tree}), names[-1].value


@pytest.mark.parametrize("text", RESOLVED)
def test_what_is_known_before_the_script_runs(text):
    values, expression = last_of(text)
    assert values.value(expression) == RESOLVED[text]


@pytest.mark.parametrize("text", sorted(COMPUTED))
def test_what_only_the_running_script_knows(text):
    values, expression = last_of(text)
    with pytest.raises(Computed):
        values.value(expression)
    assert values.plain(expression) is None


def test_a_constant_of_an_imported_file():
    trees = {
        Path("/r/s.py"): "import config\nfrom config import B\n(config.A, B)",
        Path("/r/config.py"): "A = 1\nB = 2",
    }
    parsed = {path: ast.parse(text) for path, text in trees.items()}
    assert Values(parsed).value(parsed[Path("/r/s.py")].body[-1].value) == [1, 2]


def test_nesting_without_end_is_computed():
    values, _ = last_of("1")
    expression = ast.parse("1").body[0].value
    for _ in range(5000):
        expression = ast.UnaryOp(ast.USub(), expression)
    with pytest.raises(Computed):
        values.value(expression)
