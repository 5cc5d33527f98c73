"""Each key of an option is declared to change how updates are computed, or is known to change more than that."""

from typing import ClassVar

import pytest

from manyheads.runner.config.candidates import candidates
from manyheads.runner.config.lookup import CONF, options, read, read_option
from manyheads.runner.config.run_rules import TUNABLE
from manyheads.runner.option.declared import declared_class
from manyheads.runner.option.rules import COMPUTE, PARTS, Tunable, always, powers_of_two
from manyheads.runner.option.tree import OPTION, TARGET
from manyheads.runner.parallel.single import SingleOption
from manyheads.runner.provenance.provenance import WITHOUT_EFFECT
from tests.in_process import typed

# Of these groups, each key that is not declared tunable says what is computed.
WHAT = ("model", "task", "optimizer", "scheduler", "precision")
# Of the others, keys that change samples or results ...
RESULTS = {
    "data": {
        *("batch_size", "drop_last", "val_fraction", "test_fraction", "folds", "fold", "split_seed", "on_corrupt"),
        *("image_size", "train_image_size", "val_resize", "augment", "shift", "padding", "flip"),
        *("transform", "val_transform", "num_classes", "train_samples", "val_samples", "pattern", "block_size"),
        *("shuffle_positions", "test_samples", "label_noise"),
        *("sampler", "order", "order_block", "order_window", "epoch_samples"),
        *("decoders", "documents", "end_token", "fields", "vocab_size"),
        *("train_shards", "val_shards", "test_shards"),
        *("tokenizer", "max_tokens", "max_length", "hub", "subset", "revision", "download"),
        *("train_split", "val_split", "test_split", "input_column", "label_column", "classes"),
        *(
            "labels",
            "target",
            "columns",
            "group",
            "time",
            "missing",
            "missing_target",
            "delimiter",
            "decimal",
            "encoding",
        ),
    },
    "parallel": {
        *("compression", "powersgd_rank", "powersgd_start", "op", "gradient_predivide_factor", "period", "start"),
        *("broadcast_buffers", "sync_batchnorm", "allreduce_always_fp32", "param_dtype", "reduce_dtype"),
    },
    "launcher": set(),
    "trainer": {
        *("epochs", "max_steps", "stop_after", "evaluate_only", "max_time", "patience", "min_delta"),
        *(
            "evaluate_every",
            "tta",
            "limit_train",
            "limit_val",
            "limit_test",
            "overfit",
            "test",
            "clip_norm",
            "clip_value",
        ),
        *("label_smoothing", "mixup_alpha", "cutmix_alpha", "mix_prob", "mix_switch_prob", "aug_repeats"),
        *("resize_from", "resize_start", "resize_end", "resize_step", "ema_decay", "ema_every", "ema_warmup"),
        *("swa_start", "sam_rho", "sam_every", "on_nan"),
        *("on_spike", "spike_window", "spike_threshold", "spike_span", "verify_every", "on_corruption"),
    },
}
# ... or where and by whom it is computed, or follow from other keys.
PLACES = {
    "data": {"cache_mb"},
    "parallel": {
        *("device_ids", "output_device", "timeline", "backward_passes_per_step"),
        *("trusted_network", "ranks_per_replica", "inside"),
    },
    "launcher": {"hosts", "hostfile", "nodes", "arguments", "controller", "gpus_per_node", "lines", "template", "srun"},
    "trainer": set(),
}


def decisions(group, section):
    """By key of an option, what is known of it."""
    kind = declared_class(group, section)
    known = {
        "tunable": kind.all_tunable().keys(),
        "without effect": kind.every("without_effect") - {*kind.all_tunable()},
    }
    known |= {"results": RESULTS[group], "places": PLACES[group]}
    return {key: [name for name, keys in known.items() if key in keys] for key in {*section} - {TARGET, OPTION, "name"}}


@pytest.mark.parametrize("group", sorted({*RESULTS} - {"trainer"}))
def test_each_key_is_decided(group):
    """Declare a new key ``tunable`` or ``without_effect`` in its option's class, or list it above."""
    for option in options(group):
        for key, found in decisions(group, read_option(group, option)).items():
            assert len(found) == 1, f"{group}={option}: {key} is {found or 'undecided'}"


def test_each_key_of_the_trainer_is_decided():
    own = {key.partition(".")[2] for key in TUNABLE}
    assert own.isdisjoint(RESULTS["trainer"])
    plain = {key.partition(".")[2] for key in WITHOUT_EFFECT if key.startswith("trainer.")}
    assert own | RESULTS["trainer"] | plain == read(CONF / "config.yaml")["trainer"].keys()


