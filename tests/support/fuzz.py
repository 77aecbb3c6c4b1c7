"""Injured inputs for strict readers: whatever is accepted must be exactly what the writer writes."""

import random
from collections.abc import Callable

from onoff.errors import InvalidWire


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


def mutate_frames(rng: random.Random, frames: list[bytes], damage: Callable[[bytes], bytes]) -> bytes:
    """An answer of these frames, in another order, with one twice, with one damaged, or damaged as a whole."""
    match rng.randrange(4):
        case 0:
            rng.shuffle(frames)
        case 1:
            frames.insert(rng.randrange(4), rng.choice(frames))
        case 2:
            at = rng.randrange(len(frames))
            frames[at] = damage(frames[at])
        case _:
            return mutate(rng, b"".join(frames))
    return b"".join(frames)


def run_fuzz(parser: Callable, count: int, seed: int) -> int:
    """Feed `count` injured inputs; return how many were accepted, each of which must be canonical."""
    rng = random.Random(seed)
    accepted = 0
    for _ in range(count):
        data, again = parser(rng)
        try:
            written = again(data)
        except InvalidWire:
            continue
        assert written == data, data.hex()
        accepted += 1
    return accepted
