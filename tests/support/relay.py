"""A relay that counts the bytes of a TCP connection, for tests that promise how many there are."""

import contextlib
import socket
import threading

from tests.support.accepting import Accepting


class Relay(Accepting):
    """Listens on a free port and passes everything on to `target`, a port or the path of a socket, and counts.

    received   bytes that came back, of all connections
    sent       bytes that were sent, of each connection, in the order in which they came
    passing    directions of connections that are not closed yet
    """

    def __init__(self, target):
        self.target, self.received, self.passing = target, 0, 0
        self.sent: list[int] = []
        self.lock = threading.Lock()
        super().__init__()

    def accepted(self, connection):
        if isinstance(self.target, int):
            far = socket.create_connection(("127.0.0.1", self.target))
        else:
            far = socket.socket(socket.AF_UNIX)
            far.connect(str(self.target))
        self.join(connection, far)

    def join(self, connection, far):
        """Pass everything on between the two."""
        with self.lock:
            place, self.passing = len(self.sent), self.passing + 2
            self.sent.append(0)
        threading.Thread(target=self._pass, args=(connection, far, place), daemon=True).start()
        threading.Thread(target=self._pass, args=(far, connection, None), daemon=True).start()

    def _pass(self, source, sink, place):
        with contextlib.suppress(OSError), source:
            while piece := source.recv(65536):
                with self.lock:  # before it goes on, so that whoever has it finds it counted
                    if place is None:
                        self.received += len(piece)
                    else:
                        self.sent[place] += len(piece)
                sink.sendall(piece)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)
        with self.lock:
            self.passing -= 1


class Socks(Relay):
    """A SOCKS5 proxy that finds every name at `target`, a port of this machine; None: it reaches nothing.

    asked   the names and ports that it was asked for; an address in place of a name would be a lookup made elsewhere
    """

    def __init__(self, target):
        self.asked: list[tuple[str, int]] = []
        super().__init__(target)
        self.url = f"socks5://127.0.0.1:{self.port}"

    def accepted(self, connection):
        stream = connection.makefile("rb")
        version, methods = stream.read(2)
        assert (version, 0 in stream.read(methods)) == (5, True)
        connection.sendall(b"\5\0")
        version, command, _, kind = stream.read(4)
        assert (version, command, kind) == (5, 1, 3), "connect, by name"
        name = stream.read(stream.read(1)[0]).decode()
        self.asked.append((name, int.from_bytes(stream.read(2))))
        connection.sendall(b"\5" + (b"\4" if self.target is None else b"\0") + b"\0\1" + bytes(6))
        if self.target is None:
            connection.close()
        else:
            self.join(connection, socket.create_connection(("127.0.0.1", self.target)))
