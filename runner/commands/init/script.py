"""What a training script sets: optimizer, schedule, loss, batches and length, read without running it."""

import ast
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from manyheads.runner.commands.init.values import Plain, Values

LENGTHS = {
    "epochs": (
        "epochs",
        "n_epochs",
        "num_epochs",
        "max_epochs",
        "epoch",
        "n_epoch",
        "num_epoch",
        "max_epoch",
        "nepoch",
    ),
    "max_steps": ("max_steps", "num_steps", "train_steps", "num_train_steps", "max_iters", "num_iters", "iterations"),
}
FUNCTIONS = {  # of torch.nn.functional that are losses, and their classes
    "cross_entropy": "CrossEntropyLoss",
    "nll_loss": "NLLLoss",
    "mse_loss": "MSELoss",
    "l1_loss": "L1Loss",
    "smooth_l1_loss": "SmoothL1Loss",
    "huber_loss": "HuberLoss",
    "binary_cross_entropy_with_logits": "BCEWithLogitsLoss",
    "binary_cross_entropy": "BCELoss",
    "kl_div": "KLDivLoss",
}


class FoundCall(NamedTuple):
    """A call of a class of a library.

    ``given``: its plain arguments; ``others``: the text of those that are not; ``variable``: what it is assigned to;
    ``subject``: the object whose parameters an optimizer gets.
    """

    name: str
    given: dict[str, Plain]
    others: dict[str, str]
    variable: str = ""
    subject: str = ""


