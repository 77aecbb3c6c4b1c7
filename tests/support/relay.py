"""A relay that counts the bytes of a TCP connection, for tests that promise how many there are."""

import contextlib
import socket
import threading

from tests.support.accepting import Accepting


class Relay(Accepting):
    """Listens on a free port and passes everything on to `port`, counting what comes back."""

    def __init__(self, port):
        self.target, self.received = port, 0
        self.lock = threading.Lock()
        super().__init__()

    def accepted(self, connection):
        far = socket.create_connection(("127.0.0.1", self.target))
        threading.Thread(target=self._pass, args=(connection, far, False), daemon=True).start()
        threading.Thread(target=self._pass, args=(far, connection, True), daemon=True).start()

    def _pass(self, source, sink, counted):
        with contextlib.suppress(OSError), source:
            while piece := source.recv(65536):
                if counted:
                    with self.lock:  # before it goes on, so that whoever has it finds it counted
                        self.received += len(piece)
                sink.sendall(piece)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)
