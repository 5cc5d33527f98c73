"""The sections of a drafted experiment: what a training script sets, as keys, and remarks on what it computes."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from manyheads.runner.commands.init.script import FoundCall, Script
from manyheads.runner.config.lookup import options, read_option
from manyheads.runner.errors import printable

Keys = dict[str, object]
OWN = "custom"
MISSING = "???"
# What a script leaves at torch's defaults, where those of the option are others.
TORCHS_OWN: Mapping[str, Keys] = {"SGD": {"momentum": 0, "weight_decay": 0}}


class Section(NamedTuple):
    """A part of the experiment. ``option``: None keeps the default of its group."""

    group: str
    option: str | None = None
    keys: Mapping[str, object] = MappingProxyType({})
    remarks: tuple[str, ...] = ()
    also: Mapping[str, object] = MappingProxyType({})  # keys of other sections, by dotted name


def optimizer(script: Script) -> Section:
    """The script's optimizer, or one for each part of the model, if it steps several."""
    if not (calls := script.optimizers):
        return Section(
            "optimizer", remarks=("No optimizer of torch was found: set optimizer=, which is sgd by default.",)
        )
    if len({call.variable for call in calls}) > 1 and len({call.subject for call in calls}) > 1:
        return _several(calls)
    names = sorted({call.name for call in calls})
    if len(names) != 1:
        remark = f"The script chooses its optimizer ({', '.join(names)}): set optimizer=, which is sgd by default."
        return Section("optimizer", remarks=(remark,))
    option, keys, remarks = _keys(calls[0])
    if any((call.given, call.others) != (calls[0].given, calls[0].others) for call in calls):
        keys = {key: keys[key] for key in keys if key not in calls[0].given}
        remarks = (f"The script creates {names[0]} with different arguments: set optimizer.lr, ...",)
    return Section("optimizer", option, keys, remarks)


def _keys(call: FoundCall) -> tuple[str, Keys, tuple[str, ...]]:
    """The option of an optimizer of torch, its keys, and what is left to say."""
    target = f"torch.optim.{call.name}"
    option = next(
        (option for option in options("optimizer") if read_option("optimizer", option)["_target_"] == target), None
    )
    keys: Keys = {**TORCHS_OWN.get(call.name, {})} if option else {"_target_": target}
    option = option or OWN
    keys |= {key: value for key, value in call.given.items() if key != "params"}
    computed = [f"{key} ({printable(text)})" for key, text in call.others.items() if key != "params"]
    if computed:
        them = "it" if len(computed) == 1 else "them"
        return (
            option,
            keys,
            (f"The script computes its optimizer's {', '.join(computed)}: set {them} under optimizer.",),
        )
    missing = f"The script leaves the learning rate of {call.name} at torch's default: set optimizer.lr."
    return option, keys, () if "lr" in keys else (missing,)


def _several(calls: list[FoundCall]) -> Section:
    parts = {call.subject.rpartition(".")[2] or call.variable.rpartition(".")[2]: _keys(call) for call in calls}
    names = ", ".join(map(printable, parts))
    remarks = [
        f"The script steps several optimizers ({names}): put the parts in one model, under these names, and write a "
        "task with a step that yields their losses, docs/your-step.md."
    ]
    also = {f"/optimizer@optimizer.parts.{name}": option for name, (option, _, _) in parts.items()}
    keys: Keys = {"parts": {name: keys for name, (_, keys, _) in parts.items() if keys}}
    return Section("optimizer", "several", keys, (*remarks, *(one for part in parts.values() for one in part[2])), also)


def scheduler(script: Script) -> Section:
    """The script's schedule; constant without one."""
    calls = {call.name: call for call in script.schedulers}
    if len(calls) != 1:
        if calls:
            remark = (
                f"The script chooses its schedule ({', '.join(calls)}): set scheduler=, which is cosine by default."
            )
            return Section("scheduler", remarks=(remark,))
        sets = 'param_group["lr"]'
        remark = f"The script sets {sets} itself: choose its schedule, scheduler=..." if script.sets_lr else ""
        return Section("scheduler", "constant", remarks=(remark,) if remark else ())
    (name, call), *_ = calls.items()
    given = {key: value for key, value in call.given.items() if key not in ("last_epoch", "verbose")}
    computed = "".join(f", {key}={printable(text)}" for key, text in call.others.items() if key != "optimizer")
    remarks = (f"The script's {name} has arguments that it computes{computed}: look at scheduler.",) if computed else ()
    match name:
        case "StepLR":
            keys: Keys = {"every_epochs": given.get("step_size", MISSING), "gamma": given.get("gamma", 0.1)}
            return Section("scheduler", "step", keys, remarks)
        case "MultiStepLR":
            keys = {"milestones": given.get("milestones", MISSING), "gamma": given.get("gamma", 0.1)}
            return Section("scheduler", "multistep", keys, remarks)
        case "CosineAnnealingLR":
            return Section("scheduler", "cosine", {}, (f"{name}: here it reaches its end at the end of the run.",))
        case "ReduceLROnPlateau":
            renamed = {"factor": "gamma", "patience": "patience", "threshold": "threshold"}
            keys = {renamed[key]: value for key, value in given.items() if key in renamed}
            monitor = "It watches checkpoint.monitor, and evaluates every trainer.evaluate_every epochs."
            return Section("scheduler", "plateau", keys, (*remarks, f"{name}: {monitor}"))
        case "ExponentialLR":
            return Section(
                "scheduler", OWN, {"_target_": f"torch.optim.lr_scheduler.{name}", "interval": "epoch", **given}
            )
    return Section(
        "scheduler", "constant", remarks=(f"The script's schedule {name} is not drafted: set scheduler=...",)
    )


def trainer(script: Script | None) -> Section:
    """How long the script trains, and how it clips gradients."""
    if script is None:
        return Section("trainer", keys={"epochs": 10})
    key, length, text = script.length
    remarks = []
    also: Keys = {"seed": script.seed} if script.seed is not None else {}
    if length is None:
        computed = f"computes it, {printable(text)}" if text else "was not understood"
        remarks.append(f"trainer.{key}: the script {computed}; 10 is a guess.")
    keys: Keys = {key: length if length is not None else 10}
    norm, text = script.clip_norm
    if norm is not None:
        keys["clip_norm"] = norm
    elif text:
        remarks.append(f"The script clips the norm of gradients to {printable(text)}: set trainer.clip_norm.")
    return Section("trainer", keys=keys, remarks=tuple(remarks), also=also)


def loading(script: Script | None) -> tuple[Keys, tuple[str, ...]]:
    """How the script loads its training samples: keys of the data section, and remarks."""
    if script is None:
        return {"batch_size": 64}, ()
    size, text = script.batch_size
    keys: Keys = {"batch_size": 64 if size is None else size}
    remarks = []
    if size is None:
        computed = f"the script computes it ({printable(text)})" if text else "the script sets none that was understood"
        remarks.append(f"data.batch_size: {computed}; 64 is a guess.")
    if script.loader is not None:
        keys["drop_last"] = bool(script.loads("drop_last")[0])
    if script.divides:
        rest = "the script's is that of one rank, ours of all: multiply it by their number."
        remarks.append(f"data.batch_size: {rest}")
    for name, advice in (
        *(() if script.divides else [("sampler", "data.sampler")]),
        ("batch_sampler", "data.sampler"),
        ("collate_fn", "the data set's attribute collate_fn"),
    ):
        if (text := script.loads(name)[1]) not in ("", "None"):
            remarks.append(f"The script's DataLoader has {name}={printable(text)}: set {advice}.")
    return keys, tuple(remarks)
