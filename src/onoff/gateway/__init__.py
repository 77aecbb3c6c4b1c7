"""The gateway: a local service on loopback. Any app downloads from it as from a web server; it uses the client.

guard     which requests are accepted
switch    ON or OFF, and the timer, kept beside the journal
schedule  when it turns automatically
jobs      requests, one after the other, each exactly once
upstream  the servers: a client, its mirror, and the four below
refresher keeps the mirror up to date by schedule; marks: what is new in it
presence  whether the servers answer
meter     bytes sent and received
steps     which steps a request stored, and which of them were sent
estimate  what the next request will cost
seen      what the server saw, at the level of detail that the user chose
evidence  what each request cost, and what it told the server; weighing: when that is computed
board     a number that grows with every change, and its subscribers
engine    the switch, the queue and the servers together; setup: what it was started with
snapshot  the state that the page shows
present   a message as it may be shown; history: entries of earlier messages
feed      a message as an Atom feed
app       the HTTP side: routes; bodies: what callers send; responses: what they get; events: the stream of states
run       starting and stopping
"""
