// The page of the API, drawn from its OpenAPI description.

const text = (tag, content) => Object.assign(document.createElement(tag), { textContent: content });

const description = await (await fetch("/api/openapi.json")).json();
const operations = Object.entries(description.paths)
  .flatMap(([path, by]) => Object.entries(by).map(([method, operation]) => [method, path, operation]));
for (const [method, path, operation] of operations) {
  const heading = document.createElement("h3");
  if (method === "post") heading.append(text("code", `POST ${path}`));
  else if (path.includes("{")) heading.append(text("code", path));
  else {
    const link = text("a", path);
    link.href = path;
    heading.append(link);
  }
  const list = document.createElement("dl");
  for (const parameter of operation.parameters ?? []) {
    list.append(text("dt", parameter.name), text("dd", parameter.description ?? "in the path"));
  }
  document.getElementById("paths").append(heading, text("p", operation.summary), list);
}
