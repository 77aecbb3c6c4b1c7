"""Marks that several modules of tests share."""

import platform

import pytest

KILLED_AT_EVERY_CALL = [
    pytest.mark.slow(reason="a process is started, traced and killed for each of hundreds of system calls"),
    pytest.mark.skipif(
        platform.machine() != "x86_64",
        reason="a kill at each system call needs its number, which the tracer reads from the registers of x86-64",
    ),
]
