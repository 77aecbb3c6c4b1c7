"""Privacy audits, each tested with leaky controls that it must catch.

An audit looks at what leaves and says what it tells, exactly where worlds can be enumerated and by sampling where they
cannot. It stands on everything below and nothing that ships stands on it but reports. A change here can hide a leak but
not make one, so every audit has controls: broken twins that it has to catch.

    exact       sessions and schemes, every world enumerated, in integers
    client      the shipped client with faults, its mirror, and several servers; `live` runs it against a real one
    sampled     a G-test on many sessions
    logs        what a server wrote down; the server that records
    identities  the integer identities of every table that a session reaches
    traces      real people's requests, and attackers who guess; `known`: people whose open history is known
    report      what an audit found, as text, JSON and a page
"""
