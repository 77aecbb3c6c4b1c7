# %% [markdown]
# # A researcher's notebook, as a script
# Run it as it is (`python examples/notebook.py`) or cell by cell in an editor that knows `# %%`.
#
# The question: how far is the paper's Algorithm 1 from the optimum, and does remembering only the last query cost
# anything against the paper's Bayes filter?

# %%
import numpy as np

import onoff
from onoff.audit.exact import audit_exact
from onoff.lab.families import FAMILIES
from onoff.lab.walk import Pattern, States, expected_costs, lower_bounds

SEED = 7

# %% [markdown]
# ## One step
# The rows are what must be told apart: here the chain's own, so the last request is hidden.

# %%
print(f"{'family':<16}{'inner':>8}{'greedy':>8}{'optimal':>9}{'lower':>8}")
for family in ("dirichlet 1", "sticky", "small diagonal", "out-degree 2"):
    P = FAMILIES[family](8, np.random.default_rng(SEED))
    bound = onoff.bounds(P)
    greedy, optimal = onoff.design(P, "greedy"), onoff.design(P, "optimal")
    greedy.verify()  # by equality of integers: p(q|u) is the same for every u
    optimal.verify()
    print(f"{family:<16}{bound.inner:8.3f}{greedy.cost:8.3f}{optimal.cost:9.3f}{bound.lower:8.3f}")

# %% [markdown]
# ## Many steps
# Expected costs are exact here: the public states are few, so their law is pushed forward without any sampling.

# %%
chain = onoff.MarkovChain(FAMILIES["dirichlet 1"](4, np.random.default_rng(SEED)))
pattern = Pattern.parse("ON OFF*3")
curves = {}
for memory in ("last-query", "bayes-filter"):
    costs = expected_costs(States(chain, "greedy", memory), pattern)
    assert costs is not None
    curves[memory] = [step.cost for step in costs]
print(f"\n{'request':>8}{'last query':>12}{'filter':>9}{'at least':>10}")
for t, (ours, paper, least) in enumerate(zip(*curves.values(), lower_bounds(chain, pattern), strict=True)):
    print(f"{t:>8}{ours:12.4f}{paper:9.4f}{least:10.4f}")

# %% [markdown]
# ## Does it leak?
# Every request path and every random branch of the real session, with exact probabilities.

# %%
audit = audit_exact(chain, "greedy", pattern.statuses)
print(f"\nleak {audit.leak} bits, decided by equality; naive switching {sum(audit.naive):.4f} bits")
