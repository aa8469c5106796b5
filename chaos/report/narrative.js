// The story in words: what was done, what the cluster decided and why; and what the words mean.

const FEW_LINES = 40; // shown at once; more unfold

function scenarioWords({ scenario, schedule, ledger }) {
  return [
    scenario ? element("p", { class: "story" }, scenario) : "",
    schedule ? element("pre", { class: "schedule", title: "the schedule" }, schedule.trimEnd()) : "",
    ...ledger.map((entry) => element("p", { class: "ledger" }, `Expected: ${entry}.`)),
  ];
}

function storyTable({ lines, left_out }) {
  if (lines.length === 0) return element("p", {}, "Nothing was done, and nothing happened.");
  const body = element("tbody", {}, ...lines.map(storyLine));
  const table = element("table", { class: "narrative" }, body);
  const rest = left_out ? element("p", { class: "left-out" }, `${count(left_out)} more lines are in events.jsonl and story.jsonl.`) : "";
  if (lines.length <= FEW_LINES) return element("div", {}, table, rest);
  return element("details", {}, element("summary", {}, `${count(lines.length)} lines, from ${exactTime(lines[0][0])} on`), table, rest);
}

function storyLine([time, who, what]) {
  return element("tr", { class: who === "done" ? "done" : null }, element("td", { class: "when" }, exactTime(time)), element("td", { class: "who" }, who), element("td", {}, what));
}

function wordList(words) {
  const pairs = words.map(([word, meaning]) => element("div", {}, element("dt", {}, word), element("dd", {}, meaning)));
  return element("details", { class: "words" }, element("summary", {}, "What the words mean"), element("dl", {}, ...pairs));
}
