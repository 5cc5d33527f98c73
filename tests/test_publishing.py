"""What is published and how: one version, the workflow, the image, the forms of the hosting service."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from manyheads import __version__
from tests.conftest import ROOT
from tests.needs import tool

GITHUB = ROOT / ".github"
WORKFLOW = GITHUB / "workflows" / "publish.yml"


def jobs() -> dict[str, Any]:
    return yaml.safe_load(WORKFLOW.read_text())["jobs"]


def steps(job: str) -> list[dict[str, Any]]:
    return jobs()[job]["steps"]


def checked(*command: str | Path) -> None:
    done = subprocess.run([tool(str(command[0])), *command[1:]], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_citation_has_the_version():
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == __version__


def test_the_workflow_builds_once_by_the_command_that_tests_use():
    builds = [step["run"] for job in jobs() for step in steps(job) if "build" in step.get("name", "").lower()]
    assert builds == [".ci/dist dist"]
    dist = (ROOT / ".ci" / "dist").read_text()
    assert "--require-hashes" in dist


def test_nothing_is_published_untested_and_the_password_of_one_job_is_its_identity():
    assert (jobs()["publish"]["needs"], jobs()["test"]["needs"]) == ("test", "build")
    assert yaml.safe_load(WORKFLOW.read_text())["permissions"] == {}
    granted = {name: job["permissions"] for name, job in jobs().items() if "permissions" in job}
    assert granted == {"build": {"contents": "read"}, "publish": {"id-token": "write"}}
    assert jobs()["publish"]["environment"]["name"] == "pypi"
    assert "secrets." not in WORKFLOW.read_text()
    *_, upload = steps("publish")
    assert upload["with"] == {"attestations": True}


def test_actions_are_pinned_by_commit():
    used = [step["uses"] for job in jobs() for step in steps(job) if "uses" in step]
    assert used
    assert all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", one) for one in used), used


@pytest.mark.needs("zizmor")
def test_an_auditor_of_workflows_finds_nothing():
    checked("zizmor", "--offline", "--quiet", "--strict-collection", GITHUB)


@pytest.mark.needs("hadolint")
def test_a_linter_of_images_finds_nothing():
    checked("hadolint", ROOT / "Dockerfile")


def test_the_image_has_no_other_input_than_the_wheel_and_no_privileges():
    text = (ROOT / "Dockerfile").read_text()
    instructions = [line.split()[0] for line in text.splitlines() if re.match(r"[A-Z]+ ", line)]
    assert not {"COPY", "ADD"} & {*instructions}
    assert re.findall(r"/dist/\S+", text) == ['/dist/manyheads-*.whl)${EXTRAS}"']
    assert re.search(r"^USER \d{5}$", text, re.MULTILINE)
    assert re.search(r'^ENTRYPOINT \["manyheads"\]$', text, re.MULTILINE)


@pytest.mark.parametrize("name", ["bug", "feature"])
def test_forms_ask_for_something_and_have_distinct_names(name):
    form = yaml.safe_load((GITHUB / "ISSUE_TEMPLATE" / f"{name}.yml").read_text())
    assert {"name", "description", "body"} <= {*form}
    asked = [field["id"] for field in form["body"] if field["type"] != "markdown"]
    assert len({*asked}) == len(asked) > 1


def test_a_report_of_a_bug_has_what_our_commands_print():
    text = (GITHUB / "ISSUE_TEMPLATE" / "bug.yml").read_text()
    assert {"doctor", "show", "diff", "parity", "reproduce"} == {*re.findall(r"`manyheads (\w+)", text)}


def test_links_of_the_pages_beside_the_readme_lead_somewhere():
    for page in (ROOT / "SECURITY.md", GITHUB / "PULL_REQUEST_TEMPLATE.md"):
        for link in re.findall(r"\]\(([^)#]+)", page.read_text()):
            assert (page.parent / link).exists(), link
