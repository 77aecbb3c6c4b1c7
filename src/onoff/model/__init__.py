"""How requests follow one another, and what hiding them must cost.

rows         p(x|u) as exact integers, each row summing to UNIT
chain        MarkovChain: first order, dense or sparse
contexts     RequestModel: contexts of any order, types of people; `context_tree` is how they follow one another
files        both, read and written
bounds       lower and upper bounds on the cost, each labelled with its side
certificate  proofs of lower bounds; `checker` is the one function that accepts them, `certificate_json` their file form
patterns     "ON OFF*10"
"""
