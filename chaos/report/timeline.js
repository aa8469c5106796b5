// All rows on one axis of time: zoom by drag, values under the cursor in every row at once.

const LEAST_VIEW_MS = 2;
const DRAG_PX = 4; // less is a click

class Timeline {
  /** `sections`: [{title, legend, rows}]; `faults`: [[start, end]] to shade behind everything. */
  constructor(host, spoken, sections, whole, faults) {
    Object.assign(this, { host, spoken, whole, faults, cursor: null, marker: null, drag: null });
    this.view = { ...whole };
    this.onView = () => {};
    this.evidence = [];
    host.tabIndex = 0;
    host.setAttribute("role", "group");
    host.setAttribute("aria-label", "Timeline of the run. Arrow keys move the cursor, plus and minus zoom, Escape shows the whole run.");
    this.build(sections);
    this.listen();
    new ResizeObserver(([{ contentRect }]) => {
      if (contentRect.width !== this.drawnFor) requestAnimationFrame(() => this.draw());
      this.drawnFor = contentRect.width;
    }).observe(host);
  }

  build(sections) {
    this.axis = shape("svg", { class: "axis", height: 24, "aria-hidden": "true" });
    this.clock = element("output", { class: "clock" });
    const head = element("div", { class: "row head" }, element("span", { class: "label" }, "time since start"), element("span"), this.axis, this.clock);
    this.evidenceHost = element("div", { class: "section" });
    this.underlay = element("div", { class: "layers under" });
    this.overlay = element("div", { class: "layers over" });
    this.host.replaceChildren(head, this.underlay, this.overlay, this.evidenceHost);
    this.rows = [];
    for (const { title, legend, rows } of sections) {
      const heading = title ? element("h3", {}, title, legend ?? "") : null;
      const section = element("div", { class: "section" }, heading);
      for (const row of rows) this.rows.push(this.mount(row, section));
      this.host.append(section);
    }
  }

  mount(row, section) {
    const svg = shape("svg", { height: row.height, class: "plot", "aria-hidden": "true" });
    const scale = shape("svg", { height: row.height, class: "scale", "aria-hidden": "true" });
    const readout = element("output", { class: "readout" });
    const below = row.label && row.note && row.height >= 28; // else beside
    const note = row.note ? element("small", { class: below ? "below" : null }, row.note) : null;
    const label = element("div", { class: "label", title: `${row.label} ${row.note ?? ""}`.trim() }, row.label, below ? "" : " ", note);
    section.append(element("div", { class: row.last ? "row last" : "row" }, label, scale, svg, readout));
    return { row, svg, scale, readout };
  }

  /** Rows above all others, for the operations of one anomaly. */
  showEvidence(rows) {
    this.evidenceHost.replaceChildren();
    this.evidence = rows.map((row) => this.mount(row, this.evidenceHost));
  }

  mounted() {
    return [...this.evidence, ...this.rows];
  }

  // Drawing

  draw() {
    const box = this.axis.getBoundingClientRect();
    if (box.width < 1) return;
    this.width = box.width;
    this.left = box.left - this.host.getBoundingClientRect().left;
    const ticks = this.ticks();
    this.drawAxis(ticks);
    for (const { row, svg, scale } of this.mounted()) {
      svg.replaceChildren();
      const plot = new Plot(svg, this.width, row.height, this.view);
      const levels = row.axis?.(this.view).ticks ?? [];
      for (const { y, line } of levels) if (line) plot.add("path", { d: `M0 ${y}H${this.width}`, class: "grid" });
      row.draw(plot);
      scale.replaceChildren(...levels.map(({ y, text, look }) => shape("text", { x: "100%", dx: -6, y: Math.min(Math.max(y, 6), row.height - 5), class: look ?? "" }, text)));
    }
    this.lay(this.underlay, [...this.faults.map(([start, end]) => this.layer("wash", start, end)), ...ticks.map((tick) => this.layer("tick", tick, tick))]);
    this.drawOverlay();
    this.read();
    this.onView(this.view);
  }

  ticks() {
    this.step = niceTimeStep(this.view.end - this.view.start, this.width / 90);
    return multiples(this.step, this.view.start, this.view.end);
  }

  drawAxis(ticks) {
    this.axis.replaceChildren();
    const plot = new Plot(this.axis, this.width, 24, this.view);
    const long = this.whole.end > 180e3;
    for (const tick of ticks) {
      const x = plot.x(tick);
      plot.add("path", { d: `M${x} 18v6`, class: "grid" });
      plot.add("text", { x, y: 11, "text-anchor": x > this.width - 20 ? "end" : "middle" }, tickTime(tick, this.step, long));
    }
  }

  x(time) {
    return ((time - this.view.start) / (this.view.end - this.view.start)) * this.width;
  }

  drawOverlay() {
    const layers = [];
    if (this.marker) layers.push(this.layer("marker", this.marker.start, this.marker.end));
    if (this.drag) layers.push(this.layer("brush", ...this.dragged()));
    if (this.cursor !== null) layers.push(this.layer("cursor", this.cursor, this.cursor));
    this.lay(this.overlay, layers);
  }

