"""A thread that accepts connections on a free port until it is closed: what servers of tests have in common."""

import socket
import threading
from abc import ABC, abstractmethod


class Accepting(ABC):
    """Calls `accepted(connection)` for each connection, one after the other. Set up before `super().__init__()`."""

    def __init__(self):
        self.socket = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = self.socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.thread = threading.Thread(target=self._accept, daemon=True)
        self.thread.start()

    def _accept(self):
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            self.accepted(connection)

    @abstractmethod
    def accepted(self, connection):
        """Called with each connection; may take its time, as the next one waits."""

    def close(self):
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        self.thread.join()
