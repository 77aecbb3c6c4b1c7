"""How the certified optimum is found.

search                one run, step by step, with the best proof so far
cheapest              tables of proposed masses; the cheapest one so far
clock                 how long it may go on
transport             masses for given sets, without a linear program
breeding, descent     better sets and masses for few rows over many sources
symmetry, orbits      rows with symmetries: one unknown for all images of a set
swapping              sparse rows: couplings made cheaper by exchanges
parts                 rows without a source in common, solved separately
racing                rows too many for a program: a table from races of what races leave
ahead                 among equally cheap tables, one with cheap successors
horizon               what the rest of a run costs after a query, by dynamic programming over sets
hall, flow            the master program over masses of sets, and the cuts that it must meet
pricing, proposals    sets worth adding
branching             the most that any set can gain, proved by a tree
blocks                few rows over many sources
rebuild, repair       from proposed floats to an exact table
successors            the cost of what follows a query, for choosing among optima
proofs                certificates from the duals
"""
