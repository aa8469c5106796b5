// The console: the live stream of its node, drawn. Everything that comes from the cluster is set as text.

export const $ = (id) => document.getElementById(id);
const number = new Intl.NumberFormat("en");
const MAX_EVENTS = 200;
const UNKNOWN = "unknown"; // a figure of a node that does not answer

export function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("aria-") || name === "role" || name === "scope") made.setAttribute(name, value);
    else made[name] = value;
  }
  made.append(...children.filter((each) => each !== null && each !== undefined));
  return made;
}

export const count = (value) => (value === null || value === undefined ? UNKNOWN : number.format(value));

export function bytes(value) {
  if (value === null || value === undefined) return UNKNOWN;
  const units = ["B", "KB", "MB", "GB", "TB"];
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) { value /= 1000; unit += 1; }
  return `${unit ? value.toFixed(1) : value} ${units[unit]}`;
}

function ago(ms) {
  if (ms === null || ms === undefined) return UNKNOWN;
  return ms < 1500 ? "now" : ms < 90000 ? `${Math.round(ms / 1000)} s ago` : `${Math.round(ms / 60000)} min ago`;
}

// ---- what changed a figure last ------------------------------------------------------------------------

const lastOf = new Map(); // by subject
const lastOfKind = new Map();

function last(events) {
  const event = events.filter(Boolean).sort((a, b) => b.number - a.number)[0];
  if (!event) return null;
  return `${clock(event)} ${event.subject}: ${event.kind}, ${event.text}`;
}

const clock = (event) => new Date(event.time_ms).toLocaleTimeString("en-GB");
const lastOfSubject = (subject) => {
  const event = lastOf.get(subject);
  return event ? `${clock(event)} ${event.kind}: ${event.text}` : null;
};

// ---- health ------------------------------------------------------------------------------------------

const OF_BROKERS = ["broker registered", "broker fenced", "broker unfenced", "broker shutting down"];
const OF_LEADERS = ["no leader", "election", "unclean election"];
const OF_ISR = ["ISR shrink", "ISR expand"];
const FIGURES = [ // with the kinds of events that change them
  ["brokers", "brokers that answer", "Of those that are registered. One that is fenced leads nothing.", OF_BROKERS],
  ["no_leader", "without a leader", "No replica in sync is alive: these partitions can be neither written nor read.", OF_LEADERS],
  ["under_min_isr", "under min ISR", "Fewer in sync than min.insync.replicas: writes with acks=all are refused.", OF_ISR],
  ["under_replicated", "under-replicated", "A replica is not in sync; one more failure is nearer.", OF_ISR],
  ["partitions", "partitions", "Of all topics that you may see.", ["topic created", "topic deleted"]],
  ["term", "quorum term", "Counts the elections of the controller. One that rises often says that voters lose each other.",
    ["controller"]],
];

function health(snapshot) {
  const answering = snapshot.brokers.filter((each) => each.answers && !each.fenced).length;
  const values = {
    brokers: `${answering} of ${snapshot.brokers.length}`,
    term: snapshot.quorum.problem ? snapshot.quorum.problem : count(snapshot.quorum.term),
  };
  const bad = {
    brokers: answering < snapshot.brokers.length, term: Boolean(snapshot.quorum.problem), partitions: false,
  };
  const tiles = FIGURES.map(([key, label, explanation, kinds]) => {
    const changed = last(kinds.map((each) => lastOfKind.get(each)));
    const figure = snapshot.totals[key];
    const isBad = key in bad ? bad[key] : figure > 0;
    return element("li", { className: isBad ? "bad" : "" },
      element("b", {}, values[key] ?? count(figure)),
      element("small", {}, isBad ? `⚠ ${label}` : label),
      element("p", { className: "explanation" }, explanation),
      changed ? element("p", { className: "explanation" }, `Last: ${changed}`) : null);
  });
  replaceIfChanged($("health"), tiles);
}

export function replaceIfChanged(parent, children) {
  const next = children.map((each) => each.outerHTML).join("");
  if (parent.dataset.drawn === next) return; // else a screen reader would read it again every second
  parent.dataset.drawn = next;
  parent.replaceChildren(...children);
}

// ---- brokers and quorum ---------------------------------------------------------------------------------

function brokerState(broker) {
  if (broker.fenced) return "⚠ fenced";
  if (broker.shutting_down) return "⚠ shutting down";
  if (!broker.answers) return "⚠ does not answer";
  return `✓ ${broker.state}`;
}