  lay(host, layers) {
    host.style.left = `${this.left}px`;
    host.style.width = `${this.width}px`;
    host.replaceChildren(...layers.filter((layer) => layer !== null));
  }

  layer(look, start, end) {
    const left = Math.max(this.x(start), 0);
    const right = Math.min(this.x(end), this.width);
    if (right < 0 || left > this.width || right < left) return null;
    const layer = element("div", { class: look });
    layer.style.left = `${left}px`;
    layer.style.width = `${Math.max(right - left, 1)}px`;
    return layer;
  }

  /** Each row's readout: its value under the cursor; without one, a summary of the row. */
  read() {
    const time = this.cursor;
    this.clock.textContent = time === null ? "" : exactTime(time);
    for (const { row, readout } of this.mounted()) {
      const words = time === null ? null : row.read(time);
      readout.textContent = words ?? row.rest ?? "";
      readout.classList.toggle("at-rest", words === null);
    }
  }

  // What the user does

  zoom(start, end) {
    const span = Math.min(Math.max(end - start, LEAST_VIEW_MS), this.whole.end - this.whole.start);
    const from = Math.min(Math.max((start + end - span) / 2, this.whole.start), this.whole.end - span);
    this.view = { start: from, end: from + span };
    this.draw();
  }

  reset() {
    this.view = { ...this.whole };
    this.draw();
  }

  /** A lasting mark, drawn over all rows until the next one. */
  mark(start, end) {
    this.marker = { start, end };
    this.drawOverlay();
  }

  listen() {
    const { host } = this;
    host.addEventListener("pointerdown", (event) => {
      const time = this.timeAt(event);
      if (time === null || event.button !== 0 || event.pointerType === "touch") return;
      this.drag = { from: time, to: time, x: event.clientX, moved: false, pointer: event.pointerId };
    });
    host.addEventListener("pointermove", (event) => this.pointerMoved(event));
    host.addEventListener("pointerup", () => this.endDrag());
    host.addEventListener("pointercancel", () => this.cancelDrag());
    host.addEventListener("pointerleave", () => {
      if (!this.drag) this.moveCursor(null);
    });
    host.addEventListener("dblclick", (event) => {
      if (this.timeAt(event) !== null) this.reset();
    });
    host.addEventListener("keydown", (event) => this.key(event));
  }

  timeAt(event) {
    const x = event.clientX - this.axis.getBoundingClientRect().left;
    if (!this.drag && (x < 0 || x > this.width)) return null;
    const share = Math.min(Math.max(x / this.width, 0), 1);
    return this.view.start + share * (this.view.end - this.view.start);
  }

  pointerMoved(event) {
    const time = this.timeAt(event);
    if (this.drag && time !== null) {
      this.drag.to = time;
      if (!this.drag.moved && Math.abs(event.clientX - this.drag.x) > DRAG_PX) {
        this.drag.moved = true;
        this.host.setPointerCapture(this.drag.pointer); // only now: a captured click would miss the marks
      }
    }
    this.moveCursor(time);
  }

  dragged() {
    return [Math.min(this.drag.from, this.drag.to), Math.max(this.drag.from, this.drag.to)];
  }

  endDrag() {
    const range = this.drag?.moved ? this.dragged() : null;
    this.cancelDrag();
    if (range) this.zoom(...range);
  }

  cancelDrag() {
    this.drag = null;
    this.drawOverlay();
  }

  moveCursor(time) {
    this.cursor = time;
    this.drawOverlay();
    this.read();
  }

  key(event) {
    if (event.target !== this.host || event.ctrlKey || event.metaKey || event.altKey) return;
    const { start, end } = this.view;
    const span = end - start;
    const at = this.cursor ?? (start + end) / 2;
    const step = span / (event.shiftKey ? 10 : 100);
    const actions = {
      ArrowLeft: () => this.keyCursor(at - step),
      ArrowRight: () => this.keyCursor(at + step),
      "+": () => this.zoom(at - span / 4, at + span / 4),
      "=": () => this.zoom(at - span / 4, at + span / 4),
      "-": () => this.zoom(at - span, at + span),
      Escape: () => this.reset(),
    };
    if (!(event.key in actions)) return;
    event.preventDefault();
    actions[event.key]();
  }

  keyCursor(time) {
    const at = Math.min(Math.max(time, this.whole.start), this.whole.end);
    const span = this.view.end - this.view.start;
    if (at < this.view.start || at > this.view.end) this.zoom(at - span / 2, at + span / 2);
    this.moveCursor(at);
    const words = this.mounted().map(({ row, readout }) => [row.label || row.note, readout.textContent]);
    const said = words.filter(([, value]) => value).map(([label, value]) => `${label} ${value}`);
    this.spoken.textContent = `${exactTime(at)}. ${said.join("; ")}`;
  }
}
