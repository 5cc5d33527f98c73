"""The digest of a divided model's weights at the end of a run: of complete tensors, of which one is there at a time."""

import json

import pytest

from manyheads.launchers.environment import file_rendezvous, variables_set
from manyheads.runner.checkpoint.rank.load import weights_sha256
from manyheads.runner.parallel.rank.model_parallel.tensor_assembly import Assembly
from tests.in_process import small, train, weights
from tests.torch_versions import from_torch


@from_torch("2.7")
def test_no_rank_holds_the_complete_model(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    together: list[int] = []
    gathered = Assembly.gathered

    def counted(self, tensors):
        together.append(len(tensors))
        return gathered(self, tensors)

    monkeypatch.setattr(Assembly, "gathered", counted)
    options = small("parallel=fsdp", "launcher=inline", "checkpoint.format=sharded", "trainer.max_steps=2")
    with file_rendezvous() as meeting, variables_set(meeting):
        session = train(tmp_path, options)
        expected = weights_sha256({name: weight.full_tensor() for name, weight in weights(session.trainer).items()})
        session.trainer.update.parallel.leave()
    assert json.loads(session.folder.result.read_text())["weights_sha256"] == expected
    assert max(together) == 1
