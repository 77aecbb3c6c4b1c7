"""What every program needs of its machine: atomic writes, listening sockets, orderly shutdown, compiled loops."""
