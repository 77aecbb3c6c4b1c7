"""Leaky twins of the client over web sites. Each is told what is wanted, which the shipped upstream never is."""

from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from tests.support.typed import as_a

from onoff.client import WebSources
from onoff.client.core import Core
from onoff.upstream.transport import Reply
from onoff.upstream.web import Web, _Got


class TellsTheUpstream(Core):
    """Tells the upstream what is wanted, so that it can leak it."""

    def _ask(self, record):
        as_a(Told, as_a(WebSources, self.upstream).web).wanted = self.chain.names[record.wanted]
        return super()._ask(record)

    def remember(self, wanted, **how):
        as_a(Told, as_a(WebSources, self.upstream).web).wanted = self.chain.names[wanted]
        return super().remember(wanted, **how)


@contextmanager
def as_core(core):
    """The shipped client with another core."""
    with patch("onoff.client.client.Core", core):
        yield


class Told(Web):
    """Knows what is wanted."""

    wanted = ""

    def is_wanted(self, job):
        return any(member.name == self.wanted for member in job.members)


class ReloadsForTheWanted(Told):
    """Tries again only where the wanted one failed."""

    def _round(self, jobs, times, deadline, copies):
        results = super()._round(jobs, times, deadline, copies)
        return [
            got if self.is_wanted(job) or not got.passing else replace(got, answer=Reply(404, (), b""))
            for job, got in zip(jobs, results, strict=True)
        ]


class ValidatorForTheWanted(Told):
    """Sends a validator for the wanted one alone."""

    def _jobs(self, due, known):
        return [job if self.is_wanted(job) else replace(job, validators=()) for job in super()._jobs(due, known)]


class WantedFirst(Told):
    """Asks for the wanted one first."""

    def _jobs(self, due, known):
        return sorted(super()._jobs(due, known), key=lambda job: not self.is_wanted(job))


class HandsOutEarly(Told):
    """Hands out the wanted one as soon as it is read, and leaves the rest."""

    def _round(self, jobs, times, deadline, copies):
        last = next((place for place, job in enumerate(jobs) if self.is_wanted(job)), len(jobs) - 1)
        results = super()._round(jobs[: last + 1], times[: last + 1], deadline, copies)
        return [*results, *(_Got(Reply(404, (), b""), None, (), 0) for _ in jobs[last + 1 :])]


class SkipsTheFreshWanted(Told):
    """Does not ask for the wanted one where its copy is a minute old, while others are asked for."""

    def _jobs(self, due, known):
        old = {name for name, copy in known.items() if copy is None or self._now() - copy.fetched > 90}
        return [job for job in super()._jobs(due, known) if not self.is_wanted(job) or self.wanted in old]


class FollowsForTheWanted(Told):
    """Follows a redirect of the wanted one alone."""

    following = True

    def _follow(self, job, line_to, deadline, copies):
        self.following = self.is_wanted(job)
        return super()._follow(job, line_to, deadline, copies)

    def _refuses(self, url, places, asked):
        return super()._refuses(url, places, asked) if self.following else "it was not wanted"


class DrawsAgain(Core):
    """After the end of a process the set is drawn again, from what was remembered before it."""

    before: Any = None

    def request(self, wanted, *, private):
        type(self).before = self.session.memory
        return super().request(wanted, private=private)

    def retry(self):
        record = self.waiting()
        if record.mirror or self.before is None:
            return (yield from super().retry())
        self.session.memory = self.before
        return (yield from super().request(record.wanted, private=record.private))


TWINS = {
    "reload only when the wanted one failed": ReloadsForTheWanted,
    "a validator only for the wanted one": ValidatorForTheWanted,
    "the wanted one first": WantedFirst,
    "handing out before all is read": HandsOutEarly,
    "skipping the wanted one when fresh": SkipsTheFreshWanted,
    "a redirect followed only for the wanted one": FollowsForTheWanted,
}
