"""Manifests: the shapes that their engines' documentation gives, and the folder that they run."""

import os
import re
import subprocess

import pytest
import yaml

from manyheads.runner.commands import manifest as command
from manyheads.runner.commands.manifest import write
from manyheads.runner.commands.manifest.subject import Machines, ManifestSubject, text
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.machine import addresses
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
    assert (frozen["launcher"]["nodes"], frozen["launcher"]["nproc_per_node"]) == (2, 8)
    assert frozen["trainer"]["device"] == "cuda"
    host, port = addresses.parse_endpoint("", frozen["launcher"]["rendezvous"])
    assert (host, port) == ("manyheads-my-run-node-0-0.manyheads-my-run", container["ports"][0]["containerPort"])
    assert host in container["command"][-1]


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
    (bin / "python").write_text('#!/bin/sh\necho "$@"\n')
    for each in bin.iterdir():
        each.chmod(0o755)
    environment = {"PATH": f"{bin}:{os.environ['PATH']}", "JOB_COMPLETION_INDEX": index, "POD_IP": "10.0.0.1"}
    command = [expanded(each, environment) for each in container["command"]]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=10)
    assert "resume" in done.stdout, done.stderr
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
    done = subprocess.run([*command[:2], functions + command[2]], env=environment, capture_output=True, text=True)
    assert not list(tmp_path.rglob("mark"))
    assert str(path.parent) in done.stdout, done.stderr
    assert variables["MANYHEADS_CHECKED"].endswith(str(path.parent))


def test_a_mistake_is_not_tried_again_and_pods_may_come_up_late(tmp_path):
    folder, text = written(tmp_path, "kubernetes")
    spec = yaml.safe_load(text)["spec"]
    (rule,) = spec["replicatedJobs"][0]["template"]["spec"]["podFailurePolicy"]["rules"]
    assert rule == {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [ConfigurationError.exit_code]}}
    assert spec["failurePolicy"]["rules"][0]["action"] == "FailJobSet"
    assert folder.read_config()["launcher"]["start_timeout"] == 1800


def test_a_typed_timeout_stays(tmp_path):
    folder, _ = written(tmp_path, "kubernetes", "launcher.start_timeout=60")
    assert folder.read_config()["launcher"]["start_timeout"] == 60


def test_a_recovered_skypilot_task_finds_its_new_first_node(tmp_path):
    _, text = written(tmp_path, "skypilot", python="echo")
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.1 localhost\n10.0.0.1 manyheads-head\n")
    script = yaml.safe_load(text)["run"].replace("/etc/hosts", str(hosts)).replace("sudo ", "")
    subprocess.run(["bash", "-c", script], env={**os.environ, "SKYPILOT_NODE_IPS": "10.0.0.2\n10.0.0.3"}, check=True)
    assert hosts.read_text().splitlines() == ["127.0.0.1 localhost", "10.0.0.2 manyheads-head"]


def test_the_name_of_a_folder_adds_nothing_to_the_file(tmp_path):
    """It may be that of an archive somebody sent."""
    machines, folder = Machines(1, 0, 1), tmp_path / "a\nkind: evil"
    subject = ManifestSubject("a", folder, "digest", machines, shared=folder.parent / "b\nx: 1", volume="v", image="i")
    content = text("A JobSet", subject, {"kind": "JobSet"})
    assert yaml.safe_load(content) == {"kind": "JobSet"}


def test_a_task_of_skypilots(tmp_path):
    folder, text = written(tmp_path, "skypilot", gpus=4, accelerator="H100")
    content = yaml.safe_load(text)
    assert content["num_nodes"] == 2
    assert content["resources"] == {"cpus": "4+", "accelerators": "H100:4", "image_id": "docker:registry/image:1"}
    assert content["volumes"] == {str(tmp_path): "team-data"}
    assert all(isinstance(value, str) for value in content["envs"].values())
    assert addresses.parse_endpoint("", folder.read_config()["launcher"]["rendezvous"])[0] in content["run"]
    assert subprocess.run(["bash", "-n", "-c", content["run"]]).returncode == 0


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

    for engine in command.ENGINES:
        parser = argparse.ArgumentParser()
        command.add_arguments(parser)
        typed = ["parallel=ddp", f"hydra.run.dir={tmp_path}/{engine}", "--for", engine, "--nodes", "2"]
        arguments = parser.parse_args([*typed, "--image", "i", "--volume", "v"])
        command.run(arguments).show()
        assert f"{engine}.yaml, which the authors have not tested on a cluster" in capsys.readouterr().out
