"""HTTP/2 as gRPC needs it: frames, settings, error codes, and header blocks."""

from collections.abc import Iterable

from hpack import Decoder, HPACKError

__all__ = [
    "Fault",
    "Flag",
    "HeaderReader",
    "Kind",
    "Reason",
    "Setting",
    "block",
    "frame",
    "parse_settings",
    "settings_frame",
    "unpadded",
]

_CACHED = 64  # header blocks that are remembered


class Kind:
    """Types of frames."""

    DATA, HEADERS, PRIORITY, RESET, SETTINGS, PUSH, PING, GOAWAY, WINDOW, CONTINUATION = range(10)


class Flag:
    """Flags of frames."""

    END_STREAM, ACK, END_HEADERS, PADDED, PRIORITY = 0x1, 0x1, 0x4, 0x8, 0x20


class Reason:
    """Why a stream or a connection ends."""

    NONE, PROTOCOL, INTERNAL, FLOW_CONTROL = 0, 1, 2, 3
    STREAM_CLOSED, FRAME_SIZE, REFUSED, CANCEL, COMPRESSION, CALM = 5, 6, 7, 8, 9, 11


class Setting:
    """What either side tells the other at the beginning."""

    TABLE_SIZE, PUSH, STREAMS, WINDOW, FRAME_SIZE, LIST_SIZE = range(1, 7)


class Fault(Exception):  # noqa: N818 - the connection's end, never a user's error
    """The connection cannot go on."""

    def __init__(self, reason: int, text: str) -> None:
        super().__init__(text)
        self.reason = reason


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """A frame's bytes."""
    head = len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big")
    return head + payload


def unpadded(payload: bytes, flags: int) -> bytes:
    """What a frame of data or headers holds besides its padding."""
    if not flags & Flag.PADDED:
        return payload
    if not payload or payload[0] >= len(payload):
        raise Fault(Reason.PROTOCOL, "more padding than there is frame")
    return payload[1 : len(payload) - payload[0]]


def settings_frame(values: dict[int, int]) -> bytes:
    """The frame that tells the other side these settings."""
    pairs = (k.to_bytes(2, "big") + v.to_bytes(4, "big") for k, v in values.items())
    return frame(Kind.SETTINGS, 0, 0, b"".join(pairs))


def parse_settings(payload: bytes) -> dict[int, int]:
    """The settings in a frame."""
    if len(payload) % 6:
        raise Fault(Reason.FRAME_SIZE, "settings of an odd length")
    return {
        int.from_bytes(payload[i : i + 2], "big"): int.from_bytes(payload[i + 2 : i + 6], "big")
        for i in range(0, len(payload), 6)
    }


def block(fields: Iterable[tuple[str, str]], status: int | None = None) -> bytes:
    """A header block that leaves no trace in either side's table."""
    parts = [] if status is None else [b"\x88" if status == 200 else _literal(":status", status)]
    return b"".join([*parts, *(_literal(name, value) for name, value in fields)])


def _literal(name: str, value: object) -> bytes:
    return b"\0" + _text(name) + _text(str(value))


def _text(value: str) -> bytes:
    data = value.encode("latin-1")
    if len(data) < 127:
        return bytes((len(data),)) + data
    rest, digits = len(data) - 127, [127]
    while rest >= 128:
        digits.append(rest % 128 + 128)
        rest //= 128
    return bytes((*digits, rest)) + data


class HeaderReader:
    """Reads the header blocks of a connection, those that repeat at the cost of a look-up.

    A block that names only entries of the table means the same until the table changes.
    """

    def __init__(self, limit: int) -> None:
        self._decoder = Decoder(max_header_list_size=limit)
        self._known: dict[bytes, dict[str, str]] = {}

    def read(self, data: bytes) -> dict[str, str]:
        """Headers by name; values of a name that repeats are joined by commas."""
        found = self._known.get(data)
        if found is not None:
            return found
        before = self._state()
        try:
            pairs = self._decoder.decode(data, raw=True)
            found = {}
            for raw_name, raw_value in pairs:
                name, value = bytes(raw_name).decode("ascii"), bytes(raw_value).decode("latin-1")
                found[name] = f"{found[name]},{value}" if name in found else value
        except (HPACKError, UnicodeDecodeError) as error:
            raise Fault(Reason.COMPRESSION, f"headers cannot be read: {error}") from error
        if self._state() != before or len(self._known) >= _CACHED:
            self._known.clear()
        if self._state() == before:
            self._known[bytes(data)] = found
        return found

    def _state(self) -> tuple[object, ...]:
        """The table's entries: new ones come first, old ones go last."""
        return tuple(self._decoder.header_table.dynamic_entries)
