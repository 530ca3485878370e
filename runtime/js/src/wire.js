/** The fields of a protobuf message, read from its bytes without a copy of them. */

const [VARINT, FIXED64, BYTES, FIXED32] = [0, 1, 2, 5];

/**
 * The fields of a message; those that are numbers have no `bytes`.
 * @param {Uint8Array} message
 * @returns {Generator<{number: number, bytes: Uint8Array | undefined}>}
 */
export function* fields(message) {
  const place = { at: 0 };
  while (place.at < message.length) {
    const tag = readNumber(message, place);
    // protobuf would take the lower half of a larger tag.
    if (tag >= 2 ** 32) throw new RangeError("a field without number");
    const [number, kind] = [Math.floor(tag / 8), tag % 8];
    let bytes;
    if (kind === BYTES) {
      const size = readNumber(message, place);
      bytes = message.subarray(place.at, place.at + size);
      place.at += size;
    } else if (kind === VARINT) readNumber(message, place);
    else if (kind === FIXED32) place.at += 4;
    else if (kind === FIXED64) place.at += 8;
    else throw new RangeError(`a field of wire type ${kind}`);
    if (place.at > message.length) break;
    yield { number, bytes };
  }
  if (place.at !== message.length) throw new RangeError("a message ends within a field");
}

/**
 * A number of seven bits a byte; beyond 2^53 it is not exact, as no size or tag is.
 * @param {Uint8Array} bytes
 * @param {{at: number}} place
 */
function readNumber(bytes, place) {
  let value = 0;
  for (let i = 0; i < 10 && place.at < bytes.length; i++) {
    const byte = bytes[place.at++];
    value += (byte & 0x7f) * 2 ** (7 * i);
    if (byte < 0x80) return value;
  }
  throw new RangeError("a number has no end");
}
