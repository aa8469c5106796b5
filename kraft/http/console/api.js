// The page of the API, drawn from its OpenAPI description.

const text = (tag, content) => Object.assign(document.createElement(tag), { textContent: content });

const description = await (await fetch("/api/openapi.json")).json();
for (const [path, { get }] of Object.entries(description.paths)) {
  const heading = document.createElement("h3");
  if (path.includes("{")) heading.append(text("code", path));
  else {
    const link = text("a", path);
    link.href = path;
    heading.append(link);
  }
  const list = document.createElement("dl");
  for (const parameter of get.parameters ?? []) {
    list.append(text("dt", parameter.name), text("dd", parameter.description ?? "in the path"));
  }
  document.getElementById("paths").append(heading, text("p", get.summary), list);
}
