"""No option is named outside its own room, so that adding, renaming or deleting one changes nothing else."""

from tests.option.rooms import foreign

# What is left, each with its reason. A line that is no longer needed fails too.
ALLOWED = {
    # where machines meet, looked at before there is a run
    "runner/machine/addresses.py": {"launcher.rendezvous"},
    "runner/commands/manifest/__init__.py": {"import.foreign", "launcher.nodes", "launcher.start_timeout"},
    # programs and libraries, and multiprocessing's start method, that have an option's name
    "launchers/horovodrun.py": {"horovod", "import.horovod", "import.mpirun"},
    "launchers/mpirun.py": {"import.horovod"},
    "launchers/foreign/__init__.py": {"horovod", "horovodrun", "import.inline", "mpirun"},
    "launchers/foreign/command.py": {"ddp"},
    "launchers/foreign/conventions.py": {"horovodrun", "mpirun", "torchrun"},
    "launchers/foreign/entry.py": {"launcher.rendezvous"},
    # samples of others
    "runner/answers/audit/audit_run.py": {"data.sampler", "foreign"},
    "runner/answers/audit/due.py": {"foreign"},
    "runner/callbacks/rank/samples.py": {"data.tokenizer"},
    # what a draft names
    "runner/commands/init/sections.py": {"data.sampler"},
    "launchers/warm_server.py": {"spawn"},
    "runner/commands/install_horovod/__init__.py": {"horovod", "import.horovod"},
    "runner/machine/apex_installation.py": {"apex"},
    "runner/commands/install_horovod/compile_horovod.py": {"mpirun"},
    "runner/parallel/horovod_installation.py": {"mpirun"},
    # launchers that are built on another one
    "launchers/inline.py": {"import.spawn"},
    "launchers/nodes/examine_hosts.py": {"import.torchrun"},
    "launchers/ray/__init__.py": {"import.torchrun"},
    "launchers/slurm/__init__.py": {"import.torchrun"},
    # a strategy with a launcher of its own, whose replicas may have several ranks
    "launchers/torchft/__init__.py": {"import.replicated", "import.spawn", "parallel.ranks_per_replica"},
    "launchers/torchft/lighthouse.py": {"import.replicated"},
    "runner/parallel/replicated.py": {"ddp", "fsdp", "torchft", "launcher.hang_timeout"},
    "runner/parallel/rank/replicated/__init__.py": {"ddp"},
    "runner/parallel/rank/replicated/membership.py": {"torchft"},
    # the remedies of errors
    "launchers/companions/room/waiting.py": {"launcher.wait"},
    "runner/commands/queue.py": {"launcher.devices"},
    "runner/data/rank/sampling/drawn_order.py": {"data.sampler"},
    "runner/loop/own_step/build.py": {"parallel.compression"},
    "runner/data/rank/custom.py": {"data.val_fraction"},
    "runner/data/rank/unfit_samples.py": {"data.on_corrupt", "data.transform"},
    "runner/loop/diagnosis.py": {"parallel.find_unused_parameters"},
    "runner/task/rank/targets.py": {"data.num_classes"},
    # rows of the header about what an option does otherwise than its key says
    "runner/loop/header.py": {"optimizer.fused", "scheduler.interval"},
    "runner/loop/no_effect.py": {f"scheduler.{key}" for key in ("every_epochs", "milestones", "patience")},
    # to be mended
    "runner/answers/measure/rank/rehearsal.py": {"precision.dtype"},
}


def test_options_are_named_in_their_own_rooms_only() -> None:
    found: dict[str, set[str]] = {}
    for file, named in foreign():
        found.setdefault(file, set()).add(named)
    assert found == ALLOWED
