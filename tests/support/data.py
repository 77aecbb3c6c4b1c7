"""Where the MSNBC data set is, if it is anywhere: it is not part of the project."""

import os
from pathlib import Path

import pytest

MSNBC = Path(os.environ.get("ONOFF_DATA", Path(__file__).parents[3] / "shared" / "data")) / "msnbc990928.zip"

needs_msnbc = pytest.mark.skipif(not MSNBC.exists(), reason=f"no data set at {MSNBC}; set ONOFF_DATA to its folder")
