"""One exchange: what is sent, over TLS as well, and every way in which no whole answer comes back."""

import errno
import shutil
import socket
import ssl
import subprocess
import threading
from contextlib import contextmanager
from typing import Any

import h11
import pytest
from tests.support.ports import reserved_port
from tests.support.typed import as_a
from tests.support.waiting import PATIENCE
from tests.support.world import read_request

import onoff
from onoff.errors import InvalidInput
from onoff.upstream.transport import Failure, Http, Reply, Request

ASK = Request("POST", "/v1/query", (("accept", "x"),), b"body", limit=10)


@contextmanager
def serving(converse, family=socket.AF_INET):
    """A server of one connection, which `converse(connection)` speaks over; gives its port."""
    host = "::1" if family == socket.AF_INET6 else "127.0.0.1"
    listener = socket.create_server((host, 0), family=family)
    listener.settimeout(PATIENCE)

    def serve():
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(PATIENCE)
            converse(connection)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        thread.join()
        listener.close()


def exchanged(converse, *, scheme="http", host="127.0.0.1", timeout=PATIENCE, family=socket.AF_INET, request=ASK):
    with serving(converse, family) as port:
        return Http(f"{scheme}://{host}:{port}/base/", timeout=timeout).exchange(request)


def saying(raw, heard=None):
    def converse(connection):
        request = read_request(connection)
        if heard is not None:
            heard.append(request)
        connection.sendall(raw)

    return converse


WHOLE = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-Y: z\r\n\r\nhello"
HELLO = Reply(200, (("content-length", "5"), ("x-y", "z")), b"hello")


def test_a_whole_answer_and_what_was_asked():
    heard: list[Any] = []
    assert exchanged(saying(WHOLE, heard)) == HELLO
    ((raw, method, path, headers, body),) = heard
    assert (method, path, body) == ("POST", "/base/v1/query", b"body")
    assert [name for name, _ in headers] == ["host", "accept", "content-length"]
    assert raw.endswith(b"\r\n\r\nbody")


def test_a_request_without_a_body_has_no_length():
    heard: list[Any] = []
    assert exchanged(saying(WHOLE, heard), request=Request("GET", "/v1/catalogue", (), b"", 10)) == HELLO
    ((_, method, _, headers, body),) = heard
    assert (method, [name for name, _ in headers], body) == ("GET", ["host"], b"")


def test_an_address_of_version_six_stands_in_brackets():
    heard: list[Any] = []
    try:
        reply = exchanged(saying(WHOLE, heard), host="[::1]", family=socket.AF_INET6)
    except OSError as error:
        if error.errno not in {errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL}:
            raise
        pytest.skip("this kernel has no IPv6, which no package brings")
    assert reply == HELLO
    assert dict(heard[0][3])["host"].startswith("[::1]:")


def test_what_is_said_before_the_answer_is_passed_over():
    assert exchanged(saying(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + WHOLE)) == HELLO


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"", "the answer broke off, or is not HTTP"),
        (WHOLE[:20], "the answer broke off, or is not HTTP"),
        (WHOLE[:-1], "the answer broke off, or is not HTTP"),
        (b"SSH-2.0-x\r\n", "the answer broke off, or is not HTTP"),
        (b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n" + WHOLE, "the answer broke off, or is not HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n" + b"x" * 11, "the answer is too long"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 11, "the answer is too long"),
    ],
    ids=[
        "nothing",
        "half a head",
        "half a body",
        "another protocol",
        "a switch of protocols",
        "too long",
        "without end",
    ],
)
def test_what_is_not_a_whole_answer_is_named(raw, reason):
    assert exchanged(saying(raw)) == Failure(reason)