def test_what_is_listed_exists():
    for group in {*RESULTS} - {"trainer"}:
        known = {key for option in options(group) for key in read_option(group, option)}
        assert RESULTS[group] | PLACES[group] <= known


@pytest.mark.parametrize("group", [*WHAT, "data", "parallel", "launcher"])
def test_what_is_declared_exists(group):
    kinds = [(declared_class(group, section), section) for section in (read_option(group, o) for o in options(group))]
    for key, tunable in {key: each for kind, _ in kinds for key, each in kind.all_tunable().items()}.items():
        assert any(key in section for _, section in kinds), key
        assert tunable.part in PARTS


@pytest.fixture(autouse=True)
def strategies(monkeypatch):
    """Those that are composed, which takes a while: none, if a test does not add some."""
    names: list[str] = []
    monkeypatch.setattr("manyheads.runner.config.candidates.options", lambda group: names)
    return names


def found(*words):
    known = [*candidates(typed(*words))]
    return {each.change for each in known if each.change}, {each.key: each.reason for each in known if each.reason}


def test_what_is_worth_trying_depends_on_the_run_and_the_machine(monkeypatch):
    monkeypatch.setattr("manyheads.runner.machine.hardware.cpu_cores", lambda: 4)
    changes, reasons = found("model=small_cnn", "data=digits", "parallel=ddp", "launcher.nproc_per_node=2")
    assert {"trainer.channels_last=true", "launcher.nproc_per_node=4", "parallel.static_graph=true"} <= changes
    assert {"trainer.grad_accumulation=2", "launcher.threads_per_rank=1", "parallel.bucket_cap_mb=5"} <= changes
    assert "launcher.nproc_per_node=2" not in changes
    assert reasons["trainer.compile_units"] == "trainer.compile=none compiles nothing"
    changes, reasons = found("model=gpt", "task=language_model", "data=stdlib_text")
    assert reasons["trainer.channels_last"] == "the data has no images"
    assert "one process" in reasons["launcher.nproc_per_node"]
    assert not any(each.startswith("parallel.") for each in changes)


def test_other_strategies_are_tried_with_launchers_of_their_own(strategies):
    strategies += ["single", "ddp", "local_sgd"]
    changes, _ = found("model=mlp", "data=digits", "data.batch_size=64")
    assert [each for each in changes if each.startswith("parallel=")] == ["parallel=ddp"]
    known = {each.reason for each in candidates(typed("model=mlp", "data=digits", "data.batch_size=63"))}
    assert any("parallel=ddp is refused: data.batch_size=63" in reason for reason in known)


@pytest.mark.parametrize("gpus", [1, 2])
def test_on_a_single_gpu_no_strategy_has_anything_to_divide(monkeypatch, strategies, gpus):
    monkeypatch.setattr("manyheads.runner.machine.hardware.gpu_names", lambda: ["NVIDIA H200"] * gpus)
    strategies += ["single", "dp", "ddp", "fsdp"]
    known = [
        each for each in candidates(typed("model=mlp", "data=digits", "data.batch_size=64")) if each.key == "parallel"
    ]
    expected = ["parallel=dp", "parallel=ddp", "parallel=fsdp"]
    assert [each.change for each in known if each.change] == (expected if gpus > 1 else [])
    assert all("nothing to divide" in each.reason for each in known) == (gpus == 1)


class Own(SingleOption):
    tunable: ClassVar = {"pieces": Tunable(COMPUTE, always(2, 4), needs={"data.num_workers": 0})}


def test_an_option_of_the_users_own_is_tuned_by_its_declaration_alone():
    run = typed("model=mlp", "data=digits").changed(parallel={"_option_": f"{__name__}.Own", "pieces": 2})
    assert [each.change for each in candidates(run) if each.key == "parallel.pieces"] == ["parallel.pieces=4"]


def test_what_a_value_needs_is_set_with_it():
    changes, _ = found("data=synthetic", "data.num_workers=2")
    assert {"data.on_device=true data.num_workers=0", "data.num_workers=0"} <= changes


def test_what_the_config_refuses_is_listed_with_the_reason():
    _, reasons = found("model=gpt", "task=language_model", "data=stdlib_text", "parallel=fsdp")
    assert "trainer.compile without trainer.compile_units does not work with" in reasons["trainer.compile"]


@pytest.mark.parametrize(("most", "expected"), [(0, []), (1, [1]), (4, [1, 2, 4]), (6, [1, 2, 4, 6])])
def test_powers_of_two(most, expected):
    assert powers_of_two(most) == expected
