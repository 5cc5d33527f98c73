"""A key or a password that is typed as a value is recorded in the run, the sweep's ledger and the tracker."""


def attack(scene):
    typed = "+callbacks.tell={_target_:my_package.Tell,url:'https://bob:hunter2@127.0.0.1/x',api_key:SECRETKEY}"
    for flags in ((), ("-m", "seed=1,2")):
        run, sweep = scene.folder / "run", scene.folder / "sweep"
        done = scene.here("train", *flags, typed, f"hydra.run.dir={run}", f"hydra.sweep.dir={sweep}")
        assert done.code == 2, done.err
        assert "looks like a key or a password" in done.err, done.err
        assert not any(word in done.out + done.err for word in ("hunter2", "SECRETKEY"))
        assert not run.exists()
        assert not sweep.exists()
