"""Manifests: the shapes that their engines' documentation gives, and the folder that they run."""

import json
import os
import re
import subprocess

import pytest
import yaml

from manyheads.runner.commands import manifest as command
from manyheads.runner.commands.manifest import write
from manyheads.runner.commands.manifest.engines import ENGINES, Machines
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run.run_folder import RunFolder

GIVEN = {"image": "registry/image:1", "volume": "team-data"}


def written(tmp_path, engine, *overrides, nodes=2, gpus=0, accelerator=None, **options):
    folder = tmp_path / "my run"
    words = ["parallel=ddp", f"hydra.run.dir='{folder}'", *overrides]
    path = write(words, engine=engine, machines=Machines(nodes, gpus, 4, accelerator), **{**GIVEN, **options})
    return RunFolder(folder), path.read_text()


def test_a_jobset_has_a_pod_for_each_machine(tmp_path):
    folder, text = written(tmp_path, "kubernetes", gpus=8)
    assert "NOT TESTED ON A CLUSTER" in text
    content = yaml.safe_load(text)
    assert (content["apiVersion"], content["kind"]) == ("jobset.x-k8s.io/v1alpha2", "JobSet")
    assert content["metadata"]["name"] == "manyheads-my-run"
    (job,) = content["spec"]["replicatedJobs"]
    spec = job["template"]["spec"]
    assert (spec["parallelism"], spec["completions"], spec["completionMode"]) == (2, 2, "Indexed")
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    assert container["resources"]["limits"] == {"cpu": "4", "nvidia.com/gpu": "8"}
    assert {each["name"] for each in container["volumeMounts"]} == {each["name"] for each in pod["volumes"]}
    assert container["volumeMounts"][0]["mountPath"] == str(tmp_path)
    frozen = folder.read_config()
    assert (frozen["launcher"]["world_size"], frozen["launcher"]["nproc_per_node"]) == (16, 8)
    assert frozen["trainer"]["device"] == "cuda"
    port = container["ports"][0]["containerPort"]
    assert f"--master-addr manyheads-my-run-node-0-0.manyheads-my-run --master-port {port}" in container["command"][2]


def expanded(text, variables):
    """As Kubernetes does: $(NAME) is a variable's value if there is one, and $$ a $."""
    return re.sub(r"\$\$|\$\((\w+)\)", lambda m: "$" if m[0] == "$$" else variables.get(m[1], m[0]), text)


@pytest.mark.parametrize("index", ["0", "1"])
def test_a_pod_waits_for_the_first_one_and_the_first_for_its_own_address(tmp_path, index):
    """``getent`` knows nothing at first, then an address that is out of date, then the right one."""
    _, text = written(tmp_path, "kubernetes", python=str(tmp_path / "bin" / "python"))
    (job,) = yaml.safe_load(text)["spec"]["replicatedJobs"]
    (container,) = job["template"]["spec"]["template"]["spec"]["containers"]
    bin = tmp_path / "bin"
    bin.mkdir()
    answers = ["exit 2", "echo '10.0.0.10       old'", "echo '10.0.0.1        new'"]
    script = f"#!/bin/sh\necho >> {tmp_path}/asked\ncase $(wc -l < {tmp_path}/asked) in\n"
    (bin / "getent").write_text(script + "\n".join(f"{n}) {each};;" for n, each in enumerate(answers, 1)) + "\nesac\n")
    (bin / "sleep").write_text("#!/bin/sh\n")
    (bin / "python").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    for each in bin.iterdir():
        each.chmod(0o755)
    environment = {"PATH": f"{bin}:{os.environ['PATH']}", "JOB_COMPLETION_INDEX": index, "POD_IP": "10.0.0.1"}
    command = [expanded(each, environment) for each in container["command"]]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=10)
    words = done.stdout.splitlines()
    assert words[words.index("--node-rank") + 1] == index, done.stderr
    assert words[-4:] == ["-m", "manyheads.runner", "resume", str(tmp_path / "my run")]
    assert (tmp_path / "asked").read_text().count("\n") == (3 if index == "0" else 2)


def test_the_name_of_a_folder_runs_nothing(tmp_path, monkeypatch):
    """That of the working directory too, in which runs are by default."""
    hostile = tmp_path / "a$(MANYHEADS_CHECKED)';touch mark;'$HOME"
    hostile.mkdir()
    monkeypatch.chdir(hostile)
    path = write(["model=mlp"], engine="kubernetes", machines=Machines(1, 0, 4), python="echo", **GIVEN)
    (job,) = yaml.safe_load(path.read_text())["spec"]["replicatedJobs"]
    (container,) = job["template"]["spec"]["template"]["spec"]["containers"]
    variables = {"POD_IP": "10.0.0.1"}
    for each in container["env"][1:]:
        variables[each["name"]] = expanded(each["value"], variables)
    command = [expanded(each, variables) for each in container["command"]]
    environment = {"PATH": os.environ["PATH"], **variables, "JOB_COMPLETION_INDEX": "1"}
    functions = "getent() { echo 10.0.0.1; }; "
    command[2] = functions + command[2]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert not list(tmp_path.rglob("mark"))
    assert str(path.parent) in done.stdout, done.stderr
    assert variables["MANYHEADS_CHECKED"].endswith(str(path.parent))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("typed", "seconds"), [([], 1800), (["launcher.start_timeout=60"], 60)])
def test_machines_may_come_up_late(tmp_path, engine, typed, seconds):
    folder, text = written(tmp_path, engine, *typed)
    assert folder.read_config()["launcher"]["start_timeout"] == seconds
    assert f"timeout={seconds}" in text


