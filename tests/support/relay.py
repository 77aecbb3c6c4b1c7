"""A relay that counts the bytes of a TCP connection, for tests that promise how many there are."""

import contextlib
import socket
import threading


class Relay:
    """Listens on a free port and passes everything on to `port`, counting what comes back."""

    def __init__(self, port):
        self.target, self.received = port, 0
        self.lock = threading.Lock()
        self.socket = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}"
        self.thread = threading.Thread(target=self._accept, daemon=True)
        self.thread.start()

    def _accept(self):
        while True:
            try:
                near, _ = self.socket.accept()
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self.target))
            threading.Thread(target=self._pass, args=(near, far, False), daemon=True).start()
            threading.Thread(target=self._pass, args=(far, near, True), daemon=True).start()

    def _pass(self, source, sink, counted):
        with contextlib.suppress(OSError), source:
            while piece := source.recv(65536):
                if counted:
                    with self.lock:  # before it goes on, so that whoever has it finds it counted
                        self.received += len(piece)
                sink.sendall(piece)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)

    def close(self):
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        self.thread.join()
