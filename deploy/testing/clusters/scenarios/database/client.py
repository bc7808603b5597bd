"""A client of PostgreSQL that commits one number after the other, and knows which ones PostgreSQL
acknowledged. It runs outside of the cluster, so that no fault there takes its knowledge away."""

import bisect
import http.client
import socket
import struct
import threading
import time

from rig.api import Api

from ..expect import expect

# Longer than a commit takes on a busy machine, and short beside the pause after a power failure.
_PATIENCE = 2.0
_BETWEEN_COMMITS = 0.02
# About as much as one row of a real table.
_INSERT = "INSERT INTO numbers VALUES ({}, repeat('x', 500))"
# The class of SQLSTATEs with which PostgreSQL refuses what it is asked while it starts or stops.
_INTERVENTION = "57"


class Refused(Exception):
    """PostgreSQL's error."""

    def __init__(self, body):
        fields = {field[:1].decode(): field[1:].decode() for field in body.split(b"\0") if field}
        super().__init__(f"{fields['C']} {fields['M']}")
        self.state = fields["C"]


class Connection:
    """PostgreSQL's protocol 3.0: simple queries of a user without a password."""

    def __init__(self, address):
        self._socket = socket.create_connection((address, 5432), _PATIENCE)
        self._stream = self._socket.makefile("rb")
        self._send(b"", struct.pack("!I", 3 << 16) + b"user\0postgres\0database\0postgres\0\0")
        self._until_ready()

    def close(self):
        self._stream.close()
        self._socket.close()

    def query(self, text):
        """The numbers in the answer's only column. PostgreSQL has committed when this returns."""
        self._send(b"Q", text.encode() + b"\0")
        return self._until_ready()

    def _send(self, kind, body):
        self._socket.sendall(kind + struct.pack("!I", len(body) + 4) + body)

    def _until_ready(self):
        numbers, error, kind = [], None, None
        while kind != b"Z":
            kind = self._read(1)
            (length,) = struct.unpack("!I", self._read(4))
            body = self._read(length - 4)
            if kind == b"E":
                error = Refused(body)
                if error.state.startswith(_INTERVENTION):
                    break  # The connection ends.
            elif kind == b"D":
                numbers.append(int(body[6:]))
        if error:
            raise error
        return numbers

    def _read(self, length):
        found = self._stream.read(length)
        if len(found) < length:
            raise ConnectionError("PostgreSQL closed the connection")
        return found


def connect(api, namespace, pod):
    """A connection to the PostgreSQL of a pod."""
    found = api.get("Pod", pod, namespace) or {}
    address = found.get("status", {}).get("podIP")
    if not address:
        raise ConnectionError("the pod has no address")
    return Connection(address)


class Client(threading.Thread):
    """Commits numbers to the PostgreSQL of a pod, wherever that runs, until `end`."""

    def __init__(self, space, pod):
        super().__init__(daemon=True)
        self._space = space
        self._pod = pod
        self._end = threading.Event()
        # A number is never tried twice: it may have been committed without an answer.
        self._tried = 0
        self._acknowledged = []
        self._moments = []
        self._errors = []

    def run(self):
        # The space's connection to the API is not for several threads.
        api, connection = Api(self._space.rig.certificates), None
        while not self._end.wait(_BETWEEN_COMMITS):
            try:
                connection = connection or connect(api, self._space.name, self._pod)
                number = self._tried = self._tried + 1
                connection.query(_INSERT.format(number))
                self._moments.append(time.monotonic())
                self._acknowledged.append(number)
                continue
            except (OSError, http.client.HTTPException):
                pass  # The pod ends, its node is off, or it has no address yet.
            except Refused as error:
                if not error.state.startswith(_INTERVENTION):
                    self._errors.append(str(error))
            if connection:
                connection.close()
            connection = None

    def end(self):
        self._end.set()
        self.join()

    def wait_commits(self, number=1, seconds=120):
        """Waits until so many numbers that were not tried before have had their turn, and the last
        one is acknowledged."""
        last = self._tried + number
        self._space.api.wait(f"commits of {self._pod}", lambda: self._committed(last), seconds, 0.02)

    def _committed(self, number):
        expect(not self._errors, f"{self._pod} met no error: {self._errors[:3]}")
        return self._acknowledged[-1:] >= [number]

    def longest_pause(self, since):
        """The longest time between two acknowledged commits, from the last one before that moment."""
        moments = self._moments[:]
        moments = moments[max(bisect.bisect(moments, since) - 1, 0):]
        return max(after - before for before, after in zip(moments, moments[1:]))

    def acknowledged(self):
        return set(self._acknowledged)

    def expect_all(self, numbers, pod=None):
        """Shows that the PostgreSQL of this pod, or of the client's own, has these acknowledged
        numbers and none that was never tried. Returns how many it has."""
        pod = pod or self._pod
        connection = connect(self._space.api, self._space.name, pod)
        # The filler has PostgreSQL read each row, and with it each page's checksum.
        found = connection.query("SELECT n FROM numbers WHERE length(filler) = 500")
        connection.close()
        lost = sorted(numbers - set(found))
        expect(not lost, f"{pod} has each acknowledged commit: {len(lost)} of {len(numbers)} lost, {lost[:5]}")
        expect(set(found) <= set(range(1, self._tried + 1)), f"{pod} has no number that was never tried")
        return len(found)
