"""The memory of unfinished requests: of all together, of each client, of each connection."""

from collections.abc import Callable, Hashable
from types import TracebackType

from flow2onnx_serve.errors import RequestError

__all__ = ["Held", "Hold"]

# The parts of the whole that a connection and a client (an address) may have.
_CONNECTION, _CLIENT = 4, 2


class Held:
    """Counts bytes that are held, up to `limit`; `changed` is told their number."""

    def __init__(self, limit: int, changed: Callable[[int], None]) -> None:
        self._limit, self._changed = limit, changed
        self._total = 0
        self._shares: dict[Hashable, int] = {}  # only those that hold something

    def request(self, client: str, connection: Hashable) -> "Hold":
        """The counter for a request of that client on that connection."""
        return Hold(self, client, connection)

    def add(self, client: str, connection: Hashable, size: int) -> None:
        """Count `size` more bytes, or less; raises `RequestError` if they become too many."""
        shares = self._shares
        total = self._total + size
        of_client = shares.get(client, 0) + size
        of_connection = shares.get(connection, 0) + size
        if size > 0:
            if total > self._limit:
                raise _too_many("", 503)
            if of_client > self._limit // _CLIENT:
                raise _too_many(" of this client", 429)
            if of_connection > self._limit // _CONNECTION:
                raise _too_many(" of this connection", 429)
        self._total = total
        for owner, share in ((client, of_client), (connection, of_connection)):
            if share:
                shares[owner] = share
            else:
                shares.pop(owner, None)
        self._changed(total)


class Hold:
    """The bytes that one request holds: called with a size it counts it, until released."""

    __slots__ = ("_client", "_connection", "_held", "_size")

    def __init__(self, held: Held, client: str, connection: Hashable) -> None:
        self._held, self._client, self._connection = held, client, connection
        self._size = 0

    def __call__(self, size: int) -> None:
        """Count so many more bytes; raises `RequestError` if they become too many."""
        self._held.add(self._client, self._connection, size)
        self._size += size

    def release(self) -> None:
        """Count nothing any more."""
        size, self._size = self._size, 0
        if size:
            self._held.add(self._client, self._connection, -size)

    def __enter__(self) -> "Hold":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


def _too_many(whose: str, status: int) -> RequestError:
    return RequestError(f"too many bytes are held for unfinished requests{whose}", status,
                        hint="try again later", retry_after=1)  # fmt: skip
