"""``python -m runner evaluate``: the run's own numbers again, others on other data, whatever model and data it had."""

import json
import shutil

import pytest

import manyheads
from manyheads.runner.run.run_folder import RunFolder
from tests.data.conftest import save_photos
from tests.in_process import small, train

HERE = "hydra.run.dir=evaluation"
MEASURED = ("val_loss", "val_acc1", "val_acc5", "val_samples")


def metrics(folder: RunFolder, name: str = "metrics") -> dict:
    found = folder.read_result()[name]
    return {key: found[key] for key in MEASURED if key in found}


def test_the_run_s_own_numbers_in_a_folder_that_says_whose_they_are(command, tmp_path, photo_run):
    done = command("evaluate", photo_run.folder.path, HERE)
    assert done.code == 0, done.err
    folder = RunFolder(tmp_path / "evaluation")
    best = metrics(photo_run.folder, "best")
    assert {name: metrics(folder)[name] for name in best} == best
    assert f"{best['val_acc1']:.2f}%" in done.out
    result = folder.read_result()
    assert result["evaluation"] == {"of": str(photo_run.folder.path), "weights": "best", "overrides": [HERE]}
    assert (result["status"], result["steps"]) == ("completed", 0)
    provenance = json.loads(folder.provenance.read_text())
    assert provenance["composed_from"] == str(photo_run.folder.config)
    assert folder.read_config()["checkpoint"]["load"] == str(photo_run.folder.best_checkpoint)


def test_the_last_weights(command, tmp_path, photo_run):
    assert command("evaluate", photo_run.folder.path, HERE, "--weights", "last").code == 0
    assert metrics(RunFolder(tmp_path / "evaluation")) == metrics(photo_run.folder)


def test_other_data(command, tmp_path, photo_run):
    others = save_photos(tmp_path / "others", train=1, val=5)
    done = command("evaluate", photo_run.folder.path, f"data.root={others}", HERE)
    assert done.code == 0, done.err
    assert metrics(RunFolder(tmp_path / "evaluation"))["val_samples"] == 15
    assert "warning" not in done.out


@pytest.fixture(scope="module")
def drawn_run(tmp_path_factory):
    """A run of photos in class folders alone, a fifth of which validated."""
    folder = tmp_path_factory.mktemp("drawn")
    photos = save_photos(folder / "photos", train=10, val=1) / "train"
    data = ("data=imagefolder", f"data.root={photos}", "data.image_size=8", "data.val_fraction=0.2")
    return train(folder / "run", small(*data, "data.num_workers=0", "trainer.max_steps=1"))


@pytest.mark.parametrize(
    ("part", "overrides", "samples", "row"),
    [
        ("val", (), 15, "all 15 samples"),
        (".", (), 15, "15 validation samples"),
        ("val", ("data.val_fraction=0.4",), 6, "6 (data.val_fraction=0.4) of 15 samples"),
    ],
)
def test_all_samples_of_other_data_are_measured(command, tmp_path, drawn_run, part, overrides, samples, row):
    """Or those that it has for validation, whatever part of the run's own data validated."""
    others = save_photos(tmp_path / "others", train=2, val=5)
    done = command("evaluate", drawn_run.folder.path, f"data.root={others / part}", *overrides, HERE)
    assert done.code == 0, done.err
    assert metrics(RunFolder(tmp_path / "evaluation"))["val_samples"] == samples
    assert f"data       imagefolder, {row}, 3 classes" in done.out
    assert "warning" not in done.out + done.err


def test_the_run_s_own_data_has_the_samples_that_validated(command, tmp_path, drawn_run):
    done = command("evaluate", drawn_run.folder.path, HERE)
    assert done.code == 0, done.err
    assert "data       imagefolder, 6 (data.val_fraction=0.2) of 30 samples, 3 classes" in done.out
    assert metrics(RunFolder(tmp_path / "evaluation"))["val_samples"] == 6


def test_class_folders_are_measured_by_a_run_that_had_validation_samples(command, tmp_path, photo_run):
    others = save_photos(tmp_path / "others", train=1, val=5) / "val"
    done = command("evaluate", photo_run.folder.path, f"data.root={others}", HERE)
    assert done.code == 0, done.err
    assert "all 15 samples" in done.out


def test_which_part_of_other_data_is_measured_must_be_clear(command, tmp_path, drawn_run):
    others = save_photos(tmp_path / "others", train=2, val=5)
    (others / "val").rename(others / "test")
    done = command("evaluate", drawn_run.folder.path, f"data.root={others}", HERE)
    assert done.code == 2, done.out
    assert f"data.root={others}: it holds train/ and test/, but no val/. Set data.root to {others}/test or" in done.err


