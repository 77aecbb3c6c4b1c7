"""The steps of a core with something changed on the way, for leaky twins of the client."""


def relayed(steps, *, command=None, event=None):
    """Steps with the same result, in which

    command(c)   gives another command in place of c, or an event as if c had been carried out
    event(c, e)  is a generator that gives another event in place of e, by further commands if need be
    """
    came = None
    while True:
        try:
            given = steps.send(came)
        except StopIteration as done:
            return done.value
        asked = given if command is None else command(given)
        came = (yield asked) if isinstance(asked, type(given)) else asked
        if event is not None:
            came = yield from event(given, came)
