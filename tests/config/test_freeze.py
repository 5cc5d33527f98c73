import pytest
from omegaconf import OmegaConf

from manyheads.runner.config.freeze import checked, freeze
from manyheads.runner.errors import ConfigurationError, Unavailable, warn
from manyheads.runner.machine import hardware
from manyheads.runner.machine.gpus import Board
from manyheads.runner.run.run_folder import RunFolder
from tests.in_process import composed


def test_once_and_never_again(tmp_path):
    folder = RunFolder(tmp_path / "run")
    frozen = freeze(folder, composed("seed=3"))
    assert folder.read_config() == frozen.written == checked(composed("seed=3")).written
    assert frozen.launcher.nproc_per_node == 1
    before = folder.config.read_bytes()
    with pytest.raises(ConfigurationError, match="already holds a run"):
        freeze(folder, composed("seed=4"))
    assert folder.config.read_bytes() == before


def test_a_run_is_planned_until_it_starts(tmp_path):
    folder = RunFolder(tmp_path / "run")
    assert not folder.is_planned()
    freeze(folder, composed())
    assert folder.is_planned()
    folder.provenance.write_text("{}")
    assert not folder.is_planned()


def test_what_is_refused_leaves_nothing(tmp_path):
    for overrides, error in ((("trainer.epochs=0",), ConfigurationError), (("precision=tf32",), Unavailable)):
        if error is Unavailable and hardware.gpu_names():
            continue
        with pytest.raises(error):
            freeze(RunFolder(tmp_path / "run"), composed(*overrides))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("own", "timeout", "expected"), [("null", None, None), ("null", 3, 3), ("2", 3, 2)])
def test_a_sweeps_time_limit_is_for_those_without_one(own, timeout, expected):
    assert checked(composed(f"launcher.timeout={own}"), timeout=timeout).launcher.timeout == expected


def test_what_is_not_there_comes_before_what_does_not_fit():
    """A sweep skips such a job, whatever its batch."""
    if hardware.gpu_names():
        return
    with pytest.raises(Unavailable):
        checked(composed("precision=tf32", "parallel=ddp", "data.batch_size=33"))


def test_the_composed_config_stays_as_it_was():
    config = composed("parallel=ddp")
    before = OmegaConf.to_yaml(config)
    checked(config)
    assert OmegaConf.to_yaml(config) == before


@pytest.mark.parametrize(
    ("device", "visible", "says"),
    [
        ("auto", "MIG-9999", True),
        ("cpu", "MIG-9999", False),
        ("auto", "0", False),
        ("auto", "", False),  # hidden on purpose
        ("auto", "-1", False),
    ],
)
def test_a_run_on_the_cpu_beside_a_driver_is_said_aloud_once(monkeypatch, tmp_path, capsys, device, visible, says):
    monkeypatch.setattr(hardware, "_driver", lambda: ("999.9", [Board("Some GPU", "GPU-1")]))
    monkeypatch.setattr(hardware, "torch_cuda_version", lambda: "13.0")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    warn.cache_clear()
    for job in "12":  # of a sweep
        freeze(RunFolder(tmp_path / job), composed(f"trainer.device={device}"))
    err = capsys.readouterr().err
    begins = "warning: trainer.device=auto: this run trains on the CPU. NVIDIA's driver 999.9 has Some GPU, but CUDA_"
    assert (err.count("warning"), err.startswith(begins)) == ((1, True) if says else (0, False))
    warn.cache_clear()


@pytest.mark.parametrize(("threads", "says"), [("auto", True), ("2", False)])
def test_a_number_of_threads_that_is_not_used_is_said(monkeypatch, capsys, threads, says):
    monkeypatch.setenv("OMP_NUM_THREADS", "1000")
    warn.cache_clear()
    checked(composed(f"launcher.threads_per_rank={threads}"))
    warn.cache_clear()
    begins = "warning: OMP_NUM_THREADS=1000 is not used. "
    assert capsys.readouterr().err.startswith(begins) == says
