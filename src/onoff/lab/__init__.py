"""The laboratory: what researches rather than serves.

The paper reproduced, simulations, sweeps, families of chains and the results page. It stands on everything and nothing
stands on it but commands. A change here may change figures in the documentation, never what a client sends.

    walk       the public states that a session walks through, and what they cost, exact or sampled
    simulate   many users on that walk, with their secrets, beside bounds and baselines
    querytree  every query sequence of a short run on that walk
    families   chains of many shapes; `sweep` compares schemes over them
    mismatch   what a wrong chain gives away; `explain` tells it step by step
    paper      every table, figure, example and theorem of the paper, computed and compared
    results    the page of results, section by section
"""

from __future__ import annotations
