"""A Kubernetes JobSet: one indexed job with a pod for each machine; pods are started and restarted together.

Source: https://jobset.sigs.k8s.io/docs/reference/jobset.v1alpha2/ and its page on the names of pods.
"""

import shlex
from typing import Any

from manyheads.runner.commands.manifest.subject import PORT, ManifestSubject, text

JOB = "node"
RESTARTS = 3
MISTAKE = 2  # the exit code of a run whose config is wrong, for which restarting is pointless
DEFAULTS = ("launcher.start_timeout=1800",)  # pods may start minutes apart: images are pulled, machines are added


def rendezvous(name: str) -> str:
    """The address of the first pod, at which all join: <set>-<job>-<job's index>-<pod's index>.<set>, and PORT."""
    return f"{name}-{JOB}-0-0.{name}:{PORT}"


def manifest(subject: ManifestSubject) -> str:
    """The text of the manifest."""
    nodes = subject.machines.nodes
    pods = {
        "parallelism": nodes,
        "completions": nodes,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "podFailurePolicy": {
            "rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [MISTAKE]}}],
        },
        "template": {"spec": pod(subject)},
    }
    content = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": subject.name},
        "spec": {
            "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
            "failurePolicy": {
                "maxRestarts": RESTARTS,
                "rules": [{"name": "mistake", "action": "FailJobSet", "onJobFailureReasons": ["PodFailurePolicy"]}],
            },
            "replicatedJobs": [{"name": JOB, "replicas": 1, "template": {"spec": pods}}],
        },
    }
    return text("A JobSet", subject, content)


def pod(subject: ManifestSubject) -> dict[str, Any]:
    """The pod of one machine. Pods start at different times, so each waits until the name of the first one resolves.

    The first waits until the name resolves to itself: after a restart it may still lead to the previous pod.
    """
    machines = subject.machines
    host = rendezvous(subject.name).partition(":")[0]
    resources = {"cpu": str(machines.cpus), **({"nvidia.com/gpu": str(machines.gpus)} if machines.gpus else {})}
    first_host = '[ "$JOB_COMPLETION_INDEX" != 0 ] || own="$POD_IP "'
    wait = f'{first_host}; until getent hosts {host} | grep -q "^$own"; do sleep 1; done'
    container = {
        "name": "manyheads",
        "image": subject.image,
        "command": ["sh", "-c", _literal(f"{wait}; exec {shlex.join(subject.command())}")],
        "env": [
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            *({"name": name, "value": _literal(value)} for name, value in subject.variables().items()),
        ],
        "ports": [{"containerPort": PORT}],
        "resources": {"requests": resources, "limits": resources},
        "volumeMounts": [
            {"name": "shared", "mountPath": str(subject.shared)},
            {"name": "memory", "mountPath": "/dev/shm"},
        ],
    }
    return {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 120,
        "containers": [container],
        "volumes": [
            {"name": "shared", "persistentVolumeClaim": {"claimName": subject.volume}},
            {"name": "memory", "emptyDir": {"medium": "Memory"}},
        ],
    }


def _literal(text: str) -> str:
    """``text`` escaped, so that Kubernetes expands no variables in it.

    Kubernetes replaces $(NAME) by a variable's value before the shell sees it, which could break out of quotes.
    Source: https://kubernetes.io/docs/tasks/inject-data-application/define-interdependent-environment-variables/.
    """
    return text.replace("$", "$$")
