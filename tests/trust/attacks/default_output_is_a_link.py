"""Links in a folder that was received have the names of files that commands write into the working directory."""

from pathlib import Path
from types import SimpleNamespace

import torch

from manyheads.runner.charts.picture_file import write_picture
from manyheads.runner.serve.rank import predict_images


def attack(scene):
    received, profile = scene.new("received"), scene.folder / "profile"
    profile.write_text("mine")
    scene.patch.chdir(received)
    for name in ("predictions.csv", "scale.png"):
        Path(name).symlink_to(profile)
    scene.patch.setattr(predict_images, "answers", lambda trained, files: [("$(touch mark).png", "unreadable")])
    Path("a.png").touch()
    trained = SimpleNamespace(model=torch.nn.Identity(), description=SimpleNamespace(num_classes=2))
    predict_images.predict_files(trained, ["a.png"], Path("predictions.csv"), device="cpu")
    write_picture("scale.png", b"picture")
    assert profile.read_text() == "mine"
