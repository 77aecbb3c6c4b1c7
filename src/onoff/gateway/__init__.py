"""The gateway: a local service on loopback. Any app downloads from it as from a web server; it uses the client.

It stands on the client, and shows a person what the server can know. Only `engine`, by the client, and `refresh` make
anything leave. A change to `guard` may touch who on this machine is let in; one to `engine`, `refresh` or `switch` when
something is sent; one to the others what a page shows.

    app        routes, events and what they answer; `guard` admits requests, `render` makes messages safe to show
    engine     requests, one after the other, in a thread of their own
    refresh    what leaves by the clock alone, in another: refreshes and heartbeats
    switch     ON or OFF, the timer and the schedule, kept beside the journal
    query_log  what the server was asked; `evidence` is what it can conclude
    state      all that the page shows, and its revision
    metrics    what an operator may watch
    run        the process; `service` installs it by systemd, launchd or the Task Scheduler
"""
