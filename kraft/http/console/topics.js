// Topics: all that there are, also those with more partitions than are sent and drawn.

import { $, ask, bytes, count, element, openTopic, replaceIfChanged } from "./console.js";

const PERIOD_MS = 3000;
const MOST = 100;

function row(topic) {
  const name = element("button", { type: "button", className: "name" }, topic.name);
  return element("tr", {}, element("td", { className: "wide" }, name),
    element("td", { className: "n" }, count(topic.partitions)), element("td", { className: "n" }, bytes(topic.size)));
}

async function refresh() {
  if (!$("topics-shown").open || document.visibilityState !== "visible") return;
  try {
    const query = new URLSearchParams({ limit: MOST, containing: $("topics-filter").value.trim() });
    const page = await ask(`/api/v1/topics?${query}`);
    replaceIfChanged($("topics").tBodies[0], page.topics.map(row));
    $("topics-note").textContent = `${count(page.topics.length)} shown${page.more ? `, ${count(page.more)} more` : ""}`;
  } catch (error) {
    $("topics-note").textContent = `⚠ ${error.message}`;
  }
}

async function refreshForEver() {
  await refresh();
  setTimeout(refreshForEver, PERIOD_MS);
}

$("topics").addEventListener("click", (event) => event.target.matches(".name") && openTopic(event.target.textContent));
$("topics-filter").addEventListener("input", refresh);
$("topics-shown").addEventListener("toggle", refresh);
refreshForEver();
