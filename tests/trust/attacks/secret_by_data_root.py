"""A stranger's run.yaml reads a file of the user's as blocks of one token, whose targets are written to a table."""

from tests.in_process import config
from tests.trust.foreign import given


def attack(scene):
    for name in ("id_rsa", "a.txt"):
        (scene.folder / name).write_text("TOPSECRET" * 50)
    sent = config("data=text", f"data.root={scene.folder}", "data.block_size=1", "task=language_model", "model=gpt",
                  "callbacks=[predictions]", "logger=[]")  # fmt: skip
    for root in (f"{scene.folder}/id_rsa", "id_rsa", "../id_rsa", f"{scene.folder}/sent0/../id_rsa", "~/x"):
        data = sent["data"] | {"root": root}
        folder = given(scene.folder / f"sent{len(list(scene.folder.glob('sent*')))}", sent | {"data": data})
        scene.refused("resume", str(folder), naming="data.root=")
        assert sorted(path.name for path in folder.iterdir()) == ["run.yaml"]
