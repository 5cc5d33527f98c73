"""A stranger's run.yaml has timm load a file of the user's, which old versions unpickle and all put into the run."""

from tests.in_process import config
from tests.trust.foreign import given


def attack(scene):
    scene.folder.joinpath("private.pth").write_text("secret")
    model = {
        "_target_": "manyheads.runner.model.rank.timm.timm_model",
        "_option_": "manyheads.runner.model.timm.TimmOption",
        "name": "resnet10t",
        "num_classes": 10,
        "pretrained": None,
        "drop_rate": None,
        "drop_path_rate": None,
    }
    for key in ("checkpoint_path", "features_only", "pretrained_cfg"):
        options = {key: str(scene.folder / "private.pth")}
        folder = given(scene.folder / key, config() | {"model": model | {"options": options}})
        scene.refused("resume", str(folder), naming="model.options=")
        assert sorted(path.name for path in folder.iterdir()) == ["run.yaml"]
