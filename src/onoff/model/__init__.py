"""How requests follow one another, and what hiding them must cost.

Probabilities become integers here, once, and stay integers. The room stands on `system` alone and draws nothing: it has
no randomness and no I/O but its files. A change to `rows`, `certificate` or `checker` may touch every promise of
exactness; a change to `learn` or `fitting` touches which model is chosen, never whether a table is private under it.

    rows         p(x|u) as exact integers, each row summing to UNIT
    chain        MarkovChain: first order, dense or sparse; templates; the names of sources
    contexts     RequestModel: contexts of any order, types of people; `context_tree` is how they follow one another
    people       OpenHistory, what a person openly asked; own_law, the model of that person
    fitting      types and contexts fitted to requests; `choosing` compares orders and numbers of types
    traces       real requests, read; `learn` makes a model of them
    bounds       lower and upper bounds on the cost, each labelled with its side
    certificate  proofs of lower bounds; `checker` is the one function that accepts them
    files        chains and models, read and written; `origin`: where a model comes from
    notebook     HTML and figures for notebooks
    patterns     "ON OFF*10"
"""
