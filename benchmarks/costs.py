"""First costs of this version over those of another one, on the families of the results page: none may be higher.

    python benchmarks/costs.py /path/to/the/other/tree [--sizes 10 20 40] [--budget 5]

Both versions design the same chains with the scheme `optimal` and the same budget of processor time, each in a process
of its own with its own source tree. Prints the ratio new / old for every family and size.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
SAME = 1e-6
"""Costs that differ by less, relatively, are equal: it is how near to the bound a search comes."""
DESIGN = """
import json, sys
import numpy as np
from onoff.schemes import design
budget, made = float(sys.argv[1]), np.load(sys.argv[2])
print(json.dumps({name: design(made[name], "optimal", budget=budget).cost for name in made.files}))
"""


def costs(tree: Path, budget: float, chains: Path) -> dict[str, float]:
    """The cost of every chain of a file by the version in a source tree."""
    where = {**os.environ, "PYTHONPATH": str(tree / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    arguments = [sys.executable, "-c", DESIGN, str(budget), str(chains)]
    done = subprocess.run(arguments, env=where, capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout))


def main() -> int:
    """Run and print."""
    import tempfile

    import numpy as np

    sys.path.insert(0, str(HERE / "src"))
    from onoff.lab.families import FAMILIES

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("other", type=Path, help="the source tree of the other version")
    parser.add_argument("--sizes", type=int, nargs="+", default=[10, 20, 40])
    parser.add_argument("--budget", type=float, default=5.0)
    options = parser.parse_args()
    made = {f"{name}, {n}": make(n, np.random.default_rng(1)) for name, make in FAMILIES.items() for n in options.sizes}
    with tempfile.TemporaryDirectory() as folder:
        chains = Path(folder) / "chains.npz"
        np.savez(chains, **made)
        before = costs(options.other, options.budget, chains)
        now = costs(HERE, options.budget, chains)
    dearer = 0
    for name, cost in now.items():
        ratio = cost / before[name]
        dearer += ratio > 1 + SAME
        print(f"{name}: {before[name]:.6f} -> {cost:.6f}, ratio {ratio:.6f}{' DEARER' if ratio > 1 + SAME else ''}")
    print(f"{len(now)} chains, {dearer} dearer")
    return 1 if dearer else 0


if __name__ == "__main__":
    sys.exit(main())
