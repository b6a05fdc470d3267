/**
 * Keccak-256 as Ethereum and 0G use it (the padding from before SHA-3). It is implemented here, so that verifying a
 * receipt requires trust in no other package. A lane of 64 bits is two words, because BigInt took forty times as long.
 */
import type { Bytes } from "./bytes.ts"

const RATE = 136
const ROUNDS = 24
/** The lanes' rotations and the order in which they move (ρ and π), from the specification's recurrence. */
const rotations: number[] = []
const moves: number[] = []
/** The round constants (ι), as low and high words. */
const constants: [number, number][] = []

for (let round = 0, x = 1, y = 0, bits = 1; round < ROUNDS; round++) {
  ;[x, y] = [y, (2 * x + 3 * y) % 5]
  moves.push(5 * y + x)
  rotations.push((((round + 1) * (round + 2)) / 2) % 64)
  let low = 0
  let high = 0
  for (let j = 0; j < 7; j++) {
    if (bits & 1) {
      const at = 2 ** j - 1
      if (at < 32) low ^= 1 << at
      else high ^= 1 << (at - 32)
    }
    bits = (bits << 1) ^ ((bits >> 7) * 0x171)
  }
  constants.push([low, high])
}

/** The state's words: lane i is at 2i (low) and 2i + 1 (high). */
function permute(s: Int32Array): void {
  const c = new Int32Array(10)
  for (let round = 0; round < ROUNDS; round++) {
    for (let x = 0; x < 10; x++) c[x] = at(s, x) ^ at(s, x + 10) ^ at(s, x + 20) ^ at(s, x + 30) ^ at(s, x + 40)
    for (let x = 0; x < 10; x += 2) {
      const low = at(c, (x + 2) % 10)
      const high = at(c, (x + 3) % 10)
      const dLow = at(c, (x + 8) % 10) ^ ((low << 1) | (high >>> 31))
      const dHigh = at(c, (x + 9) % 10) ^ ((high << 1) | (low >>> 31))
      for (let y = 0; y < 50; y += 10) {
        s[x + y] = at(s, x + y) ^ dLow
        s[x + y + 1] = at(s, x + y + 1) ^ dHigh
      }
    }
    move(s)
    for (let y = 0; y < 50; y += 10) {
      for (let x = 0; x < 10; x++) c[x] = at(s, y + x)
      for (let x = 0; x < 10; x++) s[y + x] = at(s, y + x) ^ (~at(c, (x + 2) % 10) & at(c, (x + 4) % 10))
    }
    const [low, high] = constants[round] as [number, number]
    s[0] = at(s, 0) ^ low
    s[1] = at(s, 1) ^ high
  }
}

/** Rotates each lane and moves it to its next place. */
function move(s: Int32Array): void {
  let low = at(s, 2)
  let high = at(s, 3)
  for (let i = 0; i < ROUNDS; i++) {
    const to = 2 * (moves[i] as number)
    const by = rotations[i] as number
    const [a, b] = by < 32 ? [low, high] : [high, low]
    const n = by % 32
    ;[low, high] = [at(s, to), at(s, to + 1)]
    // JavaScript would treat a shift by 32 as a shift by 0.
    s[to] = n === 0 ? a : (a << n) | (b >>> (32 - n))
    s[to + 1] = n === 0 ? b : (b << n) | (a >>> (32 - n))
  }
}

const at = (words: Int32Array, i: number): number => words[i] as number

/** The hash of 32 bytes. */
export function keccak256(bytes: Uint8Array): Bytes {
  const padded = new Uint8Array((Math.floor(bytes.length / RATE) + 1) * RATE)
  padded.set(bytes)
  padded[bytes.length] = 1
  padded[padded.length - 1] = (padded.at(-1) ?? 0) | 0x80
  const words = new DataView(padded.buffer)
  const state = new Int32Array(50)
  for (let block = 0; block < padded.length; block += RATE) {
    for (let i = 0; i < RATE / 4; i++) state[i] = at(state, i) ^ words.getInt32(block + 4 * i, true)
    permute(state)
  }
  const hash = new DataView(new ArrayBuffer(32))
  for (let i = 0; i < 8; i++) hash.setInt32(4 * i, at(state, i), true)
  return new Uint8Array(hash.buffer)
}
