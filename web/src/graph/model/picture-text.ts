/**
 * The texts inside a PNG (`tEXt` and uncompressed `iTXt`), by keyword. Knows nothing of what they say.
 */

const SIGNATURE = [0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a];

export function isPng(bytes: Uint8Array): boolean {
  return SIGNATURE.every((byte, index) => bytes[index] === byte);
}

export function pngTexts(bytes: Uint8Array): Map<string, string> {
  const found = new Map<string, string>();
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  for (let at = SIGNATURE.length; at + 12 <= bytes.length;) {
    const length = view.getUint32(at);
    const kind = latin(bytes.subarray(at + 4, at + 8));
    const body = bytes.subarray(at + 8, at + 8 + length);
    if (kind === "IEND" || body.length < length) break;
    const entry = kind === "tEXt" ? plainText(body) : kind === "iTXt" ? internationalText(body) : null;
    if (entry) found.set(...entry);
    at += 12 + length;
  }
  return found;
}

function plainText(body: Uint8Array): [string, string] | null {
  const end = body.indexOf(0);
  return end < 0 ? null : [latin(body.subarray(0, end)), latin(body.subarray(end + 1))];
}

/** Keyword, compression flag and method, language, translated keyword, text: the zeros between them count. */
function internationalText(body: Uint8Array): [string, string] | null {
  const keyword = body.indexOf(0);
  const language = body.indexOf(0, keyword + 3);
  const translated = body.indexOf(0, language + 1);
  if (keyword < 0 || language < 0 || translated < 0 || body[keyword + 1] !== 0) return null;
  return [latin(body.subarray(0, keyword)), new TextDecoder().decode(body.subarray(translated + 1))];
}

function latin(bytes: Uint8Array): string {
  // Not "latin1": browsers take that for windows-1252. Character by character is what the format says.
  return Array.from(bytes, (byte) => String.fromCharCode(byte)).join("");
}
