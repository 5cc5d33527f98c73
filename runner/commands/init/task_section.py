"""The task of a drafted experiment: what the loss of a training script belongs to."""

import ast

from manyheads.runner.commands.init.found_class import FoundClass
from manyheads.runner.commands.init.repository import Repository
from manyheads.runner.commands.init.script import FoundCall, Script, last_name
from manyheads.runner.commands.init.sections import OWN, Keys, Section
from manyheads.runner.errors import printable

TASKS = {  # of torch's losses
    "CrossEntropyLoss": "classification",
    "BCEWithLogitsLoss": "multilabel",
    "MSELoss": "regression",
    "L1Loss": "regression",
    "SmoothL1Loss": "regression",
    "HuberLoss": "regression",
}
RESHAPING = ("squeeze", "view", "reshape", "flatten", "float", "long", "to", "cuda", "contiguous")  # of a tensor
DEFAULT_LOSSES = ("CrossEntropyLoss", "BCEWithLogitsLoss", "MSELoss")  # of these tasks


def task(script: Script | None, repository: Repository, model: FoundClass) -> Section:
    """The task that the script's loss belongs to."""
    losses = script.losses if script is not None else []
    if script is None or not losses:
        return Section("task", "own_loss" if model.has_own_loss else None)
    loss = losses[0]
    if len(losses) == 1 and isinstance(loss, ast.Call):
        if _creates(script, repository, loss) is not None:
            return _own_loss(script, loss)
        call = script.torch_loss(loss)
        if call is not None and call.name in TASKS and _is_of_outputs(script, repository, loss):
            return _of_torch(script, repository, call)
    texts = [printable(ast.unparse(one)) for one in losses if one is not None][:2]
    more = " and more" if None in losses or len(losses) > 2 else ""
    formula = f"is {'; '.join(texts)}{more}" if texts else "comes from a function that returns more"
    remark = f"The script's loss {formula}: write a task that computes it, docs/tasks.md."
    return Section("task", OWN, remarks=(remark,))


def _own_loss(script: Script, call: ast.Call) -> Section:
    batch, given = script.batch_of(call), [*map(ast.unparse, call.args)]
    keys: Keys = {"loss_over": "samples"}
    if batch and given != batch:
        if len(given) == 1 and given[0] in batch:
            return Section("task", "own_loss", {**keys, "inputs": batch.index(given[0])})
        remark = f"The script calls the model with {', '.join(given)}, of a batch {', '.join(batch)}: set task.inputs."
        return Section("task", "own_loss", keys, (remark,))
    return Section("task", "own_loss", keys)


def _is_of_outputs(script: Script, repository: Repository, loss: ast.Call) -> bool:
    """Whether a loss is that of what the model returns and of what the batch has, unchanged."""
    if len(loss.args) < 2 or any(isinstance(node, ast.BinOp) for one in loss.args for node in ast.walk(one)):
        return False
    outputs, target = map(_unwrapped, loss.args[:2])
    batch = script.batch_of(loss)
    sources = script.values.expressions(outputs) if isinstance(outputs, ast.Name) else [outputs]
    calls = [_unwrapped(one) for one in sources if one is not None]
    is_model = len(calls) == len(sources) > 0 and all(
        isinstance(one, ast.Call) and _creates(script, repository, one) is not None for one in calls
    )
    return (
        is_model
        and isinstance(target, ast.Name)
        and (target.id in batch if batch else not script.has_named_entries(loss))
    )


def _unwrapped(expression: ast.expr) -> ast.expr:
    """What methods such as squeeze, view and float are called on."""
    while isinstance(expression, ast.Call) and isinstance(expression.func, ast.Attribute):
        if not isinstance(expression.func.value, (ast.Call, ast.Name)) or expression.func.attr not in RESHAPING:
            break
        expression = expression.func.value
    return expression


def _of_torch(script: Script, repository: Repository, loss: FoundCall) -> Section:
    keys: Keys = {"_target_": f"torch.nn.{loss.name}", **loss.given}
    also = {"loss": keys} if loss.name not in DEFAULT_LOSSES or loss.given else {}
    remarks = [f"loss.{key}: the script computes it ({printable(text)})." for key, text in loss.others.items()]
    for call in script.calls:
        batch = script.batch_of(call)
        if _creates(script, repository, call) is not None and batch and len(call.args) > 1:
            given = ", ".join(map(ast.unparse, call.args))
            remark = (
                f"The script calls the model with {given}, of a batch {', '.join(batch)}: write a task whose inputs() "
            )
            return Section(
                "task", OWN, remarks=(f"{remark}returns them, and whose loss is {loss.name}, docs/tasks.md.",)
            )
    return Section("task", TASKS[loss.name], {}, tuple(remarks), also)


def _creates(script: Script, repository: Repository, call: ast.Call) -> FoundClass | None:
    """The model whose object an expression calls, such as ``model(x)``."""
    if isinstance(call.func, ast.Call):
        return None
    variable = last_name(call)
    for creation in script.calls:
        if (
            script.values.assigned(creation).rpartition(".")[2] == variable
            and (cls := repository.class_of(script, creation)) in repository.models
        ):
            return cls if cls is not None and "loss" not in cls.name.lower() else None
    return None
