"""A program of a user that names everything public. It is checked by `mypy --strict`, and run."""

import onoff


def costs(chain: onoff.MarkovChain) -> tuple[float, float]:
    """What hiding the last request must cost, and does cost."""
    table = onoff.design(chain, scheme="greedy")
    return onoff.bounds(chain).lower, table.cost


def ask(session: onoff.Session, source: str) -> tuple[int, ...]:
    query: onoff.Query = session.request(source, private=True)
    return query.sources


def made_of(chain: onoff.MarkovChain, history: onoff.OpenHistory) -> onoff.Session:
    """A session that knows what the server knows."""
    from onoff.session.session import SystemEntropy

    model = onoff.own_law(chain, history, cap=30, weight=0.9, trust=15, entropy=SystemEntropy())
    return onoff.Session(model, history=history)


def exact(rows: onoff.Rows) -> int:
    return rows.n * onoff.UNIT


def verified(table: onoff.QueryTable) -> bool:
    try:
        table.verify()
    except onoff.PrivacyBreach as breach:
        return breach.exit_code != 5
    return True


def read(url: str, chain: onoff.MarkovChain, source: str) -> bytes:
    with onoff.Client(url, chain) as client:
        message: onoff.Message = client.get(source, private=True)
        return bytes(message)


def read_site(path: str, chain: onoff.MarkovChain, source: str) -> bytes:
    with onoff.Client(onoff.Web.load(path), chain) as client:
        return bytes(client.get(source, private=True))


async def read_soon(url: str, model: onoff.RequestModel) -> str:
    async with onoff.AsyncClient(url, model) as client:
        return (await client.get("left", private=False)).media_type


MENDED: dict[type[onoff.OnOffError], str] = {
    onoff.InvalidInput: "give something else",
    onoff.InvalidChain: "give a chain",
    onoff.InvalidModel: "give a model",
    onoff.InvalidPattern: "give a pattern",
    onoff.InvalidTable: "give a table",
    onoff.InvalidWire: "send what the wire allows",
    onoff.CatalogueMismatch: "learn the chain again",
    onoff.UnknownSource: "look at the catalogue",
    onoff.UnknownScheme: "look at the list of schemes",
    onoff.MissingExtra: "install it",
    onoff.SourceFailed: "ask the site later",
    onoff.JournalError: "look at the journal",
    onoff.JournalBusy: "close the other client",
    onoff.JournalUnusable: "move the file away",
    onoff.JournalWriteFailed: "make room",
    onoff.MirrorError: "make the mirror anew",
    onoff.MirrorBusy: "end the other client",
    onoff.MirrorEmpty: "refresh it",
    onoff.ServerMissing: "start the missing server",
    onoff.Stopped: "start it again",
    onoff.StoreUnavailable: "start the store",
    onoff.StoreFull: "make room",
    onoff.ServerUnreachable: "start the server",
    onoff.BadAnswer: "ask another server",
}


def main() -> None:
    chain = onoff.MarkovChain([[0.75, 0.25], [0.25, 0.75]], names=["left", "right"])
    lower, cost = costs(chain)
    assert lower == cost == 1.5
    assert ask(onoff.Session(chain), "left") == (0, 1)
    assert verified(onoff.design(chain, scheme="greedy"))
    assert exact(chain.rows()) == 2 * onoff.UNIT
    try:
        chain.index("lft")
    except onoff.UnknownSource as error:
        print(MENDED[type(error)], error.hint, sep=": ")


if __name__ == "__main__":
    main()
