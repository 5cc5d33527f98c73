"""``trust`` says that a config names only the project's own code, while it asks for the user's keys."""

from tests.in_process import config
from tests.trust.foreign import given


def attack(scene):
    scene.patch.setenv("MY_API_KEY", "hunter2")
    asking = {"notes": "${oc.env:MY_API_KEY}", "tags": ["${oc.${name}:HOME,none}"], "hydra": {"job": {"name": "x"}}}
    given(scene.folder / "a", config() | asking)
    shown = scene.here("trust", str(scene.folder / "a")).out
    assert "a: asks for ${oc.env:MY_API_KEY}\n" in shown
    assert "a: asks for ${oc.${name}:HOME,none}\n" in shown
    assert "a: changes Hydra's own settings: hydra\n" in shown
    assert "names only this project's own code" not in shown
    assert "hunter2" not in shown
