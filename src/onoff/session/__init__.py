"""Sessions: one request in, one query out.

session  Session and Query
memory   what the next query must hide, and what it may depend on:
         `last_query` (chains; models of one type), `bayes` (the paper's filter), `filter` (any model)
cache    TableCache: the tables of one model, built once
entropy  where randomness comes from; `seeded` is for experiments only
"""

from onoff.session.session import Query, Session

__all__ = ["Query", "Session"]
