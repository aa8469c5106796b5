// The table of anomalies, each with the operations that prove it.

const FEW_MESSAGES = 8; // of one poll, shown at once; the rest unfolds
const FEW_ALIKE = 4; // anomalies of one kind and partition, shown at once
const MOST_AROUND = 40;

function anomalyTable({ shown, left_out, operations, definitions, not_judged }, show) {
  const unjudged = Object.entries(not_judged).map(([kind, why]) => element("p", { class: "left-out" }, `Not judged: ${kind} (${why}).`));
  if (shown.length === 0) return element("div", {}, element("p", {}, "None was found."), ...unjudged);
  const body = element("tbody");
  for (const group of alike(shown)) {
    group.forEach((index, nth) => {
      if (nth === FEW_ALIKE) body.append(moreRow(group.slice(FEW_ALIKE), shown[index]));
      const anomaly = { ...shown[index], definition: definitions[shown[index].kind] };
      const [row, evidence] = anomalyRows(anomaly, index, operations, show);
      row.hidden = nth >= FEW_ALIKE;
      body.append(row, evidence);
    });
  }
  const head = element("tr", {}, ...["kind", "partition", "", "what happened", "when"].map((word) => element("th", { scope: "col" }, word)));
  const table = element("table", { class: "anomalies" }, element("thead", {}, head), body);
  const rest = left_out.map(({ kind, allowed, n }) => element("p", { class: "left-out" }, `${count(n)} more of kind ${kind} (${allowed ? "allowed" : "forbidden"}) are in verdict.json.`));
  return element("div", {}, table, ...rest, ...unjudged);
}

/** Indexes of anomalies of one kind and partition that follow one another. */
function alike(shown) {
  const same = (a, b) => a.kind === b.kind && a.key === b.key && a.allowed === b.allowed;
  const groups = [];
  shown.forEach((anomaly, index) => {
    const last = groups[groups.length - 1];
    if (last && same(shown[last[0]], anomaly)) last.push(index);
    else groups.push([index]);
  });
  // One more than the few is shown, not announced.
  return groups.flatMap((group) => (group.length === FEW_ALIKE + 1 ? [group.slice(0, -1), group.slice(-1)] : [group]));
}

function moreRow(indexes, { kind, key }) {
  const button = element("button", { type: "button" }, `${indexes.length} more of ${kind} in ${key}`);
  const row = element("tr", { class: "more" }, element("td", { colspan: 5 }, button));
  row.unfold = () => {
    row.remove();
    for (const index of indexes) document.getElementById(`anomaly-${index}`).hidden = false;
  };
  button.addEventListener("click", row.unfold);
  for (const index of indexes) moreRows.set(index, row);
  return row;
}

const moreRows = new Map(); // index of an anomaly -> the row shown in its place until it is unfolded

function anomalyRows(anomaly, index, operations, show) {
  const evidence = element("tr", { class: "evidence", id: `evidence-${index}`, hidden: "" });
  const toggle = element("button", { type: "button", class: "toggle", "aria-expanded": "false", "aria-controls": evidence.id }, anomaly.kind);
  const when = element("button", { type: "button", class: "when", title: "show on the timeline" }, exactTime(anomaly.start));
  const row = element(
    "tr",
    { id: `anomaly-${index}`, class: anomaly.allowed ? "allowed" : "forbidden" },
    element("th", { scope: "row" }, toggle),
    element("td", { class: "code" }, anomaly.key ?? ""),
    element("td", {}, element("span", { class: "badge" }, badgeWords(anomaly))),
    element("td", {}, anomaly.summary),
    element("td", {}, when),
  );
  row.unfold = (open) => {
    if (row.hidden) moreRows.get(index).unfold();
    if (open && !evidence.firstChild) evidence.append(element("td", { colspan: 5 }, evidenceTable(anomaly, operations)));
    evidence.hidden = !open;
    toggle.setAttribute("aria-expanded", String(open));
  };
  toggle.addEventListener("click", () => row.unfold(evidence.hidden));
  when.addEventListener("click", () => show(index));
  return [row, evidence];
}

