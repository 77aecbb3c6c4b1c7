"""The gateway: a local service on loopback. Any app downloads from it as from a web server; it uses the client.

It stands on the client, and shows a person what the server can know. Only `upstream` makes anything leave, and it does
so by the client. A change to `guard` may touch who on this machine is let in; one to `engine`, `switch` or `upstream`
when something is sent; one to the others what a page shows.

    app        routes, events and what they answer; `guard` admits requests, `render` makes messages safe to show
    engine     the switch, the queue and the page's state
    jobs       requests, one after the other, each exactly once
    upstream   the servers: a client, its mirror, refreshes by schedule, what was sent and what comes next
    switch     ON or OFF, the timer and the schedule, kept beside the journal
    evidence   what the server can conclude; `query_log` is what it was asked
    run        the process, and installing it as a service
"""
