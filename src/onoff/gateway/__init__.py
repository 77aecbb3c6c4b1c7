"""The gateway: a local service on loopback. Any app downloads from it as always; behind it stands the client.

guard     who may speak to it
switch    ON or OFF, and the timer, kept beside the journal
seen      what the server saw, at the level of detail that the user chose
evidence  what each request cost, and what it told the server
engine    one client, one request at a time, one state for everybody who looks
feed      a message as an Atom feed
app       the HTTP side
run       starting and stopping
"""
