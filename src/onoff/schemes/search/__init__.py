"""How the certified optimum is found: a portfolio of strategies.

portfolio    the problem, the board, the clock, and the loop over strategies
kinds        kinds of rows, for which strategies are worth their time
master       the master program over masses of sets, pricing, column generation
flow         maximum flows: which Hall cuts are violated, and what each row takes
exact        from proposed floats to an exact table; repair; components
proofs       certificates: duals, trees, supports
samples      sets to start with
herding      sets that are best at prices that follow what was taken
few_rows     few rows over many sources, outright
orbits       rows with symmetries
hull         rows inside the convex hull of others
group_bound  a bound for many sparse rows
lookahead    among equally cheap tables, one with cheap successors
"""
