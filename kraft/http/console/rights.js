// Transactions, users, quotas, ACLs and clients: fetched every few seconds, while the page is visible.

import { $, ask, count, element, replaceIfChanged } from "./console.js";

const PERIOD_MS = 3000;
const API = "/api/v1";

function rows(table, made, columns, nothing) {
  replaceIfChanged($(table).tBodies[0], made.length ? made
    : [element("tr", {}, element("td", { colSpan: columns }, nothing))]);
}

const cell = (text, properties = {}) => element("td", properties, text);
const wide = { className: "wide" };

function age(ms) {
  return ms < 120000 ? `${Math.round(ms / 1000)} s` : `${Math.round(ms / 60000)} min`;
}

function transactions(open) {
  rows("transactions", open.map((each) => element("tr", { className: each.problem ? "bad" : "" },
    cell(each.transactional_id ?? "not known", wide),
    cell(each.problem ? element("b", {}, `⚠ ${each.state}: ${each.problem}`) : each.state),
    cell(`${each.producer_id}, epoch ${each.producer_epoch}`, { className: "n" }),
    cell(age(each.open_ms), { className: "n" }),
    cell(each.partitions.map((its) => `${its.topic}-${its.partition}`
      + (its.first_offset === null ? "" : ` from ${count(its.first_offset)}`)).join("\n"), wide))), 5, "None is open.");
}

function users(answer) {
  rows("users", answer.users.map((each) => element("tr", {}, cell(each.name, wide), cell(each.mechanisms.join(", ")))),
    2, "There are none.");
}

function quotas(answer) {
  const of = (entity) => entity.map((each) => `${each.type} ${each.name ?? "(every other)"}`).join(", ");
  const limits = (all) => Object.entries(all).map(([key, value]) => `${key}=${value}`).join(", ");
  rows("quotas", answer.quotas.map((each) => element("tr", {}, cell(of(each.entity), wide), cell(limits(each.limits), wide))),
    2, "There are none.");
}

function acls(answer) {
  $("rights-note").textContent = answer.authorizer ? "" : "No authorizer is configured: everybody may do everything.";
  const resource = (each) => `${each.resource_type} ${each.resource}${each.pattern === "PREFIXED" ? " and what begins so" : ""}`;
  rows("acls", answer.acls.map((each) => element("tr", {}, cell(each.principal, wide), cell(each.permission),
    cell(each.operation), cell(resource(each), wide), cell(each.host))), 5, "There are none.");
}

function clients(answer) {
  if ($("clients").querySelector("details[open]")) return; // somebody reads it
  const figure = (each) => `${each.name} ${Object.entries(each.attributes).map(([key, value]) => `${key}=${value}`).join(" ")}`;
  rows("clients", answer.clients.map((each) => element("tr", {}, cell(each.client_id || each.instance_id, wide),
    cell(each.software), cell(each.host), cell(`${Math.round(each.heard_s_ago)} s ago`, { className: "n" }),
    cell(element("details", {}, element("summary", {}, count(each.metrics.length)),
      ...each.metrics.map((its) => element("div", {}, `${figure(its)}: ${its.value}`))), wide))),
  5, "None pushes its metrics to this node.");
}

async function show(what, draw, table, columns) {
  try {
    draw(await ask(`${API}/${what}`));
  } catch (error) {
    rows(table, [], columns, `⚠ ${error.message}`);
  }
}

async function refresh() {
  if (document.visibilityState !== "visible") return;
  await show("transactions", (answer) => transactions(answer.transactions), "transactions", 5);
  if ($("rights-shown").open) {
    await show("users", users, "users", 2);
    await show("quotas", quotas, "quotas", 2);
    await show("acls", acls, "acls", 5);
  }
  if ($("clients-shown").open) await show("clients", clients, "clients", 5);
}

async function refreshForEver() {
  await refresh();
  setTimeout(refreshForEver, PERIOD_MS);
}

for (const id of ["rights-shown", "clients-shown"]) $(id).addEventListener("toggle", refresh);
refreshForEver();
