"""How the certified optimum is found: a portfolio of strategies.

portfolio    the problem, the board, the clock, and the loop over strategies
master       the master program over masses of sets, pricing, column generation
flow         maximum flows: which Hall cuts are violated, and what each row takes
exact        from proposed floats to an exact table; repair; components
proofs       certificates: duals, trees, supports
herding      sets that are best at prices that follow what was taken; random samples
few_rows     few rows over many sources, outright
orbits       rows with symmetries
hull         rows inside the convex hull of others
lookahead    among equally cheap tables, one with cheap successors
"""
