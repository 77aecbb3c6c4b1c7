"""How the certified optimum is found.

hall, flow            the master program over masses of sets, and the cuts that it must meet
pricing, proposals    sets worth adding
blocks                rows that fall into independent parts
rebuild, repair       from proposed floats to an exact table
successors            the cost of what follows a query, for choosing among optima
certificate           the proof that no table is cheaper
"""
