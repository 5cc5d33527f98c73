"""How good the predictions of ``manyheads scale`` are: compared with runs on this machine."""