function broker(each, controller) {
  const state = brokerState(each);
  const facts = [
    ["address", each.address ?? UNKNOWN], ["leads", count(each.leads)], ["replicas", count(each.replicas)],
    ["on disk", bytes(each.size)], ["metadata", each.metadata_lag === 0 ? "up to date" : each.metadata_lag === null ? UNKNOWN : `${count(each.metadata_lag)} behind`],
  ];
  if (each.stalls) facts.push(["loop stalls", count(each.stalls)]);
  if (each.faults) facts.push(["faults", `⚠ ${count(each.faults)}`]);
  for (const directory of each.log_dirs ?? []) if (!directory.online) facts.push(["disk failed", directory.path]);
  return element("li", { className: state.startsWith("✓") ? "broker" : "broker bad" },
    each.id === controller ? element("span", { className: "role" }, "controller") : null,
    element("strong", {}, `Broker ${each.id}`), ` ${state}`,
    element("dl", {}, ...facts.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)])),
    lastLine(lastOfSubject(`broker ${each.id}`)));
}

function lastLine(text) {
  return text ? element("p", { className: "last" }, text) : null;
}

function brokers(snapshot) {
  const racks = Map.groupBy
    ? Map.groupBy(snapshot.brokers, (each) => each.rack)
    : snapshot.brokers.reduce((all, each) => all.set(each.rack, [...(all.get(each.rack) ?? []), each]), new Map());
  const drawn = [...racks].map(([rack, members]) => element("div", { className: "rack" },
    element("h3", {}, rack === null ? "no rack" : `rack ${rack}`),
    element("ul", {}, ...members.map((each) => broker(each, snapshot.quorum.leader)))));
  replaceIfChanged($("racks"), drawn);
  replaceIfChanged($("reached"), reached(snapshot).map(([ok, link, otherwise]) =>
    element("li", { className: ok ? "" : "bad" }, ok ? `✓ ${link}` : `⚠ ${link}: ${otherwise}`)));
}

// Who hears whom, as far as this node can tell: what it asks the others, and whose heartbeats the controller has.
function reached({ brokers: all, told_by: own, quorum: { leader } }) {
  const asked = all.filter((each) => each.id !== own)
    .map((each) => [each.answers, `${own} ⇄ ${each.id}`, "does not answer"]);
  const beats = leader < 0 ? [] : all.filter((each) => each.id !== leader)
    .map((each) => [!each.fenced, `${each.id} → controller ${leader}`, "no heartbeats"]);
  return [...asked, ...beats];
}

function quorum(state) {
  $("quorum-note").textContent = state.problem
    ? `⚠ ${state.problem}` : `Term ${state.term}, led by ${state.leader}, high watermark ${count(state.high_watermark)}.`;
  const changed = lastOfSubject("quorum");
  if (changed) $("quorum-note").textContent += ` Last: ${changed}.`;
  const rows = state.voters.map((voter) => element("tr", {},
    element("td", {}, String(voter.id)), element("td", {}, voter.id === state.leader ? "★ leader" : "follower"),
    element("td", { className: "n" }, count(voter.end)), element("td", { className: "n" }, count(voter.lag)),
    element("td", { className: "n" }, ago(voter.caught_up_ms_ago))));
  replaceIfChanged($("quorum").tBodies[0], rows);
}

// ---- the time line --------------------------------------------------------------------------------------

const BAD = new Set(["broker fenced", "unclean election", "no leader", "ISR shrink", "broker shutting down"]);
const GOOD = new Set(["broker unfenced", "ISR expand"]);
let newest = 0;

function happened(events) {
  for (const event of events) {
    if (event.number <= newest) continue;
    newest = event.number;
    lastOf.set(event.subject, event);
    lastOfKind.set(event.kind, event);
    const time = new Date(event.time_ms);
    $("events").prepend(element("li", { className: BAD.has(event.kind) ? "bad" : GOOD.has(event.kind) ? "good" : "" },
      element("time", { dateTime: time.toISOString() }, time.toLocaleTimeString("en-GB")),
      element("b", {}, `${BAD.has(event.kind) ? "⚠ " : ""}${event.kind}`), ` ${event.subject}`,
      element("span", {}, event.text)));
  }
  while ($("events").children.length > MAX_EVENTS) $("events").lastElementChild.remove();
  document.dispatchEvent(new Event("happened"));
}

// ---- partitions -----------------------------------------------------------------------------------------

const cards = new Map();

function niceCeiling(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 10)));
  return [1, 2, 5, 10].map((each) => each * power).find((each) => each >= value);
}

function card(key, topic) {
  const name = element("button", { type: "button", className: "name" }, key);
  name.addEventListener("click", () => openTopic(topic));
  const made = {
    root: element("article", { className: "partition" }), state: element("span", { className: "state" }),
    facts: element("p", { className: "facts" }), replicas: new Map(), last: element("p", { className: "last" }),
  };
  made.root.append(element("header", {}, name, made.state), made.facts, made.last);
  cards.set(key, made);
  return made;
}

