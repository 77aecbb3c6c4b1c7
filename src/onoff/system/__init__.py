"""What every program needs of its machine: files written whole, listening sockets, orderly shutdown, compiled loops."""
