// The message browser: a partition's records, from an offset or a time on, or those with a text.

import { $, ask, bytes, count, element, openedTopic } from "./console.js";

function formatted(data, as) {
  if (data === null) return "null";
  const cut = (text) => (data.bytes > 4096 ? `${text} … ${bytes(data.bytes)} in all` : text);
  if (as === "hex") {
    const raw = "base64" in data ? Uint8Array.from(atob(data.base64), (c) => c.charCodeAt(0))
      : new TextEncoder().encode(data.text);
    return cut([...raw].map((each) => each.toString(16).padStart(2, "0")).join(" "));
  }
  if ("base64" in data) return cut(`base64 ${data.base64}`);
  if (as === "json") {
    try { return JSON.stringify(JSON.parse(data.text), null, 2); } catch { return cut(data.text); }
  }
  return cut(data.text);
}

function time(ms) {
  const date = new Date(ms); // a record may say any time at all
  return Number.isNaN(date.getTime()) ? `${ms} ms` : date.toISOString();
}

function content(each, as) {
  if (each.problem) return `⚠ ${each.problem}`;
  return each.control ? "marker of a transaction" : formatted(each.value, as);
}

function headers(each, as) {
  const lines = each.headers.map(([name, data]) => `${name}: ${formatted(data, as)}`);
  return [...lines, ...(each.more_headers ? [`… ${each.more_headers} more`] : [])].join("\n");
}

// Where a search begins; the newest where nothing is asked for. Throws for what is no time.
function beginning() {
  const from = $("browse-from").value;
  const value = $("browse-value").value.trim();
  if (!from || !value) return {};
  if (from === "offset") return { offset: value };
  const time = /^\d+$/.test(value) ? value : Date.parse(value);
  if (Number.isNaN(time)) throw new Error("a time is written as 2026-01-31T12:00, or in ms since 1970");
  return { time_ms: String(time) };
}

const MAX_SHOWN = 50;
const MAX_READS = 20;

// With a text that is looked for, reads on until there is a page of it.
export async function browse(place = beginning) {
  $("browse-note").textContent = "reading …";
  $("browse-on").hidden = true;
  try {
    const wanted = $("browse-key").value;
    const path = `/api/v1/topics/${encodeURIComponent(openedTopic())}/partitions/${$("browse-partition").value}/messages`;
    const limit = wanted ? "200" : String(MAX_SHOWN);
    const found = [];
    let page = await ask(`${path}?${new URLSearchParams({ limit, ...place() })}`);
    const first = page.from;
    let next = first;
    for (let reads = 1; ; reads += 1) {
      for (const each of page.messages) {
        if (found.length === MAX_SHOWN) break;
        next = each.offset + 1;
        if ([each.key, each.value].some((data) => formatted(data, "text").includes(wanted))) found.push(each);
      }
      if (!page.messages.length) next = page.end;
      if (!wanted || found.length === MAX_SHOWN || next >= page.end || reads === MAX_READS) break;
      $("browse-note").textContent = `reading … at offset ${count(next)}, ${found.length} found`;
      page = await ask(`${path}?${new URLSearchParams({ limit, offset: next })}`);
    }
    drawMessages(found);
    $("browse-on").hidden = next >= page.end;
    $("browse-on").dataset.offset = next;
    $("browse-note").textContent = `${found.length} of offsets ${count(first)} to ${count(next)}; the partition has ${count(page.start)} to ${count(page.end)}.`;
  } catch (error) {
    $("browse-note").textContent = `⚠ ${error.message}`;
  }
}

function drawMessages(messages) {
  const as = $("browse-as").value;
  $("messages").hidden = false;
  $("messages").tBodies[0].replaceChildren(...messages.map((each) => element("tr", {},
    element("td", { className: "n" }, String(each.offset)),
    element("td", {}, time(each.time_ms)),
    element("td", { className: "wide" }, formatted(each.key, as)),
    element("td", { className: "wide" }, content(each, as)),
    element("td", { className: "wide" }, headers(each, as)))));
}

$("browse").addEventListener("click", () => browse());
$("browse-on").addEventListener("click", () => browse(() => ({ offset: $("browse-on").dataset.offset })));
export function entered(inputs, action) {
  for (const id of inputs) $(id).addEventListener("keydown", (event) => event.key === "Enter" && action());
}
entered(["browse-value", "browse-key"], () => browse());
$("browse-from").addEventListener("change", () => {
  const hidden = !$("browse-from").value;
  $("browse-value").hidden = hidden;
  document.querySelector("label[for=browse-value]").hidden = hidden;
  $("browse-value").placeholder = $("browse-from").value === "time" ? "2026-01-31T12:00" : "0";
});