function replicaBar(held, id) {
  const made = {
    root: element("div", { className: "replica" }), who: element("span", { className: "who" }),
    log: element("div", { className: "log" }), mark: element("div", { className: "mark" }),
    track: element("div", { className: "track", role: "img" }), behind: element("span", { className: "behind" }),
  };
  made.track.append(made.log, made.mark);
  made.root.append(made.who, made.track, made.behind);
  held.replicas.set(id, made);
  held.last.before(made.root);
  return made;
}

function drawReplica(bar, replica, partition, scale) {
  const leads = replica.id === partition.leader;
  const share = (offset) => `${Math.min(Math.max((offset - partition.start) / scale, 0), 1) * 100}%`;
  bar.root.className = `replica${leads ? " leads" : ""}${replica.in_sync ? "" : " out"}`;
  bar.who.textContent = `${leads ? "★" : replica.in_sync ? "✓" : "✗"} ${replica.id}`;
  const known = replica.end !== null && partition.start !== null;
  bar.log.style.width = known ? share(replica.end) : "0";
  bar.mark.style.left = known ? share(partition.high_watermark) : "0";
  bar.mark.hidden = !known;
  const lag = known && partition.end !== null ? Math.max(partition.end - replica.end, 0) : null;
  const late = !replica.in_sync && replica.behind_s !== null ? ` ${Math.round(replica.behind_s)} s` : "";
  bar.behind.textContent = replica.offline ? "disk failed"
    : lag === null ? UNKNOWN : leads ? count(replica.end) : lag ? `−${count(lag)}${late}` : "caught up";
  const role = leads ? "leads" : replica.in_sync ? "in sync" : "not in sync";
  bar.track.setAttribute("aria-label", `replica on ${replica.id}: ${role}, log end ${count(replica.end)}`);
}

function drawPartition(partition) {
  const key = `${partition.topic}-${partition.partition}`;
  const held = cards.get(key) ?? card(key, partition.topic);
  const bad = partition.state !== "in sync";
  held.root.className = bad ? "partition bad" : "partition";
  held.state.textContent = bad ? `⚠ ${partition.state}` : "✓ in sync";
  held.facts.textContent = `high watermark ${count(partition.high_watermark)} · epoch ${partition.leader_epoch} · ${bytes(partition.size)}`
    + (partition.adding.length || partition.removing.length ? ` · moving to ${partition.adding.join(", ")}` : "");
  // Of very many changes at once not each is an event.
  const isKnown = (lastOf.get(key)?.partition_epoch ?? Infinity) >= partition.partition_epoch;
  const changed = isKnown ? lastOfSubject(key) ?? "" : "changed with very many others: see the time line";
  if (held.last.textContent !== changed) held.last.textContent = changed;
  const ends = partition.replicas.map((each) => each.end ?? 0);
  const scale = niceCeiling(Math.max(...ends, 0) - (partition.start ?? 0));
  for (const replica of partition.replicas) {
    drawReplica(held.replicas.get(replica.id) ?? replicaBar(held, replica.id), replica, partition, scale);
  }
  for (const [id, bar] of held.replicas) {
    if (!partition.replicas.some((each) => each.id === id)) { bar.root.remove(); held.replicas.delete(id); }
  }
  return [key, held.root];
}

let latest = null;

function partitions(snapshot) {
  const wanted = $("filter").value.trim().toLowerCase();
  const shown = snapshot.partitions.filter((each) =>
    ($("internal").checked || !each.topic.startsWith("__") || ["no leader", "under min ISR"].includes(each.state))
    && (!wanted || `${each.topic}-${each.partition} ${each.state}`.toLowerCase().includes(wanted)));
  const drawn = new Map(shown.map(drawPartition));
  for (const key of [...cards.keys()]) {
    if (!drawn.has(key)) { cards.get(key).root.remove(); cards.delete(key); }
  }
  const order = [...drawn.values()];
  const bars = $("bars");
  order.forEach((root, index) => { if (bars.children[index] !== root) bars.insertBefore(root, bars.children[index] ?? null); });
  const more = snapshot.more_partitions ? `, ${count(snapshot.more_partitions)} more are not sent` : "";
  const text = `${count(order.length)} shown${more}`;
  if ($("shown").textContent !== text) $("shown").textContent = text;
}

// ---- groups ---------------------------------------------------------------------------------------------

function assigned(member) {
  if (!member.assigned) return "assigned in its own way";
  const topics = Object.entries(member.assigned);
  return topics.length ? topics.map(([topic, numbers]) => `${topic}-${numbers.join(",")}`).join("; ") : "nothing assigned";
}

const lag = (of) => `${of.lag && !of.lag_exact ? "≤ " : ""}${count(of.lag)}`;

