"""A few lines of a received samples.csv claim more updates or samples than time and memory suffice for."""

import time

from tests.in_process import config
from tests.trust.foreign import given

ROWS = "epoch,first,step,samples,digest,of,bits,again\n1,1,{last},64,0123456789abcdef,{of},,\n1,1,{last},,,{of},eAE=,\n"


def attack(scene):
    run = given(scene.folder / "theirs", config())
    for last, of, code in ((10**15, 1024, 2), (16, 2**36, 2)):
        (run / "samples.csv").write_text(ROWS.format(last=last, of=of))
        began = time.monotonic()
        done = scene.here("audit", "--records", str(run))
        assert time.monotonic() - began < 15
        assert done.code == code, done.out + done.err