def test_a_strategy_is_chosen_as_under_torchrun(tmp_path):
    """None if one process is enough: it is then no rank of several."""
    for nodes, strategy, launcher in ((2, "ddp", "foreign"), (1, "single", "inline")):
        path = write(
            ["model=mlp", f"hydra.run.dir={tmp_path}/{nodes}"],
            **{"engine": "kubernetes", "machines": Machines(nodes, 0, 4), **GIVEN},
        )
        frozen = RunFolder(path.parent).read_config()
        assert (frozen["parallel"]["name"], frozen["launcher"]["name"]) == (strategy, launcher)


@pytest.mark.parametrize("engine", ENGINES)
def test_the_name_of_a_folder_adds_nothing_to_the_file(tmp_path, monkeypatch, engine):
    """It may be that of an archive somebody sent."""
    hostile = tmp_path / "a\nkind: evil\nname: evil\t\x7f\x85\u2028\U0001f600'\""
    hostile.mkdir()
    monkeypatch.chdir(hostile)
    path = write(["model=mlp"], engine=engine, machines=Machines(2, 0, 4), **GIVEN)
    content = yaml.safe_load(path.read_text())
    assert "evil" not in (content.get("kind"), content.get("name"))
    assert json.dumps(str(path.parent)) in json.dumps(content).replace("$$", "$")


def test_a_task_of_skypilots(tmp_path):
    folder, text = written(tmp_path, "skypilot", gpus=4, accelerator="H100")
    content = yaml.safe_load(text)
    assert content["num_nodes"] == 2
    assert content["resources"] == {"cpus": "4+", "accelerators": "H100:4", "image_id": "docker:registry/image:1"}
    assert content["volumes"] == {str(tmp_path): "team-data"}
    assert all(isinstance(value, str) for value in content["envs"].values())
    place = {"SKYPILOT_NUM_NODES": "2", "SKYPILOT_NODE_RANK": "1", "SKYPILOT_NODE_IPS": "10.0.0.2\n10.0.0.3"}
    environment = {**os.environ, **content["envs"], **place, "RUN_PYTHON": "echo"}
    done = subprocess.run(["bash", "-c", content["run"]], env=environment, capture_output=True, text=True)
    assert "--nnodes 2 --nproc-per-node 4 --node-rank 1 --master-addr 10.0.0.2 --master-port" in done.stdout
    assert done.stdout.endswith(f"-m manyheads.runner resume {folder.path}\n")


def test_a_trainjob_leaves_places_and_numbers_to_its_runtime(tmp_path):
    """Which sets torchrun's PET_ variables."""
    folder, text = written(tmp_path, "trainjob", gpus=8)
    content = yaml.safe_load(text)
    assert (content["apiVersion"], content["kind"]) == ("trainer.kubeflow.org/v1alpha1", "TrainJob")
    trainer = content["spec"]["trainer"]
    assert (trainer["numNodes"], trainer["numProcPerNode"]) == (2, 8)
    assert trainer["resourcesPerNode"]["limits"] == {"cpu": "4", "nvidia.com/gpu": "8"}
    assert trainer["command"][-4:] == ["-m", "manyheads.runner", "resume", str(folder.path)]
    assert "--nnodes" not in trainer["command"]


def test_the_folder_is_the_users_own_there_though_his_key_is_not(tmp_path, monkeypatch):
    folder, text = written(tmp_path, "skypilot")
    variables = yaml.safe_load(text)["envs"]
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "nobody"))
    assert not RunFolder(folder.path).is_own()
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert RunFolder(folder.path).is_own()
    folder.config.write_text(folder.config.read_text() + "\n")
    with pytest.raises(ConfigurationError, match="edited"):
        RunFolder(folder.path).is_own()


@pytest.mark.parametrize(
    ("overrides", "options", "said"),
    [
        (["launcher=spawn"], {}, "launcher=spawn"),
        (["launcher.nodes=3"], {}, "--nodes"),
        (["launcher.rendezvous=a:1"], {}, "launcher.rendezvous"),
        (["parallel=single"], {}, "parallel=ddp"),
        (["launcher.nproc_per_node=many"], {}, "launcher.nproc_per_node=many"),
        ([], {"gpus": 2}, "--accelerator"),
        ([], {"shared": "/elsewhere"}, "--shared"),
        (["optimizer.lrr=1"], {}, "lrr"),
        (["name=42"], {}, "name=42"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_written(tmp_path, overrides, options, said):
    with pytest.raises(ConfigurationError, match=said):
        written(tmp_path, "skypilot", *overrides, **options)
    assert not (tmp_path / "my run" / "run.yaml").exists()


def test_a_folder_that_holds_a_run_is_refused(tmp_path):
    written(tmp_path, "kubernetes")
    with pytest.raises(ConfigurationError, match="already holds a run"):
        written(tmp_path, "kubernetes")


def test_every_engine_has_a_way_to_be_started(tmp_path, capsys):
    import argparse

    for engine in ENGINES:
        parser = argparse.ArgumentParser()
        command.add_arguments(parser)
        typed = ["parallel=ddp", f"hydra.run.dir={tmp_path}/{engine}", "--for", engine, "--nodes", "2"]
        arguments = parser.parse_args([*typed, "--image", "i", "--volume", "v"])
        command.run(arguments).show()
        assert f"{engine}.yaml, which the authors have not tested on a cluster" in capsys.readouterr().out
