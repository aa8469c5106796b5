// Numbers, times and scales: plain functions, no page.

/** Round steps for about `wanted` ticks over `span`. */
function niceStep(span, wanted) {
  const rough = span / Math.max(wanted, 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= rough * 0.999);
}

/** The same for times in ms, whose steps above a minute are multiples of sixty. */
function niceTimeStep(span, wanted) {
  const rough = span / Math.max(wanted, 1);
  const sixties = [15e3, 30e3, 60e3, 120e3, 300e3, 600e3, 900e3, 1800e3, 3600e3, 7200e3];
  if (rough <= 10e3) return niceStep(span, wanted);
  return sixties.find((step) => step >= rough) ?? niceStep(span, wanted);
}

function multiples(step, from, to) {
  const ticks = [];
  for (let i = Math.ceil(from / step - 1e-9); i * step <= to + step * 1e-9; i++) ticks.push(i * step);
  return ticks;
}

/** A tick's time, as exact as its step: "12 s", "12.35 s", "2:30". */
function tickTime(ms, step, long) {
  if (long && step >= 1000) return clockTime(ms, 0);
  const decimals = Math.max(0, 3 - Math.floor(Math.log10(step) + 1e-9));
  return long ? clockTime(ms, decimals) : `${(ms / 1000).toFixed(decimals)} s`;
}

/** Minutes and seconds: "2:05.250". */
function clockTime(ms, decimals) {
  const whole = Math.floor(ms / 60e3 + 1e-9);
  const seconds = Math.max(0, ms / 1000 - whole * 60).toFixed(decimals);
  return `${whole}:${seconds.padStart(decimals ? decimals + 3 : 2, "0")}`;
}

/** A point in time, to the millisecond. */
function exactTime(ms) {
  return `${(ms / 1000).toFixed(3)} s`;
}

/** How long something took: "0.42 ms", "38 ms", "1.25 s", "4 min 10 s". */
function duration(ms) {
  if (ms < 1) return `${ms.toPrecision(2)} ms`;
  if (ms < 1000) return `${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms`;
  if (ms < 120e3) return `${(ms / 1000).toFixed(ms < 10e3 ? 2 : 1)} s`;
  return `${Math.floor(ms / 60e3)} min ${Math.round((ms % 60e3) / 1000)} s`;
}

function count(number) {
  return number.toLocaleString("en-US", { maximumFractionDigits: number < 10 ? 1 : 0 });
}

/** The last of `changes` ([time, ...], ascending) at or before `time`; undefined before the first. */
function stateAt(changes, time) {
  let low = 0;
  let high = changes.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (changes[middle][0] <= time) low = middle + 1;
    else high = middle;
  }
  return changes[low - 1];
}

/** Changes as spans {start, end, state}, the last one up to `end`. */
function spansOf(changes, end) {
  return changes.map((state, i) => ({ start: state[0], end: i + 1 < changes.length ? changes[i + 1][0] : end, state }));
}
