"""The one door for what comes from others: who asks it, and that nobody behind it asks again."""

from tests.house.imports import imports

TRUST = "manyheads.runner.trust"
ASK = {
    "runner.config.origin": "a command line, with the configs that it names",
    "runner.provenance.past_config": "a run or a config that was recorded",
    "runner.records.load_run": "the classes that a record names",
    "launchers.sweep.run_jobs": "the jobs that a ledger names",
    "runner.commands.trust": "the user, who trusts a folder",
    "runner.commands.init": "the user, who trusts a new project",
}


def test_content_is_admitted_by_the_module_that_reads_it_and_by_no_other():
    asking = {one.importer for one in imports() if f"{one.module}.".startswith(f"{TRUST}.")}
    product = {module.removeprefix("manyheads.") for module in asking if not module.startswith("tests.")}
    assert {module for module in product if not module.startswith("runner.trust")} == {*ASK}
