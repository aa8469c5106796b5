// The ratios of contrast on a page, as WCAG 2 computes them: of texts (4.5 is wanted), and of what is drawn (3).
(() => {
  const channels = (colour) => { const all = colour.match(/[0-9.]+/g).map(Number);
      return { rgb: all.slice(0, 3), alpha: all.length > 3 ? all[3] : 1 }; };
  const over = (front, back) => front.rgb.map((each, i) => each * front.alpha + back[i] * (1 - front.alpha));
  const luminance = (rgb) => rgb.map((each) => each / 255)
      .map((each) => (each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4))
      .reduce((sum, each, i) => sum + each * [0.2126, 0.7152, 0.0722][i], 0);
  const ancestors = (e) => (e ? [...ancestors(e.parentElement), e] : []);
  const ground = (e) => ancestors(e).map((each) => channels(getComputedStyle(each).backgroundColor))
      .reduce((back, front) => over(front, back), channels(getComputedStyle(document.body).backgroundColor).rgb);
  const found = [];
  const add = (what, colour, e, wanted) => {
      const front = channels(colour), back = ground(e);
      front.alpha *= ancestors(e).reduce((all, each) => all * getComputedStyle(each).opacity, 1);
      const [dark, light] = [luminance(over(front, back)), luminance(back)].sort((a, b) => a - b);
      found.push({ what, ratio: (light + 0.05) / (dark + 0.05), wanted });
  };
  const seen = (selector) => [...document.querySelectorAll(selector)].filter((e) => e.checkVisibility());
  for (const e of seen("body *")) {
      const own = [...e.childNodes].filter((each) => each.nodeType === Node.TEXT_NODE && each.data.trim());
      if (own.length) add(own[0].data.trim(), getComputedStyle(e).color, e, 4.5);
  }
  for (const e of seen("[placeholder]")) add(e.placeholder, getComputedStyle(e, "::placeholder").color, e, 4.5);
  for (const e of seen("input, select, button:not(.name)")) {
      add(`edge of ${e.id}`, getComputedStyle(e).borderTopColor, e.parentElement, 3);
  }
  for (const e of seen(".replica .log")) {
      add("a bar", getComputedStyle(e).backgroundColor, e.parentElement, 3);
  }
  for (const name of ["--bar", "--bar-lead", "--bar-out", "--accent", "--bad"]) {
      const probe = document.body.appendChild(document.createElement("i"));
      probe.style.color = `var(${name})`;
      add(name, getComputedStyle(probe).color, document.body, 3);
      probe.remove();
  }
  return found;
})()
