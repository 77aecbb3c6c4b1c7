"""Requests that a proxy and a server may read differently, each as the bytes that arrive.

`refused(host, query)` gives those that must be refused; `tolerated` those that are odd and right; `followed` what must
not stand after a request. Many carry a second request inside, whose answer (the catalogue) would show that it was
smuggled.
"""

from onoff import wire

SMUGGLED = b"GET /v1/catalogue HTTP/1.1\r\nhost: h\r\n\r\n"


def _request(line: bytes, headers: list[bytes], body: bytes = b"") -> bytes:
    return b"\r\n".join([line, *headers, b"", b""]) + body


def _query_headers(query: bytes) -> list[bytes]:
    return [b"%b: %b" % (name.encode(), value.encode()) for name, value in wire.QUERY_HEADERS]


def refused(host: bytes, query: bytes) -> dict[str, bytes]:
    line, host_line = b"POST /v1/query HTTP/1.1", b"host: %b" % host
    plain = _query_headers(query)
    length = b"content-length: %d" % len(query)
    made: dict[str, bytes] = {}

    n = len(query)
    for value in [
        b"0%d" % n,
        b"00000000000%d" % n,
        b"+%d" % n,
        b"-%d" % n,
        b"0x%x" % n,
        b"%d.0" % n,
        b"%de0" % n,
        b"%d %d" % (n, n),
        b"%d,%d" % (n, n),
        b"%d, %d" % (n, n),
        b"",
        b"x",
        b"%d;" % n,
        b"%d\x0b" % n,
        b"%d\x00" % n,
        b"\xef\xbc\x93\xef\xbc\x94",
        b"00000010000000000",
        b"10000000000",
        b"999999999999999999999",
        b"18446744073709551650",
        b"9223372036854775807",
        b"16777217",
    ]:
        made[f"length {value!r}"] = _request(line, [host_line, *plain, b"content-length: " + value], query + SMUGGLED)
    made["two lengths, equal"] = _request(line, [host_line, *plain, length, length], query)
    made["two lengths, other case"] = _request(line, [host_line, *plain, length, length.title()], query)
    made["two lengths, unequal"] = _request(line, [host_line, *plain, length, b"content-length: 0"], query + SMUGGLED)
    made["a length with a space before the colon"] = _request(
        line, [host_line, *plain, b"content-length : %d" % n], query
    )
    made["a folded length"] = _request(line, [host_line, *plain, b"content-length:\r\n %d" % n], query)

    chunked = b"%x\r\n%b\r\n0\r\n\r\n" % (n, query)
    for value in [
        b"chunked",
        b"Chunked",
        b"xchunked",
        b"chunked, identity",
        b"identity",
        b"identity, chunked",
        b"chunked\x0b",
        b"\x0bchunked",
        b"\tchunked",
        b"chunked;q=1",
        b'"chunked"',
        b"gzip, chunked",
        b"",
        b"chunked\x00",
        b"cow",
    ]:
        header = b"transfer-encoding: " + value
        made[f"encoding {value!r}"] = _request(line, [host_line, *plain, header], chunked + SMUGGLED)
        made[f"encoding {value!r} and a length"] = _request(line, [host_line, *plain, length, header], query + SMUGGLED)
    made["encoding with a space before the colon"] = _request(
        line, [host_line, *plain, length, b"transfer-encoding : chunked"], query
    )
    made["a folded encoding"] = _request(
        line, [host_line, *plain, length, b"transfer-encoding:\r\n chunked"], query + SMUGGLED
    )
    made["two encodings"] = _request(
        line, [host_line, *plain, b"transfer-encoding: chunked", b"transfer-encoding: identity"], chunked
    )

    for value in [
        b"",
        b"a b",
        b"a/b",
        b"user@a",
        b"a\x00b",
        b"[::1",
        b"a:b",
        b"a:999999",
        b"a, b",
        b"a\tb",
        b"\xff",
        b"h#x",
        b"h?x",
    ]:
        made[f"host {value!r}"] = _request(line, [b"host: " + value, *plain, length], query)
    made["no host"] = _request(line, [*plain, length], query)
    made["no host, HTTP/1.0"] = _request(b"POST /v1/query HTTP/1.0", [*plain, length], query)
    made["two hosts, equal"] = _request(line, [host_line, host_line, *plain, length], query)
    made["two hosts, unequal"] = _request(line, [host_line, b"Host: evil", *plain, length], query)
    made["a folded host"] = _request(line, [b"host:\r\n h", *plain, length], query)

    for value in [b"websocket", b"h2c", b"TLS/1.0", b"", b"HTTP/2.0, x"]:
        for connection in [b"upgrade", b"Upgrade, HTTP2-Settings", b"keep-alive"]:
            headers = [host_line, *plain, length, b"connection: " + connection, b"upgrade: " + value]
            made[f"upgrade {value!r}, {connection!r}"] = _request(line, headers, query + SMUGGLED)
    made["upgrade of a publish"] = _request(
        b"PUT /v1/sources/s0/message HTTP/1.1",
        [host_line, b"connection: upgrade", b"upgrade: x", b"content-length: %d" % len(SMUGGLED)],
        SMUGGLED,
    )

    changes = b"GET /v1/changes?since=0 HTTP/1.1"
    for name, headers in {
        "no host": [],
        "two hosts": [host_line, host_line],
        "a bad host": [b"host: a b"],
        "upgrade": [host_line, b"connection: upgrade", b"upgrade: h2c"],
        "chunks": [host_line, b"transfer-encoding: chunked"],
        "a length with zeros": [host_line, b"content-length: 00"],
        "a folded header": [host_line, b"accept:\r\n x"],
        "a control character": [host_line, b"accept: \x01"],
    }.items():
        made[f"changes, {name}"] = _request(changes, headers, SMUGGLED)
    made["changes of HTTP/2.0"] = _request(b"GET /v1/changes?since=0 HTTP/2.0", [host_line], SMUGGLED)

    good = [host_line, *plain, length]
    for bad in [
        b"POST /v1/query HTTP/2.0",
        b"POST /v1/query HTTP/2",
        b"POST /v1/query HTTP/3.0",
        b"POST /v1/query HTTP/1.2",
        b"POST /v1/query HTTP/0.9",
        b"POST /v1/query HTTP/1.1 ",
        b"POST  /v1/query HTTP/1.1",
        b"POST /v1/query  HTTP/1.1",
        b"POST\t/v1/query\tHTTP/1.1",
        b"post /v1/query HTTP/1.1",
        b"POST /v1/query http/1.1",
        b"POST /v1/query",
        b" POST /v1/query HTTP/1.1",
        b"POST /v1/query HTTP/1.10",
        b"POST /v1/query HTTP/01.1",
        b"POST /v1/query HTTP/1.1\x00",
        b"POST /v1/qu\x00ery HTTP/1.1",
        b"POST /v1/qu\xc3\xa9ry HTTP/1.1",
        b"POST /v1/query#f HTTP/1.1",
        b"POST v1/query HTTP/1.1",
        b"POST * HTTP/1.1",
        b"CONNECT h:80 HTTP/1.1",
        b"POST ftp://h/v1/query HTTP/1.1",
        b"POST http:///v1/query HTTP/1.1",
        b"POST /v1/query HTTP/1.1\r",
        b"PO ST /v1/query HTTP/1.1",
        b"PROPFINDPROPFINDX /v1/query HTTP/1.1",
        b"\r\nPOST /v1/query HTTP/1.1",
        b"GET /v1/catalogue HTTP/2.0",
        b"HTTP/1.1 200 OK",
        b"POST /v1/query ICE/1.0",
        b"P\x00ST /v1/query HTTP/1.1",
    ]:
        made[f"line {bad!r}"] = _request(bad, good, query + SMUGGLED)
    made["HTTP/2 preface"] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9)
    made["TLS"] = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200)
    made["SSH"] = b"SSH-2.0-OpenSSH_9.6\r\n\r\n"
    made["JSON"] = b'{"method": "eth_blockNumber"}\n'

    for bad in [
        b"x : y",
        b": y",
        b"x",
        b"x y: z",
        b"x(: y",
        b"x\x00: y",
        b"x: \x00",
        b"x: a\rb",
        b"x: a\nb",
        b" x: y",
        b"\tx: y",
        b"x: y\r\n folded",
        b"x: \x7f",
        b"x: \x1b[31m",
        "ü: y".encode(),
        b"x\r: y",
        b'"x": y',
        b"x{}: y",
        b"x: y\r\r",
    ]:
        made[f"header {bad!r}"] = _request(line, [*good, bad], query)
    made["lines that end in LF"] = b"\n".join([line, *good, b"", b""]) + query
    made["one line that ends in LF"] = line + b"\n" + b"\r\n".join([*good, b"", b""]) + query
    made["an end of LF"] = b"\r\n".join([line, *good]) + b"\n\n" + query
    made["lines that end in CR"] = b"\r".join([line, *good, b"", b""]) + b"\r\n\r\n" + query
    made["600 headers"] = _request(line, [*good, *[b"x-a: b"] * 600], query)
    made["a header of 40000 bytes"] = _request(line, [*good, b"x: " + b"y" * 40000], query)
    return made


