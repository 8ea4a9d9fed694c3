// How loud a stretch of sound is, on a scale for a meter: 0 at -60 dB of full scale and below, 1 at full scale.

const FLOOR_DB = -60;

export function meter(amplitude) {
  if (!(amplitude > 0)) return 0;
  return Math.min(1, Math.max(0, 1 - (20 * Math.log10(amplitude)) / FLOOR_DB));
}

// Of 16-bit samples: the root of the mean square, as a share of full scale.
export function loudness(samples) {
  let sum = 0;
  for (const s of samples) sum += s * s;
  return samples.length ? Math.sqrt(sum / samples.length) / 32768 : 0;
}
