// What changes something: a message, a fault. Shown only where the node lets it be done.

import { $, ask, count, element, openedTopic } from "./console.js";
import { browse, entered } from "./messages.js";

const API = "/api/v1";
const LINKS_AFTER_MS = 5000;
const allowed = await ask(`${API}/writes`);

const post = (path, body) => ask(path, {
  method: "POST",
  headers: { "Content-Type": "application/json", "X-Kraft-Token": allowed.token },
  body: JSON.stringify(body),
});

// ---- one message ----------------------------------------------------------------------------------------

function headersOf(text) {
  const pairs = text.split(",").map((each) => each.trim()).filter(Boolean).map((each) => each.split(/=(.*)/s));
  return Object.fromEntries(pairs.map(([name, value]) => [name.trim(), value ?? ""]));
}

async function produce() {
  $("produce-note").textContent = "sending …";
  const topic = encodeURIComponent(openedTopic());
  try {
    const answer = await post(`${API}/topics/${topic}/partitions/${$("browse-partition").value}/messages`, {
      key: $("produce-key").value || null,
      value: $("produce-null").checked ? null : $("produce-value").value,
      headers: headersOf($("produce-headers").value),
    });
    const pause = answer.throttle_time_ms
      ? `; your quota is used up, pause for ${Math.ceil(answer.throttle_time_ms / 1000)} s` : "";
    $("produce-note").textContent = `✓ acknowledged by all in sync, offset ${count(answer.offset)}${pause}`;
    if (!pause) await browse();
  } catch (error) {
    $("produce-note").textContent = `⚠ ${error.message}`;
  }
}

$("produce").hidden = !allowed.produce;
$("produce-send").addEventListener("click", produce);
entered(["produce-key", "produce-value", "produce-headers"], produce);

// ---- faults ---------------------------------------------------------------------------------------------

let lists = 0;

async function broken() {
  lists += 1;
  const mine = lists;
  const { said } = await post(`${API}/faults`, { action: "list" });
  if (mine !== lists) return; // a newer list is on its way
  $("links").replaceChildren(...said.split("\n").filter(Boolean).map((each) => element("li", {}, `⚠ link ${each}`)));
}

async function doIt(button) {
  const action = button.dataset.action;
  const ofNode = allowed.faults.of_nodes.includes(action);
  const link = `${$("fault-from").value}${$("fault-way").value}${$("fault-to").value}`;
  const body = ofNode ? { action, node: Number($("fault-node").value) }
    : "all" in button.dataset ? { action } : { action, link };
  const buttons = $("faults").querySelectorAll("button");
  for (const each of buttons) each.disabled = true;
  $("fault-note").textContent = `${action} …`;
  try {
    const answer = await post(`${API}/faults`, body);
    $("fault-note").textContent = `✓ ${answer.said || `${action} ${body.link ?? ""}`}`;
    await broken();
  } catch (error) {
    $("fault-note").textContent = `⚠ ${error.message}`;
  } finally {
    for (const each of buttons) each.disabled = false;
    button.focus();
  }
}

if (allowed.faults) {
  for (const id of ["fault-from", "fault-to", "fault-node"]) {
    $(id).replaceChildren(...allowed.faults.nodes.map((each) => element("option", {}, String(each))));
  }
  $("fault-from").selectedIndex = 1;
  for (const button of $("faults").querySelectorAll("button")) button.addEventListener("click", () => doIt(button));
  $("faults").hidden = false;
  await broken();
  let asking = false; // a link that somebody else breaks has consequences, which are events
  document.addEventListener("happened", () => {
    if (asking) return;
    asking = true;
    setTimeout(() => broken().catch(() => {}).finally(() => { asking = false; }), LINKS_AFTER_MS);
  });
}
