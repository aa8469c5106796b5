// The kinds of rows. A row is {label, note, height, draw(plot), axis, read(time)}: `draw` fills its SVG for the part
// of the time that is in view, `read` says in words what it shows at one moment.

const SVG = "http://www.w3.org/2000/svg";

/** An element of HTML; attributes as given, children nodes or strings. */
function element(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** An element of SVG. */
function shape(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

/** What a row draws on: an SVG with its size, the time in view, and time to pixel. */
class Plot {
  constructor(svg, width, height, view) {
    Object.assign(this, { svg, width, height, view });
  }

  x(time) {
    return ((time - this.view.start) / (this.view.end - this.view.start)) * this.width;
  }

  shows(start, end) {
    return end >= this.view.start && start <= this.view.end;
  }

  add(tag, attributes, ...children) {
    const node = shape(tag, attributes, ...children);
    this.svg.append(node);
    return node;
  }

  /** Pixels of a span, cut at the edges, at least `least` wide. */
  extent(start, end, least = 1.5) {
    const left = Math.max(this.x(start), -2);
    const right = Math.min(this.x(end), this.width + 2);
    return { left, width: Math.max(right - left, least) };
  }

  /** A rectangle over a span, with its text inside where that fits. */
  bar(start, end, top, height, attributes, text, title) {
    const { left, width } = this.extent(start, end);
    const bar = this.add("rect", { x: left, y: top, width, height, ...attributes });
    if (title) bar.append(shape("title", {}, title));
    if (text) this.textWithin(left, width, top + height / 2, text, attributes.class);
    return bar;
  }

  /** Writes it if it fits; whether it did. */
  textWithin(left, width, middle, text, barClass = "") {
    const from = Math.max(left, 0);
    const room = Math.min(left + width, this.width) - from - 8;
    if (text.length * CHARACTER_PX > room) return false;
    this.add("text", { x: from + 4, y: middle, class: `within ${barClass}-text` }, text);
    return true;
  }
}

const CHARACTER_PX = 6.2; // of the small text within bars, about

function nodeClass(id) {
  return `node-${((id - 1) % 6 + 6) % 6}`;
}

// Faults, nodes, controller: spans -----------------------------------------------------------------------------

function faultRow(kind, row, first, end) {
  const until = (span) => span.end ?? end;
  return {
    label: first ? kind : "",
    note: row.target,
    height: 16,
    draw(plot) {
      row.spans.forEach((span, i) => {
        if (!plot.shows(span.start, until(span))) return;
        const next = row.spans[i + 1]?.start ?? Infinity;
        if (span.end === span.start) drawPoint(plot, span, next);
        else drawSpan(plot, span, until(span), next);
      });
    },
    read(time) {
      const active = row.spans.filter((span) => span.start <= time && time <= until(span));
      return active.map((span) => span.text).join(", ");
    },
  };
}

/** A bar with its text inside, or else beside it where the next one leaves room. */
function drawSpan(plot, span, end, next) {
  plot.bar(span.start, end, 3, 11, { class: "fault", rx: 1 }, "", faultWords(span));
  const { left, width } = plot.extent(span.start, end);
  if (plot.textWithin(left, width, 8.5, span.text, "fault")) return;
  plot.textWithin(left + width, plot.x(next) - left - width, 8.5, span.text, "point");
}

/** A diamond, and beside it as many of its words as the next one leaves room for. */
function drawPoint(plot, span, next) {
  const x = plot.x(span.start);
  plot.add("path", { d: `M${x} 3l4.5 5.5l-4.5 5.5l-4.5-5.5z`, class: "fault" }, shape("title", {}, faultWords(span)));
  const room = plot.x(next) - x;
  const whole = span.detail ? `${span.text}: ${span.detail}` : span.text;
  plot.textWithin(x + 3, room, 8.5, whole, "point") || plot.textWithin(x + 3, room, 8.5, span.text, "point");
}

function faultWords(span) {
  const when = span.end === span.start ? `at ${exactTime(span.start)}`
    : span.end === null ? `from ${exactTime(span.start)} to the end`
    : `${exactTime(span.start)} to ${exactTime(span.end)}, ${duration(span.end - span.start)}`;
  return `${span.text}: ${when}${span.detail ? `. ${span.detail}` : ""}`;
}

function nodeRow(node, end) {
  return {
    label: `node ${node.id}`,
    height: 16,
    draw(plot) {
      for (const { start, end: stop, state } of spansOf(node.states, end)) {
        if (!plot.shows(start, stop)) continue;
        const title = `node ${node.id} ${state[1]} from ${exactTime(start)}, ${duration(stop - start)}`;
        if (state[1] === "up") plot.bar(start, stop, 6, 4, { class: nodeClass(node.id) }, "", title);
        else plot.bar(start, stop, 2.5, 11, { class: `state-${state[1]}`, rx: 1 }, state[1], title);
      }
    },
    read: (time) => stateAt(node.states, time)?.[1] ?? "",
  };
}

function controllerRow(controllers, end) {
  const words = ([, id, term]) => (id < 0 ? `none · term ${term}` : `${id} · term ${term}`);
  return {
    label: "controller",
    height: 16,
    draw(plot) {
      for (const { start, end: stop, state } of spansOf(controllers, end)) {
        if (!plot.shows(start, stop)) continue;
        const look = state[1] < 0 ? "nobody" : nodeClass(state[1]);
        plot.bar(start, stop, 2.5, 11, { class: look }, words(state), `controller ${words(state)} from ${exactTime(start)}`);
        plot.add("path", { d: `M${plot.x(start)} 0v16`, class: "change" });
      }
    },
    read(time) {
      const state = stateAt(controllers, time);
      return state ? words(state) : "";
    },
  };
}

// Clients: rates, latency --------------------------------------------------------------------------------------

/** Events per second as a stepped area. */
function rateRow(label, note, counts, bucket, height, unit, more = {}) {
  const rates = counts.map((n) => (n * 1000) / bucket);
  return {
    label,
    note,
    height,
    axis: (view) => linearAxis(usualMax(inView(rates, bucket, view)), height, (value) => `${count(value)}${unit}`),
    draw(plot) {
      const { top, y } = linearAxis(usualMax(inView(rates, bucket, plot.view)), height, String);
      plot.add("path", { d: stepArea(plot, rates, bucket, (rate) => y(Math.min(rate, top)), height - 1), class: more.look ?? "rate" });
      rates.forEach((rate, i) => {
        const x = plot.x((i + 0.5) * bucket);
        if (rate > top && plot.shows(i * bucket, (i + 1) * bucket)) {
          plot.add("path", { d: `M${x} 0l3 4.5h-6z`, class: "beyond" }, shape("title", {}, `${count(rate)}${unit}`));
        }
      });
      more.draw?.(plot);
    },
    read: (time) => `${count(rates[bucketAt(rates, bucket, time)])}${unit}`,
  };
}

const ROW_HEAD = 7; // px above the highest value

function bucketAt(values, bucket, time) {
  return Math.min(Math.max(Math.floor(time / bucket), 0), values.length - 1);
}

function inView(values, bucket, view) {
  return values.slice(bucketAt(values, bucket, view.start), bucketAt(values, bucket, view.end) + 1);
}

/** The greatest value; where a few tower above the rest (what waited completes at once), three times the usual one:
 * those are cut, and marked. */
function usualMax(values) {
  const sorted = values.filter((value) => value > 0).sort((a, b) => a - b);
  const greatest = sorted[sorted.length - 1] ?? 0;
  return sorted.length < 20 ? greatest : Math.min(greatest, 3 * sorted[Math.floor(sorted.length / 2)]);
}

/** Zero, and a tick at a round value near the top. */
function linearAxis(greatest, height, words) {
  const top = greatest > 0 ? greatest : 1;
  const y = (value) => height - 1 - (value / top) * (height - ROW_HEAD);
  const zero = { y: height - 1, text: "0" };
  if (greatest <= 0) return { top, y, ticks: [zero] };
  const step = niceStep(top, 2);
  const round = Math.floor(top / step + 1e-9) * step;
  const upper = { y: y(round), text: words(round), line: true };
  return { top, y, ticks: zero.y - upper.y < 16 ? [upper] : [zero, upper] };
}

function stepArea(plot, values, bucket, y, floor) {
  const first = bucketAt(values, bucket, plot.view.start);
  const last = bucketAt(values, bucket, plot.view.end);
  let path = `M${plot.x(first * bucket).toFixed(1)} ${floor}`;
  for (let i = first; i <= last; i++) path += `V${y(values[i]).toFixed(1)}H${plot.x((i + 1) * bucket).toFixed(1)}`;
  return `${path}V${floor}Z`;
}

function acksRow(topic, bucket) {
  const isLongest = (gap) => gap[0] === topic.longest[0] && gap[1] === topic.longest[1];
  const rest = topic.longest ? `longest gap\n${duration(topic.longest[1] - topic.longest[0])}` : "";
  return {
    ...rateRow(topic.name, topic.mode, topic.rate, bucket, 46, "/s", {
      draw(plot) {
        for (const gap of topic.gaps) {
          if (plot.shows(gap[0], gap[1])) drawGap(plot, gap, isLongest(gap));
        }
      },
    }),
    rest,
  };
}

function drawGap(plot, gap, isLongest) {
  const { left, width } = plot.extent(gap[0], gap[1]);
  const base = plot.height - 1;
  const words = duration(gap[1] - gap[0]);
  plot.add("path", { d: `M${left} ${base - 5}v5h${width}v-5`, class: "gap" }, shape("title", {}, `no ack for ${words}`));
  if (!isLongest) return;
  const text = width > 110 ? `no ack for ${words}` : words;
  const middle = Math.min(Math.max(left + width / 2, text.length * 3.4), plot.width - text.length * 3.4);
  plot.add("text", { x: middle, y: base - 11, class: "gap-text", "text-anchor": "middle" }, text);
}

/** Milliseconds on a log scale: the median as a line, up to the 99th percentile as a band. */
function latencyRow(label, series, bucket) {
  const height = 64;
  const measured = [...series.p50, ...series.p99].filter((value) => value !== null);
  const low = Math.floor(Math.log10(Math.max(Math.min(...measured, 1e9), 0.01)));
  const high = Math.max(Math.ceil(Math.log10(Math.max(...measured, 0.01))), low + 1);
  const y = (ms) => height - 3 - ((Math.log10(Math.max(ms, 10 ** low)) - low) / (high - low)) * (height - 9);
  const decades = multiples(1, low, high).map((power) => ({ y: y(10 ** power), text: decade(10 ** power), line: true }));
  return {
    label,
    height,
    axis: () => ({ ticks: high - low > 4 ? decades.filter((_, i) => i % 2 === 0) : decades }),
    draw(plot) {
      const first = bucketAt(series.n, bucket, plot.view.start);
      const last = bucketAt(series.n, bucket, plot.view.end);
      let band = ""; // from the median to the 99th percentile
      const lines = { p50: "", p99: "" };
      for (let i = first; i <= last; i++) {
        if (series.p50[i] === null) continue;
        const left = plot.x(i * bucket).toFixed(1);
        const right = plot.x((i + 1) * bucket).toFixed(1);
        const [middle, upper] = [y(series.p50[i]).toFixed(1), y(series.p99[i]).toFixed(1)];
        band += `M${left} ${middle}V${upper}H${right}V${middle}Z`;
        const joins = i > first && series.p50[i - 1] !== null;
        lines.p50 += joins ? `V${middle}H${right}` : `M${left} ${middle}H${right}`;
        lines.p99 += joins ? `V${upper}H${right}` : `M${left} ${upper}H${right}`;
      }
      plot.add("path", { d: band, class: "band" });
      plot.add("path", { d: lines.p99, class: "p99" });
      plot.add("path", { d: lines.p50, class: "p50" });
    },
    read(time) {
      const i = bucketAt(series.n, bucket, time);
      return series.p50[i] === null ? "none" : `p50 ${duration(series.p50[i])}\np99 ${duration(series.p99[i])}`;
    },
  };
}

function decade(ms) {
  return ms >= 1000 ? `${ms / 1000} s` : `${ms} ms`;
}

function ticksRow(label, times, what) {
  return {
    label,
    height: 14,
    draw(plot) {
      const seen = times.filter((time) => plot.shows(time, time));
      plot.add("path", { d: seen.map((time) => `M${plot.x(time).toFixed(1)} 2v10`).join(""), class: "change" });
    },
    rest: `${count(times.length)} ${what}${times.length === 1 ? "" : "es"}`,
    read: () => null,
  };
}

// Partitions ---------------------------------------------------------------------------------------------------

const LANE = 11; // px per replica

/** A lane per replica: thick while it leads, thin while it is in the ISR, nothing while it is out. */
function replicasRow(partition, nodes, end) {
  const members = nodes.filter((id) => partition.isr.some(([, isr]) => isr.includes(id))
    || partition.leaders.some(([, leader]) => leader === id));
  const height = members.length * LANE + 4;
  const middle = (id) => 2 + members.indexOf(id) * LANE + LANE / 2;
  const leaders = spansOf(partition.leaders, end);
  return {
    label: partition.key,
    height,
    lanes: members.map((id) => ({ id, y: middle(id) })),
    axis: () => ({ ticks: members.map((id) => ({ y: middle(id), text: String(id), look: nodeClass(id) })) }),
    draw(plot) {
      for (const id of members) plot.add("path", { d: `M0 ${middle(id)}H${plot.width}`, class: "out" });
      for (const { start, end: stop, state } of spansOf(partition.isr, end)) {
        if (!plot.shows(start, stop)) continue;
        for (const id of state[1]) plot.bar(start, stop, middle(id) - 1.25, 2.5, { class: nodeClass(id) });
      }
      for (const { start, end: stop, state } of leaders) {
        if (plot.shows(start, stop)) drawLeader(plot, start, stop, state);
      }
    },
    read(time) {
      const leader = stateAt(partition.leaders, time);
      const isr = stateAt(partition.isr, time);
      if (!leader) return "";
      const who = leader[1] < 0 ? "no leader" : `leader ${leader[1]}`;
      return `${who}, epoch ${leader[2]}\nISR ${isr ? isr[1].join(" ") || "empty" : "?"}`;
    },
  };

  function drawLeader(plot, start, stop, [, id, epoch]) {
    const title = id < 0 ? `no leader, epoch ${epoch}` : `node ${id} leads ${partition.key}, epoch ${epoch}`;
    const when = `${title}, from ${exactTime(start)}, ${duration(stop - start)}`;
    if (id < 0) plot.bar(start, stop, 1, height - 2, { class: "nobody" }, "no leader", when);
    else plot.bar(start, stop, middle(id) - LANE / 2 + 0.5, LANE - 1, { class: nodeClass(id) }, "", when);
    const x = plot.x(start);
    plot.add("path", { d: `M${x} 0v${height}`, class: "change" });
    if (id >= 0) plot.textWithin(x - 1, plot.x(stop) - x, middle(id), `e${epoch}`, nodeClass(id));
  }
}

function watermarkRow(partition) {
  const height = 34;
  const bounds = (view) => {
    const inView = partition.hw.filter(([time]) => time >= view.start && time <= view.end).map(([, hw]) => hw);
    const before = stateAt(partition.hw, view.start);
    if (before) inView.push(before[1]);
    const low = inView.reduce((a, b) => Math.min(a, b), Infinity);
    const high = inView.reduce((a, b) => Math.max(a, b), 0);
    return Number.isFinite(low) ? { low, high: Math.max(high, low + 1) } : { low: 0, high: 1 };
  };
  const scale = ({ low, high }) => (hw) => height - 4 - ((hw - low) / (high - low)) * (height - 9);
  return {
    label: "",
    note: "high watermark",
    height,
    last: true,
    axis(view) {
      const range = bounds(view);
      const y = scale(range);
      return { ticks: [range.low, range.high].map((hw) => ({ y: y(hw), text: count(hw) })) };
    },
    draw(plot) {
      const y = scale(bounds(plot.view));
      let path = "";
      for (const [time, hw] of partition.hw) {
        path += path ? `H${plot.x(time).toFixed(1)}V${y(hw).toFixed(1)}` : `M${plot.x(time).toFixed(1)} ${y(hw).toFixed(1)}`;
      }
      if (path) plot.add("path", { d: `${path}H${plot.width}`, class: "watermark" });
      for (const [time, before, after] of partition.hw_falls) {
        if (!plot.shows(time, time)) continue;
        const title = `the high watermark fell from ${count(before)} to ${count(after)} at ${exactTime(time)}`;
        plot.add("path", { d: `M${plot.x(time)} ${y(after)}l-5-8h10z`, class: "fall" }, shape("title", {}, title));
      }
    },
    read(time) {
      const state = stateAt(partition.hw, time);
      return state ? `HW ${count(state[1])}` : "";
    },
  };
}

// Anomalies ----------------------------------------------------------------------------------------------------

function anomalyRow(anomalies, select) {
  return {
    label: "anomalies",
    height: 18,
    draw(plot) {
      const taken = new Set(); // one mark per few pixels: the table has them all
      anomalies.forEach((anomaly, index) => {
        const x = plot.x(anomaly.start);
        const slot = `${Math.round(x / 4)} ${anomaly.allowed}`;
        if (x < 0 || x > plot.width || taken.has(slot)) return;
        taken.add(slot);
        const mark = plot.add("path", {
          d: `M${x} 3l5.5 6l-5.5 6l-5.5-6z`,
          class: anomaly.allowed ? "mark allowed" : "mark forbidden",
        }, shape("title", {}, `${anomaly.kind}: ${anomaly.summary}`));
        mark.addEventListener("click", () => select(index));
      });
    },
    read(time) {
      const near = anomalies.filter((anomaly) => anomaly.start <= time && time <= anomaly.end);
      return near.length > 1 ? `evidence of ${near.length}` : near.map((anomaly) => anomaly.kind).join("");
    },
  };
}

/** The operations of one anomaly, a row per process. */
function evidenceRows(anomaly, operations) {
  const processes = new Map();
  for (const index of anomaly.evidence) {
    const operation = operations[index];
    processes.set(operation.process, [...(processes.get(operation.process) ?? []), { index, ...operation }]);
  }
  return [...processes].slice(0, MAX_PROCESSES).map(([process, mine], i) => ({
    label: i === 0 ? "evidence" : "",
    note: `process ${process}`,
    height: 16,
    draw(plot) {
      for (const { index, f, start, end, outcome } of mine) {
        if (plot.shows(start, end)) plot.bar(start, end, 3, 11, { class: `evidence ${outcome}`, rx: 1 }, `${f} ${outcome}`, `operation ${index}: ${f}, ${outcome}`);
      }
    },
    read: (time) => mine.filter(({ start, end }) => start <= time && time <= end).map(({ f, outcome }) => `${f} ${outcome}`).join(", "),
  }));
}

const MAX_PROCESSES = 8;
