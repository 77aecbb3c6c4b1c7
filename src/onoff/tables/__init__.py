"""Query tables, exact in integers.

table  QueryTable, the masses p(q, x | u), and QuerySource, whatever queries can be drawn from
files  tables saved and loaded
"""
