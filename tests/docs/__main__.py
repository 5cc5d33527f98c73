"""Build the site in build/docs/site. ``make docs``."""

import sys
from pathlib import Path

from tests.conftest import ROOT
from tests.docs.site import build

if __name__ == "__main__":
    folder = ROOT / "build" / "docs"
    code = build(folder)
    print(Path(folder / "site" / "index.html"))
    sys.exit(code)