def test_an_answer_that_is_just_short_enough_is_read():
    ten = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n0123456789"
    assert exchanged(saying(ten)).body == b"0123456789"


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_silence_ends_at_the_deadline(scheme):
    over = threading.Event()
    with serving(lambda connection: over.wait(PATIENCE)) as port:
        while True:
            failure = Http(f"{scheme}://127.0.0.1:{port}", timeout=0.2).exchange(ASK)
            assert failure == Failure("no whole answer within 0.2 s", left=as_a(Failure, failure).left)
            if failure.left == (scheme == "http"):
                break  # on a machine so busy that connecting takes as long, once more
        over.set()


def test_no_time_at_all_is_too_little():
    assert Http("http://127.0.0.1:1", timeout=0).exchange(ASK) == Failure("no whole answer within 0 s", left=False)


def test_nobody_there_is_named():
    with reserved_port() as port:
        failure = Http(f"http://127.0.0.1:{port}", timeout=PATIENCE).exchange(ASK)
        assert failure == Failure("connection refused", left=False)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (socket.gaierror(socket.EAI_NONAME, "secret.test"), "the host name is unknown"),
        (OSError(errno.ENETUNREACH, "secret.test"), "network is unreachable"),
        (OSError("secret.test"), "the connection failed"),
        (ConnectionResetError(), "the connection failed"),
        (ssl.SSLError(1, "secret.test"), "TLS failed: no reason given"),
        (h11.RemoteProtocolError("secret.test"), "the answer broke off, or is not HTTP"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_reasons_depend_on_the_line_alone(monkeypatch, error, reason):
    def fail(address, timeout):
        raise error

    monkeypatch.setattr(socket, "create_connection", fail)
    assert Http("http://host.test", timeout=1).exchange(ASK) == Failure(reason, left=False)


# -- TLS ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A certificate for 127.0.0.1 that nobody has signed, with its key."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl")  # `make system` installs it; said at the end of the run (conftest)
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", path]
    host = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2", "-out", f"{path}.crt"]
    subprocess.run(["openssl", "req", "-x509", *key, *host], check=True, capture_output=True)
    with path.open("ab") as both, open(f"{path}.crt", "rb") as signed:
        both.write(signed.read())
    return path


def over_tls(certificate, converse):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)

    def wrapped(connection):
        try:
            with context.wrap_socket(connection, server_side=True) as secure:
                converse(secure)
        except (ssl.SSLError, ConnectionError):
            pass  # the client would not have it

    return wrapped


def test_over_tls_with_a_certificate_that_is_trusted(certificate, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", f"{certificate}.crt")
    heard: list[Any] = []
    assert exchanged(over_tls(certificate, saying(WHOLE, heard)), scheme="https") == HELLO
    assert heard[0][4] == b"body"


def test_a_certificate_that_nobody_signed_gets_nothing(certificate):
    heard: list[Any] = []
    failure = exchanged(over_tls(certificate, saying(WHOLE, heard)), scheme="https")
    assert failure == Failure("TLS failed: CERTIFICATE_VERIFY_FAILED", left=False)
    assert heard == []


def test_a_certificate_of_another_host_gets_nothing(certificate, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", f"{certificate}.crt")
    heard: list[Any] = []
    failure = exchanged(over_tls(certificate, saying(WHOLE, heard)), scheme="https", host="localhost")
    assert failure == Failure("TLS failed: CERTIFICATE_VERIFY_FAILED", left=False)
    assert heard == []


def test_a_server_without_tls_gets_nothing():
    heard = []

    def converse(connection):
        heard.append(connection.recv(65536))
        connection.sendall(WHOLE)

    failure = exchanged(converse, scheme="https")
    assert failure.reason.startswith("TLS failed: ")
    assert b"/v1/query" not in heard[0]


@pytest.mark.parametrize("address", ["ftp://127.0.0.1:21", "ftp://127.0.0.1", "file://host:80/x"])
def test_an_address_of_another_kind_is_refused_by_its_beginning(address):
    with pytest.raises(InvalidInput, match=f"begins with {address.partition(':')[0]}:.*http:// or https://"):
        onoff.Client(address, None)
