/** Several files in one: the archive that every system opens (POSIX ustar). */

const BLOCK = 512;

/** The bytes of an archive of files by name. */
export function archive(files) {
  const parts = [];
  for (const [name, content] of files) {
    parts.push(header(name, content.length), content, new Uint8Array(-content.length & (BLOCK - 1)));
  }
  return new Blob([...parts, new Uint8Array(2 * BLOCK)]);
}

function header(name, size) {
  const block = new Uint8Array(BLOCK);
  const write = (text, at) => block.set(new TextEncoder().encode(text), at);
  const octal = (number, digits) => number.toString(8).padStart(digits, "0");
  write(name, 0);
  write(octal(0o644, 7), 100);
  write(octal(0, 7), 108);
  write(octal(0, 7), 116);
  write(octal(size, 11), 124);
  write(octal(Math.floor(Date.now() / 1000), 11), 136);
  write(" ".repeat(8), 148); // the sum is taken with spaces in its own place
  write("0", 156);
  write("ustar\0" + "00", 257);
  write(`${octal(block.reduce((sum, byte) => sum + byte), 6)}\0 `, 148);
  return block;
}