def tolerated(host: bytes, query: bytes) -> dict[str, bytes]:
    line, host_line = b"POST /v1/query HTTP/1.1", b"host: %b" % host
    plain, length = _query_headers(query), b"content-length: %d" % len(query)
    good = [host_line, *plain, length]
    return {
        "as a client sends it": _request(line, good, query),
        "names in capitals": _request(line, [header.title() for header in [host_line, length]] + plain, query),
        "no space": _request(line, [header.replace(b": ", b":") for header in good], query),
        "much space": _request(line, [header.replace(b": ", b": \t ") + b" \t" for header in good], query),
        "keep-alive": _request(line, [*good, b"connection: Keep-Alive"], query),
        "connection: upgrade alone": _request(line, [*good, b"connection: upgrade"], query),
        "an absolute target": _request(b"POST http://elsewhere/v1/query HTTP/1.1", good, query),
        "an unknown header": _request(line, [*good, b"x-unusual: \xff!"], query),
        "a header that comes twice": _request(line, [*good, b"accept: text/plain"], query),
        "an empty header": _request(line, [*good, b"x-empty:"], query),
        "changes": _request(b"GET /v1/changes?since=0 HTTP/1.1", [host_line]),
        "packed changes": _request(b"GET /v1/changes?since=0 HTTP/1.1", [host_line, b"accept-encoding: gzip"]),
        "changes since nonsense": _request(b"GET /v1/changes?since=x HTTP/1.1", [host_line]),
        "changes with a header that comes twice": _request(
            b"GET /v1/changes?since=0 HTTP/1.1", [host_line, b"accept: a", b"accept: b"]
        ),
        "no body": _request(b"GET /v1/catalogue HTTP/1.1", [host_line], b""),
        "a body that nobody wants": _request(b"GET /v1/catalogue HTTP/1.1", [host_line, b"content-length: 3"], b"abc"),
        "expects": _request(line, [*good, b"x-unusual: 1", b"te: trailers"], query),
        "an empty query": _request(line, [host_line, *plain, b"content-length: 0"]),
        "half a query": _request(line, [host_line, *plain, b"content-length: 5"], query[:5]),
        "a query for another path": _request(b"POST /v1/query?x=1 HTTP/1.1", good, query),
    }


FOLLOWED = {
    "an empty line": b"\r\n",
    "two empty lines": b"\r\n\r\n",
    "a space": b" ",
    "a letter": b"x\r\n\r\n",
    "NUL": bytes(16),
    "the end of chunks": b"0\r\n\r\n",
    "text": b"surplus\r\n\r\n",
    "a reply": b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00",
    "a request without host": b"GET /v1/catalogue HTTP/1.1\r\n\r\n",
    "a request of HTTP/0.9": b"GET /v1/catalogue\r\n\r\n",
    "a request of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a lower case request": b"get /v1/catalogue http/1.1\r\nhost: h\r\n\r\n",
    "a request after an empty line": b"\r\n" + SMUGGLED,
}
