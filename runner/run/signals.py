"""The signals by which a run is asked to stop."""

import signal

SIGNALS = (signal.SIGINT, signal.SIGTERM)
