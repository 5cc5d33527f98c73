"""The wings of the house: what can be deleted with its configs and tests, while everything else works without it."""

APEX = (
    *(f"{group}/apex.py" for group in ("parallel", "parallel/rank", "precision", "precision/rank", "optimizer")),
    "machine/apex_installation.py",
)
ENGINES = ("tests/benchmarks/engines", "tests/benchmarks/test_engines.py")  # of launchers on several machines
RAY = ("launchers/ray", "conf/launcher/ray.yaml", "tests/launchers/ray_cluster", *ENGINES)
REPLICATED = (
    *("launchers/torchft", "conf/launcher/torchft.yaml", "conf/parallel/replicated.yaml"),
    *("runner/parallel/replicated.py", "runner/parallel/rank/replicated", "tests/parallel/replicated"),
)
QUEUE = (
    *("launchers/flags/queue", "runner/commands/queue.py", "runner/commands/work.py"),
    *("tests/launchers/flags/queue", "tests/commands/test_queue.py"),
)
MODEL_PARALLEL = (
    *REPLICATED,
    *("runner/parallel/rank/model_parallel", "runner/parallel/model_parallel.py", "tests/parallel/model_parallel"),
    *(f"conf/parallel/{name}.yaml" for name in ("fsdp", "tensor", "pipeline", "mesh")),
    *("runner/loop/deferred_build.py", "runner/checkpoint/rank/put_off.py"),
    *("tests/parallel/test_mesh_layout.py", "tests/gpu/one_card", "tests/gpu/one_card.sh", "tests/gpu/prepare.sh"),
)
WINGS = {  # by name, what is deleted
    "judge": [
        *("runner/answers/judge", "runner/commands/judge.py", "tests/answers/judge"),
        "tests/trust/attacks/judged_code_swapped.py",
    ],
    "command": ["runner/answers/judge/command", "tests/answers/judge/command"],
    "tune": ["runner/answers/tune", "runner/commands/tune.py", "tests/answers/tune", "tests/benchmarks/searchers.py"],
    "explain": ["runner/answers/explain", "runner/commands/explain.py", "tests/answers/explain"],
    "scale": ["runner/answers/scale", "runner/commands/scale.py", "tests/answers/scale", "tests/benchmarks/scaling"],
    "estimate": [
        *("runner/answers/estimate", "runner/commands/estimate.py", "tests/answers/estimate"),
        "tests/answers/scale/test_one_step.py",
    ],
    "parity": ["runner/answers/parity", "runner/commands/parity.py", "tests/answers/parity"],
    "audit": ["runner/answers/audit", "runner/commands/audit.py", "tests/answers/audit"],
    "record": ["runner/answers/record", "runner/commands/record.py", "tests/answers/record"],
    "report": [
        *("runner/report", "runner/commands/report.py", "tests/report"),
        "launchers/sweep/comparison/by_report.py",
    ],
    "serve": [
        *("runner/serve", "tests/serve", "tests/trust/test_attacks_by_trained_model.py"),
        "tests/trust/attacks/default_output_is_a_link.py",
        *(f"runner/commands/{name}.py" for name in ("predict", "export")),
    ],
    "manifest": ["runner/commands/manifest", "tests/commands/manifest"],
    "mcp": ["runner/commands/mcp", "tests/commands/mcp"],
    "skill": ["runner/commands/skill", "tests/commands/skill"],
    "install-horovod": ["runner/commands/install_horovod", "tests/commands/install_horovod"],
    "nodes": [
        *("launchers/nodes", "launchers/wrappers/on_nodes.py", "tests/launchers/nodes", *RAY, *REPLICATED),
        "tests/launchers/foreign/test_two_machines.py",
    ],
    "publishing": [
        *("launchers/companions/publishing", "runner/commands/publish.py", "tests/launchers/companions/publishing"),
        *(f"runner/logger/{name}.py" for name in ("wandb", "trackio", "mlflow")),
        *(f"conf/logger/{name}.yaml" for name in ("wandb", "trackio", "mlflow")),
        "tests/logger/test_mlflow.py",
    ],
    **{name: [f"runner/logger/{name}.py", f"conf/logger/{name}.yaml"] for name in ("wandb", "trackio")},
    "mlflow": [
        "runner/logger/mlflow.py",
        *("conf/logger/mlflow.yaml", "tests/logger/test_mlflow.py"),
        "tests/launchers/companions/publishing/test_empty_folder.py",
    ],
    "room": [
        *("launchers/companions/room", "runner/commands/room.py", "tests/launchers/companions/room"),
        *("tests/commands/test_room.py", *QUEUE),
    ],
    "budget": [
        *("launchers/companions/budget", "runner/commands/budget.py", "tests/launchers/companions/budget"),
        "tests/commands/test_budget.py",
    ],
    "queue": [*QUEUE],
    "mirror": ["launchers/companions/mirror", "tests/launchers/companions/mirror"],
    "sharded": [
        *("runner/checkpoint/sharded", "tests/checkpoint/sharded", *MODEL_PARALLEL),
        *("runner/checkpoint/rank/convert_checkpoint.py", "runner/commands/convert.py", "tests/checkpoint/convert"),
    ],
    "storage": [
        *("runner/run/objects/storage", "tests/run/objects/storage"),
        *("tests/launchers/companions/mirror/test_upload.py", "tests/trust/attacks/group_writable_caches.py"),
    ],
    "slurm": [
        *("launchers/slurm", "conf/launcher/slurm.yaml", "tests/launchers/slurm", *ENGINES),
        "tests/trust/attacks/batch_script_swapped.py",
    ],
    "ray": [*RAY],
    "replicated": [*REPLICATED],
    "horovod": [
        *(f"launchers/{name}.py" for name in ("mpirun", "horovodrun")),
        *(f"conf/launcher/{name}.yaml" for name in ("mpirun", "horovodrun")),
        *(f"runner/parallel/{name}.py" for name in ("horovod", "horovod_installation", "rank/horovod")),
        *("conf/parallel/horovod.yaml", "conf/experiment/mnist_horovod.yaml", "runner/commands/install_horovod"),
        *("tests/commands/install_horovod", "tests/launchers/test_horovod_settings.py", "tests/parallel/horovod"),
        "tests/launchers/test_mpi_agents.py",
        *(f"tests/parallel/{name}.py" for name in ("horovod_ranks", "test_horovod", "test_horovod_installation")),
    ],
    "apex": [
        *(f"runner/{path}" for path in APEX),
        *("conf/parallel/apex.yaml", "conf/precision/apex.yaml", "conf/tuned/digits_fused_sgd.yaml"),
        *(f"conf/optimizer/fused_{name}.yaml" for name in ("adam", "lamb", "novograd", "sgd")),
        *(f"tests/{name}.py" for name in ("launchers/test_apex", "parallel/test_apex", "precision/test_apex")),
        *(f"tests/machine/test_apex_{name}.py" for name in ("installation", "options")),
        "tests/optimizer/test_fused.py",
    ],
    "model_parallel": [*MODEL_PARALLEL],
    "once": [
        *("launchers/flags/once", "tests/launchers/flags/once", "runner/records/tried", "runner/commands/tried.py"),
        *("tests/records/tried", "tests/commands/test_tried.py"),
    ],
    "own_step": [
        *("runner/loop/own_step", "tests/loop/own_step", "tests/fake_gpu", "conf/optimizer/several.yaml"),
        *("runner/optimizer/several.py", "runner/optimizer/rank/several.py", "runner/scheduler/rank/by_part.py"),
    ],
    "samples": ["runner/callbacks/rank/samples.py", "conf/callbacks/samples.yaml", "tests/callbacks/test_samples.py"],
    "sampling": ["runner/data/rank/sampling", "tests/data/sampling"],
    "stream": ["runner/data/rank/streams", "runner/loop/observers/stream_record.py", "tests/data/streams"],
    "mnist1d": [
        *(f"conf/{name}.yaml" for name in ("data/mnist1d", "model/mnist1d")),
        *(f"conf/experiment/mnist1d_{name}.yaml" for name in ("table", "double_descent")),
        *(f"runner/{name}/mnist1d.py" for name in ("data", "model", "model/rank")),
        *(f"tests/{name}/test_mnist1d.py" for name in ("data", "model")),
        "tests/published",
    ],
    "table": [
        *(
            "runner/data/table",
            "conf/data/table.yaml",
            "tests/data/table",
            "tests/task/test_auto.py",
            "tests/fake_gpu",
            "runner/loop/observers/encoding_record.py",
            "runner/task/auto.py",
            "conf/task/auto.yaml",
        ),
        *(f"runner/serve/rank/{name}.py" for name in ("trained_table", "predict_rows")),
    ],
}
