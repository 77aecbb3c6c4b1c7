"""Query tables, exact in integers.

A table holds the masses p(q, x | u) that a scheme made, and `verify()` says without tolerance whether it is private. It
stands on `model` and knows no scheme. A change to `table` may touch every privacy identity; `files` and `show` may not.

    table  QueryTable, the masses p(q, x | u), and QuerySource, whatever queries can be drawn from
    files  tables saved and loaded
    show   tables as text and as pictures
"""
