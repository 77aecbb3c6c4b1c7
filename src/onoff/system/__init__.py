"""Shared services: atomic writes, listening sockets, orderly shutdown, interrupts, compiled loops."""