class Script:
    """A training script. trees: of the script and of the files that it imports, by path; its own first."""

    def __init__(self, path: Path, trees: Mapping[Path, ast.Module]) -> None:
        self.path, self.files = path, [*trees]
        self.values = Values(trees)
        self._trees = trees
        self._nodes = [node for tree in trees.values() for node in self.values.live(tree)]
        self.calls = [node for node in self._nodes if isinstance(node, ast.Call)]

    @cached_property
    def optimizers(self) -> list[FoundCall]:
        """The optimizers of torch that it creates."""
        return self._of_torch("torch.optim", ["params", "lr"])

    @cached_property
    def schedulers(self) -> list[FoundCall]:
        """The schedules of torch that it creates."""
        return self._of_torch("torch.optim.lr_scheduler", ["optimizer"])

    @cached_property
    def loader(self) -> ast.Call | None:
        """The DataLoader of the training samples: the first that shuffles or samples, otherwise the first."""
        loaders = [call for call in self.calls if last_name(call) in ("DataLoader", "BucketIterator")]
        words = [{word.arg: word.value for word in call.keywords} for call in loaders]
        drawn = [
            call
            for call, given in zip(loaders, words, strict=True)
            if self.values.plain(given.get("shuffle")) or {"sampler", "batch_sampler"} & given.keys()
        ]
        return next(iter(drawn or loaders), None)

    def loads(self, argument: str) -> tuple[Plain | None, str]:
        """An argument of the loader of the training samples: its value, and its text; None and empty without it."""
        names = ["dataset", "batch_size", "shuffle", "sampler", "batch_sampler"]
        expression = self.values.passed(self.loader, names).get(argument) if self.loader is not None else None
        return self.values.plain(expression), self.values.described(expression) if expression is not None else ""

    @cached_property
    def divides(self) -> bool:
        """Whether it divides the samples among ranks itself."""
        return any(last_name(call) == "DistributedSampler" for call in self.calls)

    @cached_property
    def batch_size(self) -> tuple[Plain | None, str]:
        """Its batch size: the value, if it is plain, and the text."""
        value, text = self.loads("batch_size")
        if not text:
            value = self._argument("batch_size", "batchsize", "bs", "train_batch_size")
        return (value, text) if isinstance(value, int) and not isinstance(value, bool) else (None, text)

    @cached_property
    def length(self) -> tuple[str, Plain | None, str]:
        """The key of trainer for its length, the value if it is plain, and the text."""
        text = ""
        for loop in self._nodes:
            if not isinstance(loop, ast.For) or not isinstance(loop.iter, ast.Call) or last_name(loop.iter) != "range":
                continue
            bounds = loop.iter.args[:2]
            if "epoch" not in f"{ast.unparse(loop.target)} {ast.unparse(loop.iter)}".lower():
                continue
            numbers = [value for value in map(self.values.plain, bounds) if isinstance(value, int)]
            if len(numbers) < len(bounds):
                text = text or ast.unparse(loop.iter)
            elif (length := numbers[-1] - sum(numbers[:-1])) > 0:
                return "epochs", length, text
        for key, names in LENGTHS.items():
            if not text and (value := self._argument(*names)) is not None:
                return key, value, ""
        return "epochs", None, text

    @cached_property
    def clip_norm(self) -> tuple[Plain | None, str]:
        """The largest norm of its gradients: the value if it is plain, and the text."""
        for call in self.calls:
            if last_name(call) in ("clip_grad_norm_", "clip_grad_norm"):
                expression = self.values.passed(call, ["parameters", "max_norm"]).get("max_norm")
                return self.values.plain(expression), ast.unparse(expression) if expression is not None else "?"
        return None, ""

    @cached_property
    def seed(self) -> int | None:
        """The seed of its random numbers."""
        for call in self.calls:
            if last_name(call) in ("manual_seed", "seed_everything", "set_seed") and call.args:
                value = self.values.plain(call.args[0])
                return value if isinstance(value, int) else None
        return None

    @cached_property
    def sets_lr(self) -> bool:
        """Whether it sets the learning rate of groups of parameters itself."""
        stores = (node for node in self._nodes if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store))
        return any(isinstance(node.slice, ast.Constant) and node.slice.value == "lr" for node in stores)

    @cached_property
    def losses(self) -> list[ast.expr | None]:
        """The expressions of the losses whose gradients it computes; None for what isn't one."""
        losses: list[ast.expr | None] = []
        for call in self.calls:
            if last_name(call) != "backward":
                continue
            owner = call.func.value if isinstance(call.func, ast.Attribute) else call
            for name in (*call.args, owner, *(owner.args if isinstance(owner, ast.Call) else ())):
                if isinstance(name, ast.Name):
                    expressions = self.values.expressions(name)
                    losses += [one for one in expressions if one is None or not _is_scaled(one, name.id)]
                    break
        return [*{ast.unparse(one) if one is not None else "": one for one in losses}.values()]

    def torch_loss(self, call: ast.expr | None) -> FoundCall | None:
        """The loss of torch that an expression is, alone."""
        if not isinstance(call, ast.Call):
            return None
        if (name := last_name(call)) in FUNCTIONS:
            given = self.values.passed(call, ["input", "target"])
            return self._read(FUNCTIONS[name], {key: given[key] for key in given if key not in ("input", "target")})
        for creation in self.calls:
            if self.values.assigned(creation).rpartition(".")[2] == name and last_name(creation) in FUNCTIONS.values():
                return self._read(last_name(creation), self.values.passed(creation, ["weight"]))
        return None

    def also_called(self, variables: set[str], names: set[str]) -> list[str]:
        """The text of calls of these methods of the objects in these variables, outside handlers of exceptions."""
        texts = dict[str, None]()
        for call in self.calls:
            owner = call.func.value if isinstance(call.func, ast.Attribute) else call
            text = ast.unparse(owner).removesuffix(".module").rpartition(".")[2]
            if text in variables and last_name(call) in names and not self.values.inside(call, ast.ExceptHandler):
                texts[ast.unparse(call)] = None
        return [*texts]

    def batch_of(self, call: ast.Call) -> list[str]:
        """The names of a batch's entries in the loop around a call; [] if the loop does not name them."""
        loop = self.values.inside(call, ast.For)
        while isinstance(loop, ast.For):
            target = loop.target
            if isinstance(target, ast.Tuple) and last_name(loop.iter) == "enumerate":
                target = target.elts[-1]
            if isinstance(target, (ast.Tuple, ast.List)):
                return [ast.unparse(entry) for entry in target.elts]
            loop = self.values.inside(loop, ast.For)
        return []

    def has_named_entries(self, call: ast.Call) -> bool:
        """Whether the batch of the loop around a call is a dict, or an object with attributes."""
        loop = self.values.inside(call, ast.For)
        batch = loop.target.id if isinstance(loop, ast.For) and isinstance(loop.target, ast.Name) else None
        nodes = ast.walk(loop) if loop is not None and batch is not None else ()
        return any(
            isinstance(node, (ast.Subscript, ast.Attribute)) and ast.unparse(node.value) == batch for node in nodes
        )

    def _argument(self, *names: str) -> Plain | None:
        values = (self.values.arguments.get(name) for name in names)
        return next((value for value in values if isinstance(value, (int, float)) and value), None)

    def _read(self, name: str, passed: Mapping[str, ast.expr], call: ast.Call | None = None) -> FoundCall:
        plain = {key: self.values.plain(value) for key, value in passed.items()}
        given = {key: value for key, value in plain.items() if value is not None}
        others = {key: ast.unparse(value) for key, value in passed.items() if key not in given}
        subject = others.get("params", "")
        subject = subject.removesuffix(".parameters()") if subject.endswith(".parameters()") else ""
        subject = subject if "(" not in subject else ""
        return FoundCall(name, given, others, self.values.assigned(call) if call is not None else "", subject)

    def _of_torch(self, module: str, arguments: list[str]) -> list[FoundCall]:
        """The calls of classes of a module, as torch.optim.SGD(...), optim.SGD(...) or SGD(...)."""
        return [call for tree in self._trees.values() for call in self._in_file(tree, module, arguments)]

    def _in_file(self, tree: ast.Module, module: str, arguments: list[str]) -> Iterator[FoundCall]:
        modules, classes = {module}, dict[str, str]()  # what is imported: names of the module, and of its classes
        parent, _, last = module.rpartition(".")
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    if alias.asname and (module == alias.name or module.startswith(f"{alias.name}.")):
                        modules.add(alias.asname + module[len(alias.name) :])
            elif isinstance(node, ast.ImportFrom) and node.module == parent:
                modules |= {alias.asname or alias.name for alias in node.names if alias.name == last}
            elif isinstance(node, ast.ImportFrom) and node.module == "torch":
                names = [
                    alias.asname or alias.name for alias in node.names if module.startswith(f"torch.{alias.name}.")
                ]
                modules |= {f"{name}.{last}" for name in names}
            elif isinstance(node, ast.ImportFrom) and node.module == module:
                classes |= {alias.asname or alias.name: alias.name for alias in node.names}
        for node in self.values.live(tree):
            if isinstance(node, ast.Call):
                prefix, _, name = ast.unparse(node.func).rpartition(".")
                name = name if prefix in modules else classes.get(name, "") if not prefix else ""
                if name[:1].isupper() and name != "Optimizer":  # optim.step() is a call of a variable
                    starred = {word.arg or "**": word.value for word in node.keywords if word.arg is None}
                    yield self._read(name, {**self.values.passed(node, arguments), **starred}, node)


def last_name(node: ast.AST) -> str:
    """The last name of what is called; empty if it is not a call."""
    return ast.unparse(node.func).rpartition(".")[2] if isinstance(node, ast.Call) else ""


def _is_scaled(expression: ast.expr, name: str) -> bool:
    """Whether the expression is the variable itself divided or scaled, as gradients are accumulated."""
    return isinstance(expression, ast.BinOp) and ast.unparse(expression.left) == name
