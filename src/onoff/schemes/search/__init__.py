"""How the certified optimum is found.

clock                 how long the search may go on
hall, flow            the master program over masses of sets, and the cuts that it must meet
pricing, proposals    sets worth adding
branching             the most that any set can gain, proved by a tree
blocks                few rows over many sources
rebuild, repair       from proposed floats to an exact table
successors            the cost of what follows a query, for choosing among optima
proofs                certificates from the duals
"""
