"""Folders for journals, and the process that kills clients."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from tests.support.killing import Killer


@pytest.fixture
def quick_folder(tmp_path):
    """A folder in memory where there is one: for tests that kill processes, not the power."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    folder = Path(tempfile.mkdtemp(dir=memory, prefix="onoff-"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def killer():
    killer = Killer()
    yield killer
    killer.close()
