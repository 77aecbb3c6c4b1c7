"""Injured inputs for strict readers."""

import random


def mutate(rng: random.Random, data: bytes) -> bytes:
    """`data` with one to three small injuries: bits, bytes, slices lost, doubled, swapped or made extreme."""
    out = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(out) + 1)
        size = rng.choice((1, 1, 2, 4, 8, 16))
        match rng.randrange(7):
            case 0 if at < len(out):
                out[at] ^= 1 << rng.randrange(8)
            case 1:
                out[at : at + size] = rng.randbytes(size)
            case 2:
                del out[at : at + size]
            case 3:
                out[at:at] = out[at : at + size]
            case 4:
                out[at : at + size] = rng.choice((b"\0", b"\xff", b"\x7f", b'"', b",", b"[")) * size
            case 5:
                del out[at:]
            case _:
                out += rng.randbytes(rng.choice((1, 2, 16)))
    return bytes(out)
