"""Sessions: one request in, one query out.

A session remembers what must stay hidden, asks a scheme for the table, and draws once. It stands on `schemes` and
`tables` and does no I/O: who sends the query, and whether it arrives, is the client's business. A change here may touch
privacy over time, which the exact audit enumerates; tables stay private whatever happens here.

    session   Session, Query; Memory, what the next query must hide; TableCache; where randomness comes from
    memories  the last query (chains; models of one type), and the paper's filter
    filter    the filter for any model
"""

from onoff.session.session import Query, Session

__all__ = ["Query", "Session"]