def test_a_run_s_own_data_may_have_a_test_split_instead(command, tmp_path):
    photos = save_photos(tmp_path / "photos", train=10, val=5)
    (photos / "val").rename(photos / "test")
    data = ("data=imagefolder", f"data.root={photos}", "data.image_size=8", "data.val_fraction=0.2")
    run = train(tmp_path / "run", small(*data, "data.num_workers=0", "trainer.max_steps=1"))
    done = command("evaluate", run.folder.path, HERE)
    assert done.code == 0, done.err
    assert metrics(RunFolder(tmp_path / "evaluation"))["val_samples"] == 6


def test_data_of_other_classes_is_pointed_out(command, tmp_path, photo_run):
    others = save_photos(tmp_path / "others", train=1, val=1)
    for split in ("train", "val"):
        (others / split / "cat").rename(others / split / "dog")
    done = command("evaluate", photo_run.folder.path, f"data.root={others}", HERE)
    assert done.code == 0, done.err
    assert "warning: the weights were trained for different classes: cat, coffee, person" in done.out


def test_data_of_fewer_classes_is_refused_in_these_words(command, tmp_path, photo_run):
    others = save_photos(tmp_path / "others", train=1, val=1)
    for split in ("train", "val"):
        shutil.rmtree(others / split / "cat")
    done = command("evaluate", photo_run.folder.path, f"data.root={others}", HERE)
    assert done.code == 2
    assert not (tmp_path / "evaluation").exists()
    assert "was trained for 3 classes, and this data has 2. Evaluate it on data of the same classes" in done.err


def test_without_a_name_the_folder_is_a_fresh_one(command, tmp_path, photo_run):
    assert command("evaluate", photo_run.folder.path).code == 0
    (folder,) = (tmp_path / "outputs").glob("*/*")
    assert RunFolder(folder).read_result()["status"] == "completed"


def custom(path, *overrides: str):
    data = ("data=custom", "data._target_=tests.serve.nets.Bytes", "data.num_workers=0", "data.batch_size=8")
    model = ("model=custom", "model._target_=tests.serve.nets.Net", "+model.width=5")
    return train(path, small(*data, *model, "trainer.max_steps=1", *overrides))


def test_a_model_and_a_data_set_of_one_s_own(command, tmp_path):
    run = custom(tmp_path / "run")
    done = command("evaluate", run.folder.path, HERE)
    assert done.code == 0, done.err
    assert metrics(RunFolder(tmp_path / "evaluation")) == metrics(run.folder)


@pytest.mark.processes
def test_by_another_strategy(command, tmp_path, photo_run):
    overrides = ("parallel=ddp", "launcher.nproc_per_node=2", HERE)
    done = command("evaluate", photo_run.folder.path, *overrides)
    assert done.code == 0, done.err
    found, expected = metrics(RunFolder(tmp_path / "evaluation")), metrics(photo_run.folder, "best")
    assert found["val_loss"] == pytest.approx(expected["val_loss"], rel=1e-5)
    assert found["val_acc1"] == pytest.approx(expected["val_acc1"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "holds no run"),
        (["{run}", "--weights", "worst"], "worst: there are no such weights. Allowed: best, last"),
        (["{run}", "data.root=nowhere"], "Set data.root to the folder that holds"),
        (["{run}", "data.rot=1"], "data.rot"),
    ],
)
def test_what_does_not_fit_is_said_and_leaves_no_folder(command, tmp_path, photo_run, arguments, message):
    done = command("evaluate", *(each.format(run=photo_run.folder.path) for each in arguments))
    assert done.code == 2, done.out
    assert message in done.err
    assert "Traceback" not in done.err
    assert not list((tmp_path / "outputs").rglob("run.yaml"))


def test_a_folder_that_is_taken_is_refused(command, tmp_path, photo_run):
    done = command("evaluate", photo_run.folder.path, f"hydra.run.dir={photo_run.folder.path}")
    assert done.code == 2
    assert "already holds a run" in done.err
    assert photo_run.folder.read_result()["steps"] == 3


def test_a_model_in_a_file(command, tmp_path):
    file = tmp_path / "my_model.py"
    file.write_text(
        "from torch import nn\n\n\nclass Net(nn.Sequential):\n    def __init__(self, num_classes):\n"
        "        super().__init__(nn.Flatten(), nn.Linear(192, num_classes))\n"
    )
    run = train(tmp_path / "run", small("model=custom", f"model._target_='{file}:Net'", "trainer.max_steps=1"))
    assert manyheads.load(run.folder.path).model[1].out_features == 3
    done = command("evaluate", run.folder.path, HERE)
    assert done.code == 0, done.err
    assert metrics(RunFolder(tmp_path / "evaluation")) == metrics(run.folder)
