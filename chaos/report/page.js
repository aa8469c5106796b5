// The page: the verdict in words, then the timeline, then the anomalies.

const data = JSON.parse(document.getElementById("data").textContent);

function verdict() {
  const name = data.scenario ?? "history";
  const title = element(
    "h1",
    {},
    name,
    data.seed === null ? "" : element("span", { class: "seed" }, ` seed ${data.seed}`),
    element("span", { class: data.ok ? "held" : "broken" }, data.ok ? "✓ held" : "✗ broken"),
  );
  const expectations = data.expectations.map(({ name: what, ok, detail }) => element(
    "li",
    { class: ok ? "met" : "missed" },
    element("span", { class: "check" }, ok ? "✓" : "✗", element("span", { class: "unseen" }, ok ? " met" : " not met")),
    element("span", { class: "what" }, what),
    element("span", { class: "detail" }, detail ?? ""),
  ));
  document.getElementById("verdict").append(
    title,
    ...scenarioWords(data.narrative),
    element("p", { class: "sentence" }, data.sentence),
    element("ul", { class: "expectations" }, ...expectations),
    element("p", { class: "replay" }, "Again: ", element("code", {}, data.command)),
    data.twin ? element("p", { class: "replay" }, "The same with a bug planted: ", element("a", { href: data.twin }, data.twin)) : "",
  );
}

function facts() {
  const pairs = data.facts.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value)));
  document.getElementById("facts").append(element("dl", {}, ...pairs));
}

function sections(select) {
  const { cluster, clients, faults, bucket, duration: end } = data;
  const nodes = cluster.nodes.map(({ id }) => id);
  const found = data.anomalies.shown;
  const steps = `in steps of ${bucket < 1000 ? bucket : bucket / 1000} ${bucket < 1000 ? "ms" : "s"}`;
  return [
    { rows: found.length ? [anomalyRow(found, select)] : [] },
    {
      title: "Faults",
      rows: faults.flatMap(({ kind, rows }) => rows.map((row, i) => faultRow(kind, row, i === 0, end))),
    },
    {
      title: "Nodes",
      rows: [
        ...cluster.nodes.filter(({ states }) => states.length).map((node) => nodeRow(node, end)),
        ...(cluster.controllers.length ? [controllerRow(cluster.controllers, end)] : []),
      ],
    },
    {
      title: "Acknowledged writes",
      legend: element("small", {}, ` per second, ${steps}; a bracket is a time without any ack`),
      rows: clients.topics.map((topic) => acksRow(topic, bucket)),
    },
    {
      title: "Latency",
      legend: element("small", {}, ` of completed sends, and of polls that returned something, ${steps}, log scale; line: median, band: up to the 99th percentile`),
      rows: ["send", "poll"].map((f) => latencyRow(f, clients.latency[f], bucket)),
    },
    {
      title: "Outcomes",
      legend: element("small", {}, " of sends, polls and transactions, per second; info: nobody knows whether it happened"),
      rows: [
        ...["ok", "fail", "info"].map((outcome) => rateRow(outcome, "", clients.outcomes[outcome], bucket, 26, "/s", { look: outcome === "ok" ? "rate" : "trouble" })),
        ...(clients.crashes.length ? [ticksRow("client crashes", clients.crashes, "crash")] : []),
      ],
    },
    {
      title: "Partitions",
      legend: partitionLegend(),
      rows: cluster.partitions.flatMap((partition) => [replicasRow(partition, nodes, end), watermarkRow(partition)]),
    },
  ].filter(({ rows }) => rows.length);
}

function partitionLegend() {
  const key = (name, text) => element("span", { class: "key" }, element("i", { class: `sample ${name}` }), text);
  return element("small", { class: "legend" }, key("leads", "leads"), key("in-sync", "in the ISR"), key("outside", "out of it"), key("epoch", "new leader epoch"));
}

/** The times in which any fault was active, laid together. */
function shaded() {
  const spans = data.faults.flatMap(({ rows }) => rows.flatMap((row) => row.spans))
    .filter(({ start, end }) => end !== start)
    .map(({ start, end }) => [start, end ?? data.duration])
    .sort((a, b) => a[0] - b[0]);
  const together = [];
  for (const [start, end] of spans) {
    const last = together[together.length - 1];
    if (last && start <= last[1]) last[1] = Math.max(last[1], end);
    else together.push([start, end]);
  }
  return together;
}

function toolbar(timeline) {
  const range = element("output", { class: "range" });
  const whole = element("button", { type: "button" }, "whole run");
  whole.addEventListener("click", () => timeline.reset());
  timeline.onView = ({ start, end }) => {
    range.textContent = `${exactTime(start)} to ${exactTime(end)}`;
    whole.disabled = end - start >= data.duration;
  };
  const help = element("span", { class: "help" }, "Drag to zoom, double-click for the whole run. Keys: ← → cursor, + − zoom, Esc.");
  document.getElementById("toolbar").append(range, whole, help);
}

/** One anomaly: its operations as rows of the timeline, the time around them in view, its evidence unfolded. */
function select(index) {
  const anomaly = data.anomalies.shown[index];
  const room = Math.max((anomaly.end - anomaly.start) * 0.15, 500);
  timeline.showEvidence(evidenceRows(anomaly, data.anomalies.operations));
  timeline.marker = { start: anomaly.start, end: anomaly.end };
  timeline.zoom(anomaly.start - room, anomaly.end + room);
  document.querySelector("tr.selected")?.classList.remove("selected");
  const row = document.getElementById(`anomaly-${index}`);
  row.classList.add("selected");
  row.unfold(true);
}

verdict();
facts();
document.getElementById("narrative").append(storyTable(data.narrative));
document.getElementById("words").append(wordList(data.narrative.words));
const timeline = new Timeline(
  document.getElementById("timeline"),
  document.getElementById("spoken"),
  sections((index) => {
    select(index);
    document.getElementById(`anomaly-${index}`).scrollIntoView({ block: "center" });
  }),
  { start: 0, end: data.duration },
  shaded(),
);
toolbar(timeline);
document.getElementById("anomalies").append(anomalyTable(data.anomalies, (index) => {
  select(index);
  document.getElementById("timeline-heading").scrollIntoView();
  document.getElementById("timeline").focus({ preventScroll: true });
}));
if (data.anomalies.shown.some(({ allowed }) => !allowed)) document.getElementById("anomaly-0").unfold(true);
timeline.draw();
document.documentElement.dataset.drawn = "yes";
