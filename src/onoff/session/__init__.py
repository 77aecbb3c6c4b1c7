"""Who asks: one request in, one query out.

session  Session and Query
memory   what the next query must hide, and what it may depend on
cache    TableCache: the tables of one chain, built once
entropy  where randomness comes from; `seeded` is for experiments only
"""

from onoff.session.session import Query, Session

__all__ = ["Query", "Session"]