function badgeWords({ allowed, expected }) {
  if (expected) return "◇ expected";
  return allowed ? "◇ allowed" : "◆ forbidden";
}

function evidenceTable(anomaly, operations) {
  const head = ["operation", "process", "", "start", "took", "outcome", "what"].map((word) => element("th", { scope: "col" }, word));
  const rows = anomaly.evidence.map((index) => {
    const { process, f, start, end, outcome, final } = operations[index];
    const cells = [`#${index}`, process, final ? `${f} (final)` : f, exactTime(start), duration(end - start)];
    return element(
      "tr",
      {},
      ...cells.map((cell) => element("td", { class: "number" }, String(cell))),
      element("td", { class: outcome }, outcome),
      element("td", { class: "code" }, ...operationWords(operations[index], anomaly)),
    );
  });
  const table = element("table", { class: "operations" }, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...rows));
  const rest = anomaly.unnamed ? element("p", {}, `${count(anomaly.unnamed)} more operations are named in verdict.json.`) : null;
  return element("div", {}, element("p", { class: "definition" }, anomaly.definition ?? ""), table, rest);
}

function operationWords(operation, anomaly) {
  const words = operation.ops.map((micro) => (micro[0] === "send" ? sendWords(micro, anomaly) : pollWords(micro, anomaly)));
  if (operation.keys) words.push(element("div", {}, operation.keys.join(" ")));
  if (operation.txn) words.push(element("div", {}, transactionWords(operation.txn)));
  if (operation.error) words.push(element("div", { class: "error" }, operation.error));
  return words;
}

function sendWords([, key, value, offset], anomaly) {
  const where = offset === null ? "offset unknown" : `offset ${offset}`;
  const look = anomaly.marks.values.includes(value) ? { class: "marked" } : {};
  return element("div", {}, `${key}  `, element("span", look, `${value} → ${where}`));
}

function transactionWords({ id, group, consumed }) {
  const ranges = Object.entries(consumed).map(([key, [from, to]]) => `${key} ${from} to ${to}`);
  return `transaction ${id}${group ? `, group ${group}` : ""}${ranges.length ? `, consumed ${ranges.join(", ")}` : ""}`;
}

/** Offset and value of each message; of a long poll what lies around the anomaly's own, the rest on demand. */
function pollWords([, messages, cut], anomaly) {
  const parts = Object.entries(messages).map(([key, pairs]) => {
    const marks = anomaly.key.split(", ").includes(key) ? anomaly.marks : { offsets: [], values: [] };
    const name = element("span", { class: "key" }, `${key}  `);
    if (pairs.length <= FEW_MESSAGES) return element("div", {}, name, messageWords(pairs, marks));
    const range = `${count(pairs.length)} messages, offsets ${pairs[0][0]} to ${pairs[pairs.length - 1][0]}`;
    const all = element("details", {}, element("summary", {}, range));
    all.addEventListener("toggle", () => all.children.length > 1 || all.append(messageWords(pairs, marks)));
    return element("div", {}, name, messageWords(around(pairs, marks), marks), all);
  });
  if (cut) parts.push(element("div", {}, `${count(cut)} more messages are in history.jsonl`));
  return element("div", {}, ...(parts.length ? parts : ["nothing"]));
}

/** Those messages that are marked, or near a marked offset. */
function around(pairs, { offsets, values }) {
  const marked = pairs.flatMap(([offset, value], i) => (isMarked(offset, value, { offsets, values }) ? [i] : []));
  const near = ([offset], i) => marked.some((index) => Math.abs(index - i) <= 2) || offsets.some((o) => Math.abs(o - offset) <= 2);
  return pairs.filter(near).slice(0, MOST_AROUND);
}

function isMarked(offset, value, { offsets, values }) {
  return offsets.includes(offset) || values.includes(value);
}

function messageWords(pairs, marks) {
  const words = element("span", { class: "messages" });
  for (const [offset, value] of pairs) {
    const look = isMarked(offset, value, marks) ? { class: "marked" } : {};
    words.append(element("span", look, element("i", {}, `${offset}:`), String(value)), " ");
  }
  return words;
}
