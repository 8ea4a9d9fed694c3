// How long to wait before trying again: twice as long each time, up to a limit, and a little by chance, so that a server
// that comes back is not met by everybody at once. Pure.

export class Backoff {
  constructor({ firstMs = 500, limitMs = 15000, tries = 8 } = {}) {
    this.firstMs = firstMs;
    this.limitMs = limitMs;
    this.tries = tries;
    this.failed = 0;
  }

  // Milliseconds until the next try; null when it is time to give up. `chance`: 0 to 1.
  next(chance) {
    if (this.failed >= this.tries) return null;
    const whole = Math.min(this.firstMs * 2 ** this.failed++, this.limitMs);
    return whole * (0.75 + 0.25 * chance);
  }

  // It worked.
  reset() {
    this.failed = 0;
  }
}
