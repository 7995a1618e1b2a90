"""Seeds are derived by a stable hash of names, never from global state or `hash()`."""

import hashlib
import random


def derive_seed(*parts: int | str) -> int:
    """A 63-bit seed that depends on every part and on their order.

    Parts are typically (run seed, step, stage, member). `1` and `"1"` give different seeds.
    """
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def derive_rng(*parts: int | str) -> random.Random:
    """A `random.Random` seeded by :func:`derive_seed`."""
    return random.Random(derive_seed(*parts))