function groups(all, more) {
  const rows = all.map((group) => element("tr", {},
    element("td", { className: "wide" }, group.id), element("td", {}, group.type), element("td", {}, group.state),
    element("td", {}, group.members.length
      ? element("details", {}, element("summary", {}, count(group.members.length)),
        ...group.members.map((each) => element("div", {}, `${each.client_id} ${each.client_host}: ${assigned(each)}`)))
      : "none"),
    element("td", { className: "n" }, group.offsets.length
      ? element("details", {}, element("summary", {}, lag(group)),
        ...group.offsets.map((each) => element("div", {},
          `${each.topic}-${each.partition}: ${lag(each)}, at ${count(each.offset)} of ${count(each.end)}`)))
      : "nothing committed"),
    element("td", { className: "n" }, String(group.coordinator))));
  if (more) rows.push(element("tr", {}, element("td", { colSpan: 6 },
    `${count(more)} more, which are less far behind, are not sent: /api/v1/groups has them.`)));
  if ($("groups").querySelector("details[open]")) return; // it is being read
  replaceIfChanged($("groups").tBodies[0], rows.length ? rows
    : [element("tr", {}, element("td", { colSpan: 6 }, "There are none."))]);
}

// ---- one topic --------------------------------------------------------------------------

export async function ask(path, request = {}) {
  const response = await fetch(path, request);
  const body = await response.json();
  if (!response.ok) throw new Error(body.error ?? response.statusText);
  return body;
}

let open = null;
export const openedTopic = () => open;

export async function openTopic(name) {
  open = name;
  $("topic-name").textContent = name;
  $("topic-facts").textContent = "asking …";
  $("browse-note").textContent = "";
  $("messages").hidden = true;
  $("browse-on").hidden = true;
  $("topic").showModal();
  try {
    const topic = await ask(`/api/v1/topics/${encodeURIComponent(name)}`);
    const total = topic.partitions.length + topic.more_partitions;
    $("topic-facts").textContent = `${count(total)} partitions, ${bytes(topic.size)} on their leaders, id ${topic.id}`;
    const set = Object.entries(topic.configs ?? {});
    $("topic-configs").replaceChildren(...(set.length
      ? set.flatMap(([key, value]) => [element("dt", {}, key), element("dd", {}, value)])
      : [element("dt", {}, topic.configs === null ? "you may not see them" : "nothing was set")]));
    const numbers = topic.partitions.map((each) => each.partition).sort((a, b) => a - b);
    $("browse-partition").replaceChildren(...numbers.map((each) => element("option", {}, String(each))));
  } catch (error) {
    $("topic-facts").textContent = `⚠ ${error.message}`;
  }
}

// ---- the stream, and keys -----------------------------------------------------------------------------------

function draw(snapshot) {
  latest = snapshot;
  $("cluster").textContent = `cluster ${snapshot.cluster_id}, as node ${snapshot.told_by} sees it`;
  document.title = snapshot.totals.no_leader + snapshot.totals.under_min_isr ? "⚠ kraft" : "kraft";
  health(snapshot);
  brokers(snapshot);
  quorum(snapshot.quorum);
  partitions(snapshot);
  groups(snapshot.groups, snapshot.more_groups);
}

function linked(text, lost) {
  if ($("link").textContent !== text) $("link").textContent = text;
  $("link").classList.toggle("lost", lost);
}

const AGAIN_MS = 5000;

function listen() {
  const stream = new EventSource("/api/v1/live");
  stream.addEventListener("cluster", (event) => { linked("live", false); draw(JSON.parse(event.data)); });
  stream.addEventListener("events", (event) => happened(JSON.parse(event.data)));
  stream.addEventListener("error", () => {
    newest = 0; // the node may be another process, which counts for itself
    linked("⚠ this node does not answer; what is shown is old", true);
    if (stream.readyState === EventSource.CLOSED) refused(); // a browser asks again only where nobody answered
  });
  stream.addEventListener("open", () => { $("events").replaceChildren(); lastOf.clear(); lastOfKind.clear(); });
}

async function refused() {
  try {
    await ask("/api/v1/events"); // the browser asks for a password, where that is what lacks
    listen();
  } catch (error) {
    linked(`⚠ ${error.message}; what is shown is old`, true);
    setTimeout(refused, AGAIN_MS);
  }
}
listen();

$("filter").addEventListener("input", () => latest && partitions(latest));
$("internal").addEventListener("change", () => latest && partitions(latest));
function explain() {
  const on = document.body.classList.toggle("explaining");
  $("explain").setAttribute("aria-pressed", String(on));
}
$("explain").addEventListener("click", explain);
document.addEventListener("keydown", (event) => {
  const typing = event.target.closest("input, select, textarea");
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "/") { event.preventDefault(); $("filter").focus(); }
  if (event.key === "?") explain();
});
