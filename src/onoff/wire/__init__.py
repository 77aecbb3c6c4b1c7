"""What travels between client and server: bitmap queries, answers of frames, changes since an edition.

Shared by both ends and free of I/O; it stands on `errors` and `names`. Everything has exactly one form: what `encode_*`
writes is the only thing that `decode_*` accepts, so no choice of encoding can carry a hint of which source is wanted. A
change of a form touches every server and client there is: it takes a new version, a refusal of the old one that says
so, and new fixtures.

    catalogue   the names of the sources, how messages are framed, and the epoch that names both
    query       a set of sources as a bitmap, and which of their messages are known
    answer      one frame per asked source that is not known, at its own length or padded to a fixed one
    changes     editions, and every message that changed since one
    digests     of every frame of an edition: what may come out of sums
    sums        one message out of a set from several servers, while none alone learns which
    refusal     problem+json with a hint; the last step seen in a session
    http        paths, media types, headers

`POST /v1/query` with `QUERY_HEADERS` gets 200 with `ANSWER_HEADERS`, or a refusal.
"""

from onoff.wire.changes import *
from onoff.wire.digests import *
from onoff.wire.messages import *
from onoff.wire.sums import *
